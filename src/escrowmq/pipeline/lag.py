"""A streaming query's lag, from its progress reports."""

from __future__ import annotations

import json
from typing import Any

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.source.stream_place import StreamPosition, decode_position


def lag(progress: Any) -> int:  # noqa: ANN401 - a report as an object, or as a dict
    """Return the number of messages that a query had not read when a batch ended, in all queues of
    all its topics.

    >>> lag(query.lastProgress)
    0

    `progress` is `query.lastProgress`, one of `query.recentProgress`, or a listener's
    `event.progress`. Raises UsageError if it has no topic, or was made by PySpark 4.1, whose
    reports do not contain the ends of topics."""
    return sum(lag_by_queue(progress).values())


def lag_by_queue(progress: Any) -> dict[MessageQueue, int]:  # noqa: ANN401
    """Return the lag by queue."""
    found: dict[MessageQueue, int] = {}
    is_ours = False
    for source in _json_field(progress, "sources") or ():
        end, latest = (
            _decode_source_place(_json_field(source, "endOffset")),
            _decode_source_place(_json_field(source, "latestOffset")),
        )
        if end is None:
            continue
        if latest is None:
            raise UsageError(
                "this progress report does not contain the ends of the topics; PySpark 4.2 "
                "and later report it (latestOffset)"
            )
        is_ours = True
        for queue, until in latest.at.items():
            found[queue] = found.get(queue, 0) + max(0, until - end.at.get(queue, 0))
    if not is_ours:
        raise UsageError(
            "this progress report has no source of EscrowMQ; give that of a query that reads topics"
        )
    return found


def _json_field(of: Any, name: str) -> Any:  # noqa: ANN401
    return of.get(name) if isinstance(of, dict) else getattr(of, name, None)


def _decode_source_place(offset: Any) -> StreamPosition | None:  # noqa: ANN401 - JSON, read or not
    """Return the position if the offset is one of our source; None if it is another source's, or
    missing."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
        return decode_position(found)
    except (ValueError, UsageError):
        return None
