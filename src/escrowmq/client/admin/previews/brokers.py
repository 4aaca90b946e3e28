"""Previews of changed settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.setting_facts import Setting, settings_of
from escrowmq.base.store_settings import StoreSettings
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.previews.preview import Preview, PreviewRow, format_value
from escrowmq.errors import UsageError

HOLDS: Final = {"live": "at once", "restart": "from the next start", "fixed": "never"}


async def configure(admin: Admin, broker: str, settings: Mapping[str, object]) -> Preview:
    """Preview `admin.brokers.configure`. Raises UsageError if the broker does not have a
    setting, or if requests cannot change it."""
    config = await admin.brokers.config(broker)
    facts = settings_by_name()
    rows = []
    when: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in settings.items():
        if name not in config:
            raise UsageError(
                f"{broker} has no setting {name!r}; `escrowmq broker config --name {broker}` lists "
                "all"
            )
        fact = facts.get(name)
        if fact is not None and fact.holds == "fixed":
            raise UsageError(
                f"requests cannot change {name}; set it in the broker's file, and restart "
                "the broker"
            )
        if fact is not None:
            when[fact.holds].append(name)
        rows.append(PreviewRow(what=name, before=config[name], after=format_value(value)))
    count = len(rows)
    said = f"{count} setting{'s' if count != 1 else ''} of {broker} would be changed"
    parts = [f"{', '.join(names)} {HOLDS[holds]}" for holds, names in sorted(when.items())]
    return Preview(
        said=f"{said}; in effect: {'; '.join(parts)}." if parts else f"{said}.",
        count=count,
        rows=rows,
    )


def settings_by_name() -> dict[str, Setting]:
    """Return the description of each setting of our brokers, by name."""
    return {
        one.name: one for table in (BrokerSettings, StoreSettings) for one in settings_of(table)
    }
