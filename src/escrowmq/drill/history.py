"""The history of producers and consumers during fail-overs, one JSON object per line.

Each process writes its own file. Times are CLOCK_MONOTONIC in ns, which all processes of a machine
share: `begin_ns` before the request left, `end_ns` when its answer had arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec


class SendAttempt(msgspec.Struct, tag="asked", tag_field="event", frozen=True):
    """The record of an attempt to send. Whether its message was stored or acknowledged is
    unknown."""

    key: str
    begin_ns: int = 0


class AcknowledgedSend(msgspec.Struct, tag="sent", tag_field="event", frozen=True):
    """The record of an acknowledged send. If it has a transaction it is a half, and its queue and
    offset mean nothing."""

    topic: str
    key: str
    """A text unique to the message; it stands for the content."""
    queue: int
    offset: int
    id: str
    transaction: str = ""
    begin_ns: int = 0
    end_ns: int = 0


class AcknowledgedEnd(msgspec.Struct, tag="ended", tag_field="event", frozen=True):
    """The record of an acknowledged END. If `end_ns` is 0, it is the producer's answer to every
    check."""

    transaction: str
    outcome: Literal["commit", "rollback"]
    begin_ns: int = 0
    end_ns: int = 0


class ReadMessage(msgspec.Struct, tag="read", tag_field="event", frozen=True):
    """The record of a message that was read. With an empty key, it records the end of a queue."""

    topic: str
    queue: int
    offset: int
    key: str
    position: int = -1
    """The position of the message's record in the log."""
    begin_ns: int = 0
    end_ns: int = 0


Event = SendAttempt | AcknowledgedSend | AcknowledgedEnd | ReadMessage
_LINE = msgspec.json.Decoder(Event)


def decode_event(line: bytes) -> Event:
    """Decode an event from its line."""
    event: Event = _LINE.decode(line)
    return event


def append_event(file: BinaryIO, event: Event) -> None:
    """Append an event as a line. It is in the file when this returns, even if the process is killed
    afterwards."""
    file.write(msgspec.json.encode(event) + b"\n")
    file.flush()


def read_events(paths: Iterable[Path]) -> Iterator[Event]:
    """Read all events of these files. The last line of a killed process may be incomplete."""
    for path in paths:
        *lines, _ = path.read_bytes().split(b"\n")
        yield from map(_LINE.decode, lines)
