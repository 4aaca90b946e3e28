"""The files beside the log that a master sends to its copies, each at its position in the
stream."""

from __future__ import annotations

from typing import Final

_LOG_DEPENDENT_TABLES: Final = frozenset(
    {
        "config/consumerOffset.json",
        "config/delayOffset.json",
        "config/timercheck",
        "config/consumerOrderInfo.json",
        "config/transactionMetrics",
        "escrow/decisions",
        "escrow/delayed",
    }
)
"""Tables that record what was read or settled in the log: a copy must not get them before that part
of the log."""

_CONFIG: Final = frozenset(
    {
        "config/topics.json",
        "config/subscriptionGroup.json",
        "config/messageRequestMode.json",
        "config/escrowMadeNames.json",
        "config/escrowKeys.json",
        "config/brokerChanges.json",
        "config/auth.json",
    }
)
COPIED: Final = _LOG_DEPENDENT_TABLES | _CONFIG
QUEUE_ENDS: Final = "escrow/queueEnds"
"""The name under which a new copy is told where queues end that have no record in the log any more:
a JSON object, by topic and queue id. There is no such file."""


def deletion_key(topic: str) -> str:
    """Return the path under which the deletion of a topic is queued."""
    return f"{_GONE}{topic}"


_GONE: Final = "gone:"


class PendingTables:
    """The tables that are still to be sent to one copy, each with its newest content."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, bytes]] = {}

    def add(self, path: str, frame: bytes, log_end: int) -> None:
        """Add a table that changed when the log ended at `log_end`. A table that refers to the log
        is sent after that offset. Any other keeps the position of its first unsent change, because
        a later record waits for it."""
        place = log_end
        known = self._of.get(path)
        if known is not None and path not in _LOG_DEPENDENT_TABLES and not path.startswith(_GONE):
            place = known[0]
        self._of[path] = (place, frame)

    def first_due_offset(self) -> int | None:
        """Return the lowest log offset after which a waiting table must be sent; None if none
        waits."""
        return min((place for place, _ in self._of.values()), default=None)

    def take_due(self, sent_end: int) -> list[bytes]:
        """Remove and return the frames of the tables that are due when the log is sent up to an
        offset."""
        due = [path for path, (place, _) in self._of.items() if place <= sent_end]
        return [self._of.pop(path)[1] for path in due]
