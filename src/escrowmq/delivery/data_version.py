"""DataVersion: by it RocketMQ sees whether a table has changed."""

from __future__ import annotations

import msgspec


class DataVersion(msgspec.Struct, rename="camel"):
    """Members in RocketMQ's order."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def advance(self, now_ms: int) -> None:
        """The table has changed."""
        self.counter += 1
        self.timestamp = now_ms
