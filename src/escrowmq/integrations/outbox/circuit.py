"""Whether transactions hand their messages to the brokers, or keep them in the database: decided
once for a process, so that a broker that is unreachable holds up one transaction, and not each.

- Closed: transactions go to the broker. When it cannot be reached, the circuit opens.
- Open: they are kept. Once what was kept is handed over, the circuit drains.
- Draining: a transaction is kept if any kept message is left, so that it overtakes none, and goes
  to the broker otherwise. After a while without kept messages, the circuit is closed.

It begins with draining: an earlier process may have left something.
"""

from __future__ import annotations

import enum
from typing import Final

from escrowmq.errors import (
    BrokerBusy,
    BrokerFault,
    EscrowMQError,
    FlowControlled,
    FlushDiskTimedOut,
    FlushSlaveTimedOut,
    GoingAway,
    HalfNotSafe,
    RouteMissing,
    SendFailed,
    ServiceNotAvailable,
    SlaveNotAvailable,
    TooManyKept,
    TransportError,
)

KEPT_MAX_DEFAULT: Final = 100_000
"""Messages."""

FIRST_PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 5.0
"""Between two tries to hand over what is kept."""

DRAIN_PAUSE_S: Final = 0.2
DRAIN_PASSES: Final = 10
"""So many passes in a row find nothing before that is taken for the end of it."""

IDLE_PAUSE_S: Final = 30.0
"""Between two looks for what another process has kept and did not live to hand over."""

_UNREACHABLE: Final = (
    TransportError, RouteMissing, SendFailed, HalfNotSafe, BrokerBusy, BrokerFault, FlowControlled,
    ServiceNotAvailable, GoingAway, FlushDiskTimedOut, FlushSlaveTimedOut, SlaveNotAvailable,
)  # fmt: skip


def is_unreachable(error: BaseException) -> bool:
    """Whether a later try may succeed: no broker was reached, or none could store it now. A message
    that a broker refuses for good is not kept."""
    return isinstance(error, _UNREACHABLE)


class State(enum.Enum):
    """See above."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    DRAINING = enum.auto()


class Circuit:
    """Of one outbox."""

    def __init__(self, *, kept_max: int = KEPT_MAX_DEFAULT) -> None:
        self.state = State.DRAINING
        self._kept_max = kept_max
        self._count = 0
        self._pause_s = FIRST_PAUSE_S
        self._empty_passes_count = 0

    def fail(self) -> bool:
        """No broker could be reached; whether that is news."""
        is_news = self.state is not State.OPEN
        self.state = State.OPEN
        return is_news

    def keep(self, count: int) -> None:
        """So many messages are about to be kept. TooManyKept when there are too many then."""
        if self._count + count > self._kept_max:
            raise TooManyKept(
                f"{self._count} messages wait in the database for a broker, {self._kept_max} are "
                f"allowed (kept_max), and the transaction has {count} more: nothing was kept, so "
                "roll back; make a broker reachable, or allow more"
            )
        self._count += count
        self._empty_passes_count = 0

    def end_pass(self, *, handed_over: int, left: int, has_failed: bool) -> float:
        """Somebody has gone through what is kept, and so many messages are left; how many seconds
        until the next time."""
        self._count = left
        if has_failed:
            self.state = State.OPEN
            pause_s = self._pause_s
            self._pause_s = min(2 * pause_s, PAUSE_MAX_S)
            return pause_s
        self._pause_s = FIRST_PAUSE_S
        if left:
            self._empty_passes_count = 0
            return 0.0  # it came meanwhile
        return self._end_empty_pass(is_handed_over=handed_over > 0)

    def _end_empty_pass(self, *, is_handed_over: bool) -> float:
        if self.state is State.CLOSED:
            return IDLE_PAUSE_S
        self._empty_passes_count += 1
        is_long = self._empty_passes_count >= DRAIN_PASSES
        if self.state is State.OPEN:
            # What is kept may not be committed yet; it may also have been rolled back.
            if not (is_handed_over or is_long):
                return FIRST_PAUSE_S
            self._empty_passes_count = 0
            self.state = State.DRAINING
        elif is_long:
            self.state = State.CLOSED
            return IDLE_PAUSE_S
        return DRAIN_PAUSE_S


def log_text(error: EscrowMQError) -> str:
    """What the log says when the circuit opens."""
    return (
        f"no broker takes messages ({error}); from now on messages are kept in the database with "
        "their transactions, and handed over once a broker answers"
    )
