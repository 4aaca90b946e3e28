"""Whether transactions hand their messages to the brokers, or keep them in the database: decided
once for a process, so that a broker that is unreachable holds up one transaction, and not each.

The circuit is closed as long as brokers take messages. The first transaction that finds them
unreachable opens it, and from then on all are kept, in order. Whoever hands kept messages over
closes it when none is left.
"""

from __future__ import annotations

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
    TransactionError,
    TransportError,
)

KEPT_MAX_DEFAULT: Final = 100_000
"""Messages."""

FIRST_PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 5.0
"""Between two tries to hand over what is kept."""

IDLE_PAUSE_S: Final = 30.0
"""Between two looks for what another process has kept and did not live to hand over."""

_UNREACHABLE: Final = (
    TransportError, RouteMissing, SendFailed, HalfNotSafe, BrokerBusy, BrokerFault, FlowControlled,
    ServiceNotAvailable, GoingAway, FlushDiskTimedOut, FlushSlaveTimedOut, SlaveNotAvailable,
)  # fmt: skip


class TooManyKept(TransactionError):
    """As many messages wait in the database for a broker as it may have."""


def is_unreachable(error: BaseException) -> bool:
    """Whether a later try may succeed: no broker was reached, or none could store it now. A message
    that a broker refuses for good is not kept."""
    return isinstance(error, _UNREACHABLE)


class Circuit:
    """Of one outbox."""

    def __init__(self, *, kept_max: int = KEPT_MAX_DEFAULT) -> None:
        self.is_open = False
        self._kept_max = kept_max
        self._count = 0
        self._keeps_count = 0
        self._pause_s = FIRST_PAUSE_S

    def fail(self) -> bool:
        """A broker could not be reached; whether that is news."""
        is_news = not self.is_open
        self.is_open = True
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
        self._keeps_count += 1

    def begin_pass(self) -> int:
        """Somebody goes through what is kept; to be given to the end of the pass."""
        return self._keeps_count

    def end_pass(self, begun: int, *, left: int, has_failed: bool) -> float:
        """The pass is over, and so many messages are left; how many seconds until the next one."""
        self._count = left
        if has_failed:
            pause_s = self._pause_s
            self._pause_s = min(2 * pause_s, PAUSE_MAX_S)
            return pause_s
        self._pause_s = FIRST_PAUSE_S
        if left or begun != self._keeps_count:
            return 0.0  # what came meanwhile
        self.is_open = False
        return IDLE_PAUSE_S


def log_text(error: EscrowMQError) -> str:
    """What the log says when the circuit opens."""
    return (
        f"no broker takes messages ({error}); from now on messages are kept in the database with "
        "their transactions, and handed over once a broker answers"
    )
