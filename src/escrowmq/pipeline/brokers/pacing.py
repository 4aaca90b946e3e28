"""Limits the rate of sending."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.errors import UsageError
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.cluster import pause


class RateLimiter:
    """Lets a number of messages per second pass, evenly; 0 is no limit."""

    def __init__(
        self,
        per_s: float,
        *,
        now_ms: Callable[[], int] | None = None,
        rest_ms: Callable[[int], None] = pause,
    ) -> None:
        if per_s < 0:
            raise UsageError(f"a rate of {per_s} a second; 0 (no limit) or more is expected")
        self._step_ms = 1000 / per_s if per_s else 0.0
        self._now_ms = now_ms or SystemClock().now_ms
        self._rest_ms = rest_ms
        self._next_ms = 0.0

    def wait(self) -> None:
        """Wait until the next message may be sent."""
        if not self._step_ms:
            return
        now_ms = self._now_ms()
        if self._next_ms > now_ms:
            self._rest_ms(round(self._next_ms - now_ms))
        self._next_ms = max(self._next_ms, now_ms) + self._step_ms
