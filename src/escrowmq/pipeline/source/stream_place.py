"""A stream's position, as Spark stores it in the checkpoint.

{"v": 1, "q": {"topic": {"broker": {"0": 17}}}, "from": {"topic": {...}}, "born": {"topic": {...}},
 "gone": {"topic": {"broker": {"0": 17}}}}

`q` has the offset in each queue. `from` has the start of the query, and is in the end of its first
batch: Spark stores the ends of batches but not their starts, and asks for the start again after a
crash before the first commit, when "latest" would be elsewhere. The answer then has `initial`,
which distinguishes the first batch from the others.

`born` has [first offset, its store time] of each queue that was read (queues.py). `gone` names
queues that are in `q` and not in their topic now; the topic may regain them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.ranges import Positions

VERSION: Final = 1
T = TypeVar("T")
Offset = dict[str, Any]
"""An offset as Spark passes it: JSON."""


QueueIdentities = dict[MessageQueue, tuple[int, int]]
"""The first offset of a queue, and the store time in ms of that message."""


class StreamPosition(msgspec.Struct, frozen=True):
    """The position in each queue, and the query's start if this ends its first batch."""

    at: Positions
    began: Positions | None = None
    is_initial: bool = False
    """Whether the position is the start of the query, not the end of a batch."""
    births: QueueIdentities = {}
    gone: frozenset[MessageQueue] = frozenset()


def encode_position(place: StreamPosition) -> Offset:
    """Encode a position as JSON; equal positions make equal JSON, member by member."""
    found: Offset = {"v": VERSION, "q": _table(place.at)}
    if place.began is not None:
        found["from"] = _table(place.began)
    if place.is_initial:
        found["initial"] = True
    if place.births:
        found["born"] = _table({queue: list(born) for queue, born in place.births.items()})
    if place.gone:
        found["gone"] = _table({queue: place.at[queue] for queue in place.gone})
    return found


class _PositionJson(msgspec.Struct):
    """The fields of the JSON."""

    q: dict[str, dict[str, dict[int, int]]]
    began: dict[str, dict[str, dict[int, int]]] | None = msgspec.field(name="from", default=None)
    initial: bool = False
    born: dict[str, dict[str, dict[int, tuple[int, int]]]] = {}
    gone: dict[str, dict[str, dict[int, int]]] = {}


def decode_position(offset: object) -> StreamPosition:
    """Decode a position from a checkpoint; raises UsageError if it was not written by this source,
    or is damaged."""
    version = offset.get("v") if isinstance(offset, dict) else offset
    if version != VERSION:
        raise UsageError(
            f"the checkpoint has an offset of version {version!r}, and this release reads "
            f"{VERSION}; use the release that wrote it, or another checkpoint"
        )
    try:
        found = msgspec.convert(offset, _PositionJson, str_keys=True)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the checkpoint has a damaged offset: {error}; restore the folder `offsets` of "
            "the checkpoint from a copy, or begin with another checkpoint"
        ) from error
    return StreamPosition(
        _positions(found.q),
        None if found.began is None else _positions(found.began),
        found.initial,
        _positions(found.born),
        frozenset(_positions(found.gone)),
    )


def _table(positions: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    found: dict[str, dict[str, dict[str, T]]] = {}
    for queue in sorted(positions):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return found


def _positions(table: dict[str, dict[str, dict[int, T]]]) -> dict[MessageQueue, T]:
    return {
        MessageQueue(topic, broker, queue): queue_offset
        for topic, brokers in table.items()
        for broker, queues in brokers.items()
        for queue, queue_offset in queues.items()
    }
