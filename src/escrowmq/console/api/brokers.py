"""Brokers: their metrics and their settings, with who changed a setting and when a change takes
effect."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.base.setting_facts import Setting
from escrowmq.client.admin.broker_summary import summarize_metrics
from escrowmq.client.admin.previews import brokers as previews
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.console.problems import Problem
from escrowmq.net.clock import SystemClock


class BrokerWanted(msgspec.Struct, kw_only=True):
    """Names the broker to show."""

    broker: Annotated[str, Meta(min_length=1)]


class BrokerFigure(Answer, kw_only=True):
    """One metric of a broker, formatted for people."""

    title: str
    value: str


class BrokerShown(Answer, kw_only=True):
    """The metrics of a broker."""

    broker: str
    summary: list[BrokerFigure]
    runtime: dict[str, str]
    """All metrics that the broker reports, under RocketMQ's names."""


class SettingsWanted(msgspec.Struct, kw_only=True):
    """The broker whose settings to list."""

    broker: Annotated[str, Meta(min_length=1)]
    part: Annotated[str, Meta(description="part of the name, or of the description")] = ""
    which: Annotated[
        Literal["all", "other", "changed"],
        Meta(
            description="other: settings that differ from their defaults; changed: settings "
            "changed by requests"
        ),
    ] = "all"


class SettingShown(Answer, kw_only=True):
    """One setting of a running broker. Fields are null if the console does not know the setting."""

    name: str
    value: str
    default: str | None = None
    is_default: bool | None = None
    holds: Literal["live", "restart", "fixed"] | None = None
    """When a change takes effect: immediately, at the next start, or never."""
    description: str = ""
    before: str | None = None
    """The value that the broker was started with, if a request has changed it."""
    who: str = ""
    at_ms: int = 0


class Configure(ChangeParameters, kw_only=True):
    """A setting of a broker, and its new value."""

    broker: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    value: str


async def show_broker(caller: Caller, wanted: BrokerWanted) -> BrokerShown:
    """Show the metrics of one broker."""
    caller.account_client.collector.note_viewer()
    await _require_broker(caller, wanted.broker)
    found = await caller.account_client.collector.broker_runtime(wanted.broker)
    summary = summarize_metrics(found, SystemClock().now_ms())
    return BrokerShown(
        broker=wanted.broker,
        summary=[BrokerFigure(title=title, value=value) for title, value in summary],
        runtime=found,
    )


async def _require_broker(caller: Caller, broker: str) -> None:
    names = await caller.account_client.collector.broker_names()
    if broker not in names:
        raise Problem(404, "no_broker", f"there is no broker {broker!r}",
                      f"there are {', '.join(names) or 'none'}")  # fmt: skip


async def list_settings(caller: Caller, wanted: SettingsWanted) -> list[SettingShown]:
    """List the settings of one broker, each with its default and when a change takes effect."""
    await _require_broker(caller, wanted.broker)
    admin = await caller.account_client.open_admin()
    facts = previews.settings_by_name()
    changes = {one.name: one for one in await admin.brokers.changes(wanted.broker)}
    found: list[SettingShown] = []
    for name, value in (await admin.brokers.config(wanted.broker)).items():
        shown = _shown_setting(name, value, facts.get(name))
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


def _shown_setting(name: str, value: str, fact: Setting | None) -> SettingShown:
    shown = SettingShown(name=name, value=value)
    if fact is not None:
        default = fact.default
        text = str(default).lower() if isinstance(default, bool) else str(default)
        shown.default, shown.holds, shown.description = text, fact.holds, fact.description
        shown.is_default = None if fact.is_secret else text == value
    return shown


async def change_setting(caller: Caller, wanted: Configure) -> Change:
    """Change a setting of a running broker."""
    await _require_broker(caller, wanted.broker)
    admin = await caller.account_client.open_admin()
    config = await admin.brokers.config(wanted.broker)
    if wanted.name not in config:
        raise Problem(404, "no_setting", f"{wanted.broker} has no setting {wanted.name!r}",
                      "GET .../settings lists all")  # fmt: skip
    fact = previews.settings_by_name().get(wanted.name)
    holds = f" It takes effect {previews.HOLDS[fact.holds]}." if fact is not None else ""
    change = {wanted.name: wanted.value}
    if wanted.dry_run:
        if fact is not None and fact.holds == "fixed":
            raise Problem(409, "fixed_setting", f"requests cannot change {wanted.name}",
                          "set it in the broker's file, and restart the broker")  # fmt: skip
        return Change.dry_run_answer(await previews.configure(admin, wanted.broker, change))
    await admin.brokers.configure(wanted.broker, change)
    said = f"{wanted.name} of {wanted.broker} is {wanted.value}.{holds}"
    return Change(is_dry_run=False, said=said, count=1)


_ONE: Final = "/brokers/{broker}"
OPERATIONS: Final = (
    Operation(name="brokers.show", method="GET", path=_ONE, wants=BrokerWanted,
              gives=BrokerShown, summary="What a broker tells of itself", handler=show_broker),
    Operation(name="brokers.settings", method="GET", path=f"{_ONE}/settings",
              wants=SettingsWanted, gives=list[SettingShown],
              summary="Settings of a broker", handler=list_settings),
    Operation(name="brokers.configure", method="POST", path=f"{_ONE}/settings", wants=Configure,
              gives=Change, summary="Change the setting", handler=change_setting),
)  # fmt: skip
