"""Brokers: what they tell of themselves, and their settings: which are live, which need a restart,
which were changed, by whom."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.base.setting_facts import Setting
from escrowmq.client.admin.broker_summary import summary
from escrowmq.client.admin.previews import brokers as previews
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Asking, Change, Deed, Operation
from escrowmq.console.problems import Problem
from escrowmq.net.clock import SystemClock


class BrokerWanted(msgspec.Struct, kw_only=True):
    """Which one."""

    broker: Annotated[str, Meta(min_length=1)]


class Told(Answer, kw_only=True):
    """One thing that a broker tells, for people."""

    title: str
    value: str


class BrokerShown(Answer, kw_only=True):
    """What a broker tells of itself."""

    broker: str
    summary: list[Told]
    runtime: dict[str, str]
    """All of it, under RocketMQ's names."""


class SettingsWanted(msgspec.Struct, kw_only=True):
    """Which of a broker's."""

    broker: Annotated[str, Meta(min_length=1)]
    part: Annotated[str, Meta(description="of the name, or of what it does")] = ""
    which: Annotated[
        Literal["all", "other", "changed"],
        Meta(description="other: those that are not the default; changed: by requests"),
    ] = "all"


class SettingShown(Answer, kw_only=True):
    """One setting of a running broker. What this console does not know of it is null."""

    name: str
    value: str
    default: str | None = None
    is_default: bool | None = None
    holds: Literal["live", "restart", "fixed"] | None = None
    """From when on a change holds: at once, from the next start, never."""
    description: str = ""
    before: str | None = None
    """What the broker was started with, where a request has changed it."""
    who: str = ""
    at_ms: int = 0


class Configure(Deed, kw_only=True):
    """What is to be set."""

    broker: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    value: str


async def show(asking: Asking, wanted: BrokerWanted) -> BrokerShown:
    """Figures of one broker."""
    asking.desk.collector.looked()
    await _check(asking, wanted.broker)
    found = await asking.desk.collector.runtime(wanted.broker)
    told = summary(found, SystemClock().now_ms())
    return BrokerShown(
        broker=wanted.broker,
        summary=[Told(title=title, value=value) for title, value in told],
        runtime=found,
    )


async def _check(asking: Asking, broker: str) -> None:
    names = await asking.desk.collector.broker_names()
    if broker not in names:
        raise Problem(404, "no_broker", f"there is no broker {broker!r}",
                      f"there are {', '.join(names) or 'none'}")  # fmt: skip


async def settings(asking: Asking, wanted: SettingsWanted) -> list[SettingShown]:
    """Settings of one broker, with what is known of each."""
    await _check(asking, wanted.broker)
    admin = await asking.desk.admin()
    facts = previews.facts_by_name()
    changes = {one.name: one for one in await admin.brokers.changes(wanted.broker)}
    found: list[SettingShown] = []
    for name, value in (await admin.brokers.config(wanted.broker)).items():
        shown = _known(name, value, facts.get(name))
        if name in changes:
            change = changes[name]
            shown.before, shown.who, shown.at_ms = change.before, change.who, change.at_ms
        part = wanted.part.lower()
        if part and part not in name.lower() and part not in shown.description.lower():
            continue
        if wanted.which == "other" and shown.is_default is not False:
            continue
        if wanted.which == "changed" and shown.before is None:
            continue
        found.append(shown)
    return sorted(found, key=lambda one: one.name)


def _known(name: str, value: str, fact: Setting | None) -> SettingShown:
    shown = SettingShown(name=name, value=value)
    if fact is not None:
        default = fact.default
        text = str(default).lower() if isinstance(default, bool) else str(default)
        shown.default, shown.holds, shown.description = text, fact.holds, fact.description
        shown.is_default = None if fact.is_secret else text == value
    return shown


async def configure(asking: Asking, wanted: Configure) -> Change:
    """Change a setting of a running broker."""
    await _check(asking, wanted.broker)
    admin = await asking.desk.admin()
    config = await admin.brokers.config(wanted.broker)
    if wanted.name not in config:
        raise Problem(404, "no_setting", f"{wanted.broker} has no setting {wanted.name!r}",
                      "GET .../settings lists all")  # fmt: skip
    fact = previews.facts_by_name().get(wanted.name)
    holds = f" It takes effect {previews.HOLDS[fact.holds]}." if fact is not None else ""
    change = {wanted.name: wanted.value}
    if wanted.dry_run:
        if fact is not None and fact.holds == "fixed":
            raise Problem(409, "fixed_setting", f"no request changes {wanted.name}",
                          "set it in the broker's file, and start it again")  # fmt: skip
        return Change.to_come(await previews.configure(admin, wanted.broker, change))
    await admin.brokers.configure(wanted.broker, change)
    said = f"{wanted.name} of {wanted.broker} is {wanted.value}.{holds}"
    return Change(is_dry_run=False, said=said, count=1)


_ONE: Final = "/brokers/{broker}"
OPERATIONS: Final = (
    Operation(name="brokers.show", method="GET", path=_ONE, wants=BrokerWanted,
              gives=BrokerShown, summary="What a broker tells of itself", handler=show),
    Operation(name="brokers.settings", method="GET", path=f"{_ONE}/settings",
              wants=SettingsWanted, gives=list[SettingShown],
              summary="Settings of a broker", handler=settings),
    Operation(name="brokers.configure", method="POST", path=f"{_ONE}/settings", wants=Configure,
              gives=Change, summary="Change the setting", handler=configure),
)  # fmt: skip
