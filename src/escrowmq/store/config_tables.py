"""Reads the tables under `config/`: topics.json, consumerOffset.json and so on.

They are read tolerantly (RocketMQ writes integer keys without quotes). Every writer keeps the
previous version beside the new one (`base.ports.former_path`). It is used when the file is absent,
empty or torn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.ports import Disk, former_path
from escrowmq.errors import CorruptRecord, RemoteProtocolError

_PARSE_ERRORS: Final = (
    RemoteProtocolError,
    msgspec.MsgspecError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    struct.error,
)
"""The exceptions by which a parser shows that a file is torn or invalid."""


TableParser = Callable[[bytes | None], None]

_ABSENT: Final = "is not there"
_BLANK: Final = b" \t\r\n\0"
"""Matches a file that lost its data in a power failure; such content is not JSON."""


def load_table(disk: Disk, path: str, take: TableParser) -> str:
    """Pass the content of a table to its parser: the newest readable version, or None when there is
    no file.

    Return a warning to log, else an empty text. Raises CorruptRecord when files exist but none can
    be read.
    """
    problem = _parse_problem(path, disk.read(path), take)
    if not problem:
        return ""
    former = former_path(path)
    data = disk.read(former)
    behind = _parse_problem(path, data, take)
    if not behind:
        return f"{path} {problem}: read from {former}, which may be a little older"
    if data is None and problem == _ABSENT:
        take(None)
        return ""
    raise CorruptRecord(
        f"{path} {problem}, and {former} {behind}: restore one from a copy, or remove both and "
        f"lose their content"
    )


def _parse_problem(path: str, data: bytes | None, take: TableParser) -> str:
    """Pass data to a parser. Return what is wrong with it; empty if it was accepted."""
    if data is None:
        return _ABSENT
    if path.endswith(".json") and not data.strip(_BLANK):
        return "is empty"
    try:
        take(data)
    except _PARSE_ERRORS as error:
        return f"cannot be read ({type(error).__name__}: {error})"
    return ""
