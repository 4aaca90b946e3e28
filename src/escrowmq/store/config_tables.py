"""The tables under `config/`: topics.json, consumerOffset.json and the like.

Read tolerantly (RocketMQ writes integer keys without quotes). Whoever writes one keeps its former
content beside it (`base.ports.former_path`), which stands in for one that is absent, empty or torn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.ports import Disk, former_path
from escrowmq.errors import CorruptRecord, RemoteProtocolError

_MISREAD: Final = (
    RemoteProtocolError,
    msgspec.MsgspecError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    struct.error,
)
"""What is raised by a reader that finds other values in a file than were ever written to it."""


Take = Callable[[bytes | None], None]

_ABSENT: Final = "is not there"
_BLANK: Final = b" \t\r\n\0"
"""What a file holds that lost its content with the power; there is no JSON of it."""


def take_table(disk: Disk, path: str, take: Take) -> str:
    """Hand a table's content to whoever takes it over, or its former content when it is absent,
    empty or unreadable; None when there is neither. What there is to say about it, else empty.

    CorruptRecord when something is there, but nothing that can be read."""
    problem = _try(path, disk.read(path), take)
    if not problem:
        return ""
    former = former_path(path)
    data = disk.read(former)
    behind = _try(path, data, take)
    if not behind:
        return f"{path} {problem}: taken from {former}, which may be a little older"
    if data is None and problem == _ABSENT:
        take(None)
        return ""
    raise CorruptRecord(
        f"{path} {problem}, and {former} {behind}: put a copy of it back, or take both away and "
        "lose what they say"
    )


def _try(path: str, data: bytes | None, take: Take) -> str:
    """Empty when the data was taken, else what is wrong with it."""
    if data is None:
        return _ABSENT
    if path.endswith(".json") and not data.strip(_BLANK):
        return "is empty"
    try:
        take(data)
    except _MISREAD as error:
        return f"cannot be read ({type(error).__name__}: {error})"
    return ""
