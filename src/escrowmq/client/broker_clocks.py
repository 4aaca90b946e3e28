"""Measures how far brokers' clocks differ from this machine's.

If the clocks differ, a message may be old by this machine's clock and young by its broker's. Jobs
that act only on messages above a certain age use this to correct the ages."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

TOLERATED_MS: Final = 10_000
"""Differences below this are ignored: brokers report their time in seconds, and the ages that jobs
wait for are much longer."""

_SPAN: Final = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")


def broker_now_ms(runtime: Mapping[str, str]) -> int | None:
    """Return a broker's time, computed from its reported start time and uptime; None if it reports
    neither. RocketMQ's brokers report the same values (StoreStatsService)."""
    began, span = runtime.get("bootTimestamp", ""), _SPAN.fullmatch(runtime.get("runtime", ""))
    if not began.isdecimal() or span is None:
        return None
    days, hours, minutes, seconds = map(int, span.groups())
    return int(began) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000


class BrokerClocks:
    """The clocks of brokers, for one run of a job; each broker is asked once. `ask` returns a
    broker's metrics (`admin.brokers.runtime`)."""

    def __init__(self, ask: Callable[[str], Mapping[str, str]], now_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._ahead_ms: dict[str, int] = {}

    def ahead_ms(self, broker: str) -> int:
        """Return how far a broker's clock is ahead of ours; 0 if the difference is tolerated or the
        broker does not report its time."""
        if broker not in self._ahead_ms:
            self._ahead_ms[broker] = self._measure_ahead_ms(broker)
        return self._ahead_ms[broker]

    def _measure_ahead_ms(self, broker: str) -> int:
        try:
            told_ms = broker_now_ms(self._ask(broker))
        except EscrowMQError as error:
            _log.warning("the clock of broker %s is assumed to be right: %s", broker, error)
            return 0
        ahead_ms = 0 if told_ms is None else told_ms - self._now_ms()
        if abs(ahead_ms) <= TOLERATED_MS:
            return 0
        _log.warning(
            "the clock of broker %s is %d s %s; its times are corrected by that",
            broker, abs(ahead_ms) // 1_000, "ahead" if ahead_ms > 0 else "behind",
        )  # fmt: skip
        return ahead_ms
