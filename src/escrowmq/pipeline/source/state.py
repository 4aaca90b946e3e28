"""A stream's place, as Spark keeps it in the checkpoint.

{"v": 1, "q": {"topic": {"broker": {"0": 17}}}, "from": {"topic": {...}}}

`q` says where each queue is. `from` says where the query began, and stands in the end of its first
batch: Spark stores the ends of batches and no beginnings, and asks for the beginning again after a
crash before the first commit, when "latest" is somewhere else already. What it is told then has
`initial`, so that the first batch is known from the others.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.ranges import Positions

VERSION: Final = 1
Offset = dict[str, Any]
"""An offset as Spark passes it: JSON."""


class StreamPlace(msgspec.Struct, frozen=True):
    """Where each queue is, and where the query began if this ends its first batch."""

    at: Positions
    began: Positions | None = None
    is_initial: bool = False
    """It is no end of a batch."""


def encode_place(place: StreamPlace) -> Offset:
    """The JSON; equal places make equal JSON, member by member."""
    found: Offset = {"v": VERSION, "q": _table(place.at)}
    if place.began is not None:
        found["from"] = _table(place.began)
    if place.is_initial:
        found["initial"] = True
    return found


def decode_place(offset: Offset) -> StreamPlace:
    """The place in a checkpoint; UsageError when it was not this source that wrote it."""
    version = offset.get("v")
    if version != VERSION:
        raise UsageError(
            f"the checkpoint has an offset of version {version!r}, and this release reads "
            f"{VERSION}; use the release that wrote it, or another checkpoint"
        )
    began = offset.get("from")
    return StreamPlace(
        _positions(offset["q"]),
        None if began is None else _positions(began),
        bool(offset.get("initial")),
    )


def _table(positions: Positions) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(positions):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return found


def _positions(table: dict[str, dict[str, dict[str, int]]]) -> Positions:
    return {
        MessageQueue(topic, broker, int(queue)): queue_offset
        for topic, brokers in table.items()
        for broker, queues in brokers.items()
        for queue, queue_offset in queues.items()
    }
