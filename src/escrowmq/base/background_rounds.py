"""Rounds of background work, isolated from each other: if one fails, the others continue, and it
pauses."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

REST_MS: Final = 1_000
"""The pause of a failed round, doubled with each consecutive failure."""

REST_MAX_MS: Final = 60_000

_log = logging.getLogger(__name__)


class _Round(msgspec.Struct):
    name: str
    wake: Callable[[int], object]
    wake_at_ms: Callable[[], int]
    rests_until_ms: int = 0
    rest_ms: int = REST_MS


class BackgroundRounds:
    """A core's periodic work, in order. A round that fails pauses; the others continue."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self._silent_until_ms: dict[str, int] = {}
        self.failures: Counter[str] = Counter()
        """How often each part has failed since the start."""
        self.first_error: Exception | None = None

    def add(self, name: str, wake: Callable[[int], object], wake_at_ms: Callable[[], int]) -> None:
        """Add a round at the end."""
        self._rounds.append(_Round(name, wake, wake_at_ms))

    def wake(self, now_ms: int) -> None:
        """Run all rounds that are due, except those that pause."""
        for each in self._rounds:
            if now_ms < each.rests_until_ms:
                continue
            try:
                each.wake(now_ms)
            except Exception as error:  # noqa: BLE001 - one round; logged, counted, tried again
                each.rests_until_ms = now_ms + each.rest_ms
                each.rest_ms = min(2 * each.rest_ms, REST_MAX_MS)
                self.count_failure(each.name, error, now_ms)
            else:
                each.rest_ms = REST_MS

    def wake_at_ms(self) -> int:
        """Return when `wake` must be called next."""
        return min(max(each.wake_at_ms(), each.rests_until_ms) for each in self._rounds)

    def run_guarded(self, name: str, step: Callable[[], object], now_ms: int) -> None:
        """Run one step of a longer task; log its failure, so that the task continues."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - one step; logged, counted
            self.count_failure(name, error, now_ms)

    def count_failure(self, name: str, error: Exception, now_ms: int) -> None:
        """Count a failure of a part. Log it, unless the same part has failed a moment before."""
        self.failures[name] += 1
        if self.first_error is None:
            self.first_error = error
        if now_ms >= self._silent_until_ms.get(name, 0):
            self._silent_until_ms[name] = now_ms + REST_MS
            _log.error("%s failed; everything else continues", name, exc_info=error)
