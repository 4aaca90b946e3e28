"""The history of producers and consumers during fail-overs, one JSON object per line.

Each process writes its own file. Times are CLOCK_MONOTONIC in ns, which all processes of a machine
share: `begin_ns` before the request left, `end_ns` when its answer had arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec


class Asked(msgspec.Struct, tag="asked", tag_field="event", frozen=True):
    """A send was attempted: its message may be there, acknowledged or not."""

    key: str
    begin_ns: int = 0


class Sent(msgspec.Struct, tag="sent", tag_field="event", frozen=True):
    """A send was acknowledged. A half has a transaction, and its queue and offset mean nothing."""

    topic: str
    key: str
    """Unlike all others; it stands for the message's content."""
    queue: int
    offset: int
    id: str
    transaction: str = ""
    begin_ns: int = 0
    end_ns: int = 0


class Ended(msgspec.Struct, tag="ended", tag_field="event", frozen=True):
    """An END was acknowledged. With `end_ns` 0: the producer gives this answer to every check."""

    transaction: str
    outcome: Literal["commit", "rollback"]
    begin_ns: int = 0
    end_ns: int = 0


class Read(msgspec.Struct, tag="read", tag_field="event", frozen=True):
    """A message was read; with an empty key, the queue ended at that offset."""

    topic: str
    queue: int
    offset: int
    key: str
    position: int = -1
    """Of its record in the log."""
    begin_ns: int = 0
    end_ns: int = 0


Event = Asked | Sent | Ended | Read
_LINE = msgspec.json.Decoder(Event)


def decode(line: bytes) -> Event:
    """An event from its line."""
    event: Event = _LINE.decode(line)
    return event


def write(file: BinaryIO, event: Event) -> None:
    """Append a line. It is in the file when this returns, even if the process is killed."""
    file.write(msgspec.json.encode(event) + b"\n")
    file.flush()


def read(paths: Iterable[Path]) -> Iterator[Event]:
    """All events of these files. The last line of a killed process may be incomplete."""
    for path in paths:
        *lines, _ = path.read_bytes().split(b"\n")
        yield from map(_LINE.decode, lines)
