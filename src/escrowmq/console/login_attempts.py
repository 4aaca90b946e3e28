"""Limits failed logins, for each address and for all together. The counts are in memory: a restart
forgets them."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final

from escrowmq.console.problems import Problem

FAILURES_MAX: Final = 10
"""The most failed logins from one address within `FAILURE_SPAN_S`."""

FAILURES_ALL_MAX: Final = 200
"""The most failed logins from all addresses together within `FAILURE_SPAN_S`."""

FAILURE_SPAN_S: Final = 300.0
ADDRESSES_MAX: Final = 10_000


class LoginAttempts:
    """Failed logins, counted by address; after too many, attempts are refused for a while.

    An attempt counts from its begin, before its password is verified. Otherwise simultaneous
    guesses would all pass the limit."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque(maxlen=FAILURES_ALL_MAX)
        self._under_way: Counter[str] = Counter()

    def begin_attempt(self, address: str) -> None:
        """Count an attempt, until `attempt_failed`, `attempt_succeeded` or `withdraw_attempt` is
        called. Raises Problem if this address, or all addresses together, have failed too often;
        attempts in progress count as failed."""
        now_s = self._now_s()
        since_s = now_s - FAILURE_SPAN_S
        mine = [at_s for at_s in self._failures.get(address, ()) if at_s > since_s]
        everybodys = [at_s for at_s in self._all if at_s > since_s]
        under_way = self._under_way
        for failures, pending, count_max in (
            (mine, under_way[address], FAILURES_MAX),
            (everybodys, under_way.total(), FAILURES_ALL_MAX),
        ):
            if len(failures) + pending < count_max:
                continue
            is_full = len(failures) >= count_max
            wait_s = int(failures[0] + FAILURE_SPAN_S - now_s) + 1 if is_full else 1
            what = "failed logins" if is_full else "logins at the same time"
            raise Problem(
                429, "too_many_attempts", f"too many {what}; try again in {wait_s} s",
                f"{FAILURES_MAX} failures in {FAILURE_SPAN_S:.0f} s are allowed",
            )  # fmt: skip
        under_way[address] += 1

    def attempt_failed(self, address: str) -> None:
        """Count a failed attempt."""
        self.withdraw_attempt(address)
        now_s = self._now_s()
        while len(self._failures) >= ADDRESSES_MAX and address not in self._failures:
            self._failures.popitem(last=False)
        self._failures.setdefault(address, deque(maxlen=FAILURES_MAX)).append(now_s)
        self._failures.move_to_end(address)
        self._all.append(now_s)

    def attempt_succeeded(self, address: str) -> None:
        """Forget the failures of an address from which an attempt succeeded."""
        self.withdraw_attempt(address)
        self._failures.pop(address, None)

    def withdraw_attempt(self, address: str) -> None:
        """Stop counting an attempt, because its password could not be verified."""
        self._under_way[address] -= 1
        if not self._under_way[address]:
            del self._under_way[address]
