"""The attempts to send one message: the target and timeout of each, the reaction to an answer or a
failure, and the final error. No socket, no clock and no waiting: the caller makes each attempt and
reports its result. Times are in seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from escrowmq.base.command import Command
from escrowmq.client.core.queue_choice import QueueChooser, queue_of_key
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_retry import (
    STORED_CODES,
    BackOff,
    RetryStep,
    step_after_failure,
    step_after_reply,
)
from escrowmq.client.core.sending import OutgoingMessage
from escrowmq.errors import (
    ConnectFailed,
    ConnectionLost,
    EscrowMQError,
    GoingAway,
    NoNameServer,
    NotMaster,
    RequestTimeout,
    ResponseError,
    RouteMissing,
    SendFailed,
    response_error,
)

_log = logging.getLogger(__name__)

_PAUSE_MAX_S: Final = 0.25
_UNCERTAIN_ERRORS: Final = (ConnectionLost, RequestTimeout)
"""Errors after which it is unknown whether the message is stored."""


class SendRules(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's settings for attempts, timeouts and the choice of brokers."""

    group: str
    """The producer group, by the brokers' name."""
    retries: int = 2
    retries_unsafe: bool = False
    avoids_slow: bool = False
    asks_safety: bool = False
    inflight_max: int = 10_000
    inflight_size_max: int = 100 * 1024 * 1024


class SendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One message to send, and its options."""

    message: OutgoingMessage
    timeout_ms: int
    queue: MessageQueue | None = None
    """The queue to send to, if it is given or follows from an order key. Then there is only one
    attempt, because another could break the order."""
    order_key: str = ""
    may_repeat: bool = True
    """Whether the message may be sent again although it may already be stored."""


class SendAnswer(msgspec.Struct):
    """A broker's answer to a send."""

    reply: Command
    queue: MessageQueue
    address: str


class SendAttempts:
    """The attempts for one message: call `choose_target`, make the attempt, pass its result to
    `report_attempt`."""

    def __init__(self, sending: SendRequest, rules: SendRules, *, started: float) -> None:
        self.deadline = started + sending.timeout_ms / 1000
        self.queue = sending.queue
        """The only queue that the message may go to, if there is one."""
        self.broker_name = ""
        """The broker of the latest attempt."""
        self._is_sent = False
        """Whether the message was passed to a connection, so that a broker may have it."""
        self._sending = sending
        self._retries_unsafe = rules.retries_unsafe
        self._is_bound = bool(sending.queue is not None or sending.order_key)
        self._left = 1 if self._is_bound else 1 + rules.retries
        self._failures: list[tuple[str, Exception]] = []
        self._no_broker_error: EscrowMQError | None = None
        """The last error that left no broker to send to."""
        self._timeout: RequestTimeout | None = None
        """The error after this message's own timeout. It does not count as a broker's failure."""
        self._unsafe_answer: SendAnswer | None = None
        """A result that is stored less safely than required; it is returned if no attempt does
        better."""
        self._refused: set[str] = set()
        self._pauses = BackOff(most_s=_PAUSE_MAX_S)

    # -- one attempt -------------------------------------------------------------------------

    def choose_target(
        self, queues: Sequence[MessageQueue], chooser: QueueChooser, *, now_ms: float = 0
    ) -> MessageQueue:
        """Choose the target of the next attempt: the queue that is required, or the next in turn,
        on another broker than the last one if possible."""
        if self.queue is None and self._sending.order_key:
            self.queue = queue_of_key(queues, self._sending.order_key)
        return self.record_target(
            self.queue or chooser.choose(queues, avoid=self.broker_name, now_ms=now_ms)
        )

    def record_target(self, queue: MessageQueue) -> MessageQueue:
        """Record the target of an attempt."""
        self.broker_name = queue.broker_name
        return queue

    def mark_sent(self) -> None:
        """Note that the message is passed to a connection: from now on it may be stored."""
        self._is_sent = True

    def left_s(self, now: float) -> float:
        """Return the timeout of the next attempt: the rest of the message's time. Raises when it is
        used up."""
        left_s = self.deadline - now
        if left_s <= 0:
            raise self.timeout_error()
        return left_s

    # -- what follows ------------------------------------------------------------------------

    def report_attempt(
        self,
        what: SendAnswer | EscrowMQError,
        *,
        now: float,
        names: Callable[[], Collection[str]],
        has_names: bool = True,
    ) -> SendAnswer | float:
        """Return the final answer, or the pause before the next attempt. Raises the final error.
        `names` are the brokers that could be used; `has_names` says whether name servers normally
        answer."""
        if isinstance(what, SendAnswer) and what.reply.code in STORED_CODES:
            return self._judge_answer(what, now)
        if what is self._timeout:
            return self._final_answer(what)
        error = self._record_failure(what)
        if _is_unreachable(error, has_names):
            pause_s = self._restart_pause(names(), now)
            return self._final_answer(error) if pause_s is None else pause_s
        self._left -= 1
        may_repeat = self._sending.may_repeat
        if step_after_failure(error, may_repeat=may_repeat) is RetryStep.GIVE_UP:
            return self._final_answer(error)
        if now >= self.deadline:
            return self._final_answer(self.timeout_error(), cause=error)
        if not self._left:
            return self._final_answer(error)
        _log.info("sending to %r again: %s", self._sending.message.topic, error)
        return 0.0

    def _judge_answer(self, sent: SendAnswer, now: float) -> SendAnswer | float:
        step = step_after_reply(sent.reply.code, retries_unsafe=self._retries_unsafe)
        self._left -= 1
        if step is RetryStep.DONE or not self._left or now >= self.deadline:
            return sent
        self._unsafe_answer = sent
        return 0.0

    def _record_failure(self, what: SendAnswer | EscrowMQError) -> EscrowMQError:
        """Record the error of an attempt and return it. If a broker refuses repeatedly, only its
        last refusal is kept."""
        if isinstance(what, RouteMissing | NoNameServer):
            self._no_broker_error = what
            return what
        if isinstance(what, SendAnswer):
            what = response_error(what.reply.code, what.reply.remark, address=what.address)
        name = self.broker_name
        if isinstance(what, ConnectFailed | GoingAway | NotMaster):
            self._failures = [
                each for each in self._failures if not _is_same_failure(each, name, what)
            ]
        self._failures.append((name, what))
        return what

    def _restart_pause(self, names: Collection[str], now: float) -> float | None:
        """Return the pause before the next attempt, when the latest broker refuses connections or
        is shutting down. It may be restarting, or another broker may become the master; nothing was
        sent, so this counts as no attempt. Return 0 if there are other brokers to try, and None if
        too little time is left."""
        name = self.broker_name
        others = {name} if self._is_bound else {*names}
        if name not in self._refused and others - self._refused - {name}:
            self._refused.add(name)
            return 0.0
        self._refused.clear()
        return self._pauses.next_s(self.deadline - now)

    # -- the final result ----------------------------------------------------------------------

    def timeout_error(self) -> RequestTimeout:
        """Make the error for a message whose time is used up."""
        advice = (
            "it may be stored: send it again only if a duplicate does no harm, or allow more time"
            if self._is_sent
            else "it was not sent; try again, or allow more time"
        )
        self._timeout = RequestTimeout(
            f"the message to {self._sending.message.topic!r} was not confirmed within "
            f"{self._sending.timeout_ms} ms; {self._describe_failures()}; {advice} (timeout_ms)"
        )
        return self._timeout

    def _final_answer(
        self, error: EscrowMQError, *, cause: EscrowMQError | None = None
    ) -> SendAnswer:
        """Return the answer that is stored less safely, if there is one; otherwise raise the error.
        No attempt is left."""
        if self._unsafe_answer is not None:
            return self._unsafe_answer
        if cause is not None:
            raise error from cause
        raise self._last_error() if self._failures else error

    def _last_error(self) -> EscrowMQError:
        """Make the error after the last attempt. If all brokers gave the same refusal, that refusal
        is returned unchanged."""
        last = self._failures[-1][1]
        if isinstance(last, ResponseError) and all(
            type(error) is type(last) for _, error in self._failures
        ):
            if len(self._failures) > 1:
                last.add_note(f"{len(self._failures)} attempts were made")
            return last
        topic, why = self._sending.message.topic, self._describe_failures()
        in_doubt = any(isinstance(error, _UNCERTAIN_ERRORS) for _, error in self._failures)
        text = (
            f"the message to {topic!r} was not confirmed; {why}; it may be stored: send it again "
            "only if a duplicate does no harm"
            if in_doubt
            else f"the message to {topic!r} could not be sent; {why}"
        )
        failed = SendFailed(text, tuple(self._failures))
        failed.__cause__ = last
        return failed

    def _describe_failures(self) -> str:
        if not self._failures:
            return str(self._no_broker_error or "no attempt came to an end")
        why = "; ".join(
            f"{name}: {error}" if name else f"{error}" for name, error in self._failures
        )
        count = len(self._failures)
        return f"{count} attempt{'s' if count > 1 else ''}: {why}"


def _is_unreachable(error: EscrowMQError, has_names: bool) -> bool:
    """Whether nothing was sent because a server was temporarily unreachable."""
    if isinstance(error, NoNameServer):
        return has_names
    return isinstance(error, ConnectFailed | GoingAway | NotMaster)


def _is_same_failure(failure: tuple[str, Exception], name: str, error: Exception) -> bool:
    return failure[0] == name and type(failure[1]) is type(error)
