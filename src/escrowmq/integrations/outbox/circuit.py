"""Decides for a process whether transactions send their messages to brokers, or keep them in the
database, so that an unreachable broker delays one transaction, and not each.

- Closed: transactions go to the broker. When it cannot be reached, the circuit opens.
- Open: messages are kept. Once the kept messages are sent, the circuit drains.
- Draining: a transaction's messages are kept if any kept message is left, so that they overtake
  none, and sent otherwise. After a while without kept messages, the circuit is closed. A kept
  message that no broker accepts holds up the topics that wait behind it, and no others.

It starts draining, because an earlier process may have left messages."""

from __future__ import annotations

import enum
from collections.abc import Collection
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
    InvalidMessage,
    ManyMessagesUnsupported,
    ResponseError,
    RouteMissing,
    SendFailed,
    ServiceNotAvailable,
    SlaveNotAvailable,
    TooManyKept,
    TransportError,
)

KEPT_MAX_DEFAULT: Final = 100_000
"""The default limit of kept messages."""

FIRST_PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 5.0
"""Limit in seconds of the pause between two attempts to send kept messages."""

DRAIN_PAUSE_S: Final = 0.2
DRAIN_PASSES: Final = 10
"""The circuit is closed after this many consecutive passes without kept messages."""

IDLE_PAUSE_S: Final = 30.0
"""Pause in seconds between two searches for messages that another process kept, and did not send
before it died."""

_UNREACHABLE: Final = (
    TransportError, RouteMissing, SendFailed, HalfNotSafe, BrokerBusy, BrokerFault, FlowControlled,
    ServiceNotAvailable, GoingAway, FlushDiskTimedOut, FlushSlaveTimedOut, SlaveNotAvailable,
)  # fmt: skip


def is_unreachable(error: BaseException) -> bool:
    """Whether a later attempt may succeed: no broker was reached, or none could store the message
    now. False if a broker refuses the message permanently."""
    return isinstance(error, _UNREACHABLE)


def is_refusal(error: BaseException) -> bool:
    """Whether an error is a broker's refusal of the message itself, which would be repeated."""
    is_answer = isinstance(error, InvalidMessage | ManyMessagesUnsupported | ResponseError)
    return is_answer and not is_unreachable(error)


class CircuitState(enum.Enum):
    """The state of a circuit, as described in the module."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    DRAINING = enum.auto()


class Circuit:
    """The circuit breaker of one outbox."""

    def __init__(self, *, kept_max: int = KEPT_MAX_DEFAULT) -> None:
        self.state = CircuitState.DRAINING
        self._kept_max = kept_max
        self._count = 0
        self._lately_kept = (0, 0)
        """Numbers of messages kept: since the last pass ended, and between the end of the pass
        before and that."""
        self._is_lately_kept = (False, False)
        """Whether messages that others may overtake were kept: since the last pass ended, and
        between the end of the pass before and that."""
        self._pause_s = FIRST_PAUSE_S
        self._empty_passes_count = 0
        self.refused: frozenset[str] = frozenset()
        """Topics that wait behind a kept message that no broker accepts."""

    @property
    def has_lately_kept(self) -> bool:
        """Whether messages were kept since the pass before the last one ended. A transaction with
        an older snapshot may not see their rows."""
        return any(self._is_lately_kept)

    def record_unreachable(self) -> bool:
        """Open the circuit, because no broker could be reached. Return True if it was not open
        before."""
        is_news = self.state is not CircuitState.OPEN
        self.state = CircuitState.OPEN
        return is_news

    def count_kept(self, count: int, *, topics: Collection[str] = ()) -> None:
        """Count messages, of these topics, that are about to be kept. Raises TooManyKept if the
        limit is exceeded."""
        if self._count + count > self._kept_max:
            raise TooManyKept(
                f"{self._count} messages already wait in the database for a broker, and the "
                f"transaction has {count} more; {self._kept_max} are allowed (kept_max). "
                "Nothing was kept, so roll back; make a broker reachable, or allow more"
            )
        self._count += count
        since, before = self._lately_kept
        self._lately_kept = (since + count, before)
        if not topics or not self.refused.issuperset(topics):
            self._is_lately_kept = (True, self._is_lately_kept[1])
        self._empty_passes_count = 0

    def count_sent(self, count: int) -> None:
        """Subtract kept messages that were sent and deleted, so that others may be kept before the
        pass ends."""
        self._count = max(self._count - count, 0)

    def record_pass(
        self,
        *,
        handed_over: int,
        left: int,
        has_failed: bool,
        refused: frozenset[str] = frozenset(),
    ) -> float:
        """Record the end of a pass through the kept messages; return the seconds until the next.
        `left` messages remain; `refused` are the topics that wait behind refused messages."""
        # A pass does not see uncommitted messages, often the very ones that caused it.
        since, before = self._lately_kept
        self._lately_kept = (0, since)
        self._count = max(left, min(self._count, left + since + before))
        self._is_lately_kept = (False, self._is_lately_kept[0])
        self.refused = refused
        if has_failed:
            self.state = CircuitState.OPEN
            return self._longer_pause_s()
        if refused:  # brokers are there: the other topics go on
            self.state = CircuitState.DRAINING
            self._empty_passes_count = 0
            if not handed_over:
                return self._longer_pause_s()
            self._pause_s = FIRST_PAUSE_S
            return DRAIN_PAUSE_S
        self._pause_s = FIRST_PAUSE_S
        if left:
            self._empty_passes_count = 0
            return 0.0  # it came meanwhile
        return self._record_empty_pass(is_handed_over=handed_over > 0)

    def _longer_pause_s(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return pause_s

    def _record_empty_pass(self, *, is_handed_over: bool) -> float:
        if self.state is CircuitState.CLOSED:
            return IDLE_PAUSE_S
        self._empty_passes_count += 1
        is_long = self._empty_passes_count >= DRAIN_PASSES
        if self.state is CircuitState.OPEN:
            # A kept message may not be committed yet; it may also have been rolled back.
            if not (is_handed_over or is_long):
                return FIRST_PAUSE_S
            self._empty_passes_count = 0
            self.state = CircuitState.DRAINING
        elif is_long:
            self.state = CircuitState.CLOSED
            return IDLE_PAUSE_S
        return DRAIN_PAUSE_S


def circuit_open_text(error: EscrowMQError) -> str:
    """Return the log line for the opening of the circuit."""
    return (
        f"no broker takes messages ({error}); from now on messages are kept in the database with "
        "their transactions, and sent once a broker answers"
    )
