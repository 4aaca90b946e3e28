"""DataVersion: RocketMQ compares it to see whether a table has changed."""

from __future__ import annotations

import msgspec


class DataVersion(msgspec.Struct, rename="camel"):
    """The version of a table: a time and a counter. The fields are in RocketMQ's order."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def advance(self, now_ms: int) -> None:
        """Advance the version, because the table has changed."""
        self.counter += 1
        self.timestamp = now_ms
