"""`escrowmq broker --settings`: every setting, its default and what it does."""

from __future__ import annotations

import typing

import msgspec

from escrowmq.base.settings import (
    BrokerSettings,
    NameServerGuardSettings,
    NameServerSettings,
    StoreSettings,
)
from escrowmq.cli.saying import say
from escrowmq.node.config import NodeSettings
from escrowmq.node.doors import DoorSettings

_READ_ELSEWHERE = ("is_sync_flush", "memory_size")


def show_settings() -> int:
    """Print one line a setting, grouped by who reads it."""
    for title, kind in (
        ("process", NodeSettings),
        ("ports", DoorSettings),
        ("broker", BrokerSettings),
        ("store", StoreSettings),
        ("name server", NameServerSettings),
        ("who may change what a name server knows", NameServerGuardSettings),
    ):
        say(f"# {title}")
        hints = typing.get_type_hints(kind, include_extras=True)
        for field in msgspec.structs.fields(kind):
            if field.name in _READ_ELSEWHERE:
                continue
            default = field.default
            text = str(default).lower() if isinstance(default, bool) else str(default)
            meta = next(
                (m for m in typing.get_args(hints[field.name])[1:] if isinstance(m, msgspec.Meta)),
                None,
            )
            about = f"    # {meta.description}" if meta is not None and meta.description else ""
            say(f"{field.encode_name}={text}{about}")
    return 0
