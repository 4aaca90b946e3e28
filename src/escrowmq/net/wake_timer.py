"""Wakes a core when its next deadline comes, and measures the length of the loop's turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from escrowmq.base.ports import Clock
from escrowmq.net.clock import thread_cpu_s
from escrowmq.net.input_polling import InputPolling
from escrowmq.net.loop_turns import turn_lengths

_log = logging.getLogger(__name__)

_ARM_S: Final = 0.010
"""The time after an input until the core is asked for its next deadline; inputs in this time share
the question. It takes 80 us with cold caches. When it was asked every 2 ms, that was a tenth of the
cost of one producer's messages."""

_AGAIN_S: Final = 0.002
"""The time after waking the core until it is asked for its next deadline, because it may have done
only part of its work."""

_LATE_MS: Final = 28
"""An input that is processed this long after the first of its round is assumed to have waited."""

_UNKNOWN_MS: Final = 1_000
"""The time until a core is woken that failed to name its next deadline."""


class WakeTimer:
    """The timer of one core: calls `wake` by the time that `wake_at_ms` returns."""

    def __init__(
        self,
        clock: Clock,
        spin: InputPolling,
        *,
        name: str,
        wake: Callable[[], None],
        wake_at_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._spin = spin
        self._name = name
        self._wake = wake
        self._wake_at_ms = wake_at_ms
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self.query_timer: asyncio.TimerHandle | None = None
        """The timer after which the core is asked for its deadline; None if `input_done` must set
        it."""
        self._armed_ms, self._armed_s = 0, 0.0
        self._begun_s = 0.0
        self._is_stopped = self._is_firing = False
        self.turns = turn_lengths()

    def begin_input(self, now_ms: int) -> int:
        """Prepare for processing an input. Return the ms for which it is known to have waited: if
        the timer that the first input of a round has set is late, the loop was busy since then with
        inputs that were ready."""
        if self.query_timer is None:
            self._begun_s = self._cpu_s()
        elif now_ms - self._armed_ms > _LATE_MS:
            return int((self._cpu_s() - self._armed_s) * 1000)
        return 0

    def input_done(self) -> None:
        """Note that an input was processed: the core may have a new deadline, and is asked for it
        soon."""
        if self.query_timer is None and not self._is_stopped:
            self._armed_ms, self._armed_s = self._clock.now_ms(), self._cpu_s()
            self._begun_s = self._begun_s or self._armed_s
            wait_s = _AGAIN_S if self._is_firing else _ARM_S
            self.query_timer = self._loop.call_later(wait_s, self._set_timer)

    def _cpu_s(self) -> float:
        """CPU time used, without that of polling."""
        return thread_cpu_s() - self._spin.polled_s

    def stop(self) -> None:
        """Stop waking the core."""
        self._is_stopped = True
        for timer in (self._timer, self.query_timer):
            if timer is not None:
                timer.cancel()

    def _set_timer(self) -> None:
        self.query_timer = None
        self.turns.record(self._cpu_s() - self._begun_s)
        self._begun_s = 0.0
        try:
            at_ms = self._wake_at_ms()
        except Exception:  # noqa: BLE001 - without a timer nothing would ever be due again
            _log.exception("%s: the core did not say when to wake it", self._name)
            at_ms = self._clock.now_ms() + _UNKNOWN_MS
        if at_ms == self._timer_at_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_s = max(0.0, (at_ms - self._clock.now_ms()) / 1000)
        self._timer = self._loop.call_later(delay_s, self._wake_core)

    def _wake_core(self) -> None:
        self._timer = None
        if not self._is_stopped:
            self.begin_input(self._clock.now_ms())
            self._is_firing = True
            try:
                self._wake()
            finally:
                self._is_firing = False
