"""The files beside the log that a master's copies get, each at its place in the stream."""

from __future__ import annotations

from typing import Final

_OF_THE_LOG: Final = frozenset(
    {
        "config/consumerOffset.json",
        "config/delayOffset.json",
        "config/timercheck",
        "config/consumerOrderInfo.json",
        "config/transactionMetrics",
        "escrow/decisions",
    }
)
"""They say what was read or settled of the log: a copy may not have them before that part of it."""

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
COPIED: Final = _OF_THE_LOG | _CONFIG


def gone_key(topic: str) -> str:
    """The path under which the deletion of a topic is queued."""
    return f"{_GONE}{topic}"


_GONE: Final = "gone:"


class Pending:
    """The tables that one copy has not been sent yet: the newest content of each."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, bytes]] = {}

    def add(self, path: str, frame: bytes, log_end: int) -> None:
        """Add a table that has changed when the log ended there. A table that refers to the log is
        sent after it. Others keep the place of their first change: its answer waits for a later
        record."""
        place = log_end
        known = self._of.get(path)
        if known is not None and path not in _OF_THE_LOG and not path.startswith(_GONE):
            place = known[0]
        self._of[path] = (place, frame)

    def first(self) -> int | None:
        """The log offset before which the first table is due; None if there is none."""
        return min((place for place, _ in self._of.values()), default=None)

    def take(self, sent_end: int) -> list[bytes]:
        """The frames of tables that are due after the log up to an offset."""
        due = [path for path, (place, _) in self._of.items() if place <= sent_end]
        return [self._of.pop(path)[1] for path in due]
