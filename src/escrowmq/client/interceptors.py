"""Calls interceptors and writes RocketMQ's trace. No exception of theirs reaches senders or
consumers."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol

from escrowmq.client.core.hooks import Consumed, Interceptor
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.send_attempts import SendAnswer
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.core.trace_records import ConsumeResult

_log = logging.getLogger(__name__)

_NOTHING: Final = contextlib.nullcontext()

Ends = Sequence[tuple[Message, str]]
"""Messages of a transaction, each with its id."""


class TraceRecorder(Protocol):
    """Writes RocketMQ's message trace (client/tracing)."""

    dropped_count: int
    """Number of records that were dropped."""

    def open(self) -> None:
        """Start to collect records."""
        ...

    async def close(self) -> None:
        """Send the collected records."""
        ...

    def record_sent(
        self, message: Message, result: SendResult, *, sent: SendAnswer, born_ms: int
    ) -> None:
        """Record that a message was stored."""
        ...

    def record_end(
        self, ends: Ends, outcome: Outcome, *, address: str, is_from_check: bool = False
    ) -> None:
        """Record that an END of a transaction was sent to a broker."""
        ...

    def record_delivered(self, messages: Sequence[ReceivedMessage]) -> tuple[str, int]:
        """Record that messages are handed out. Return what `record_consumed` needs about it: the id
        and the time of the delivery."""
        ...

    def record_consumed(
        self, message: ReceivedMessage, taken: tuple[str, int], end: ConsumeResult
    ) -> None:
        """Record the result of consuming one message."""
        ...


class InterceptorCalls:
    """Calls the interceptors and the trace of one client. Its truth value is False if there are
    none."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self.interceptors = tuple(interceptors)
        self.tracer: TraceRecorder | None = None

    def __bool__(self) -> bool:
        return bool(self.interceptors) or self.tracer is not None

    # -- sending -----------------------------------------------------------------------------

    def before_send(self, messages: Sequence[Message], *, is_batch: bool = False) -> None:
        """Call interceptors before messages are sent; they may add properties."""
        if not self.interceptors:
            return
        for message in messages:
            message.properties = dict(message.properties or ())
        for each in self.interceptors:
            if is_batch:
                _call_safely(each.before_send_many, messages)
            else:
                _call_safely(each.before_send, messages[0])

    def after_send(
        self, message: Message, result: SendResult | None, error: BaseException | None
    ) -> None:
        """Call interceptors after a message was sent, or could not be."""
        for each in self.interceptors:
            _call_safely(each.after_send, message, result, error)

    def after_send_many(
        self,
        messages: Sequence[Message],
        results: Sequence[SendResult],
        error: BaseException | None,
    ) -> None:
        """Call interceptors after a batch was sent, or could not be."""
        for each in self.interceptors:
            _call_safely(each.after_send_many, messages, results, error)

    # -- transactions ------------------------------------------------------------------------

    def before_settle(
        self, transaction_id: str, outcome: Outcome, messages: Sequence[Message]
    ) -> None:
        """Call interceptors before an END is sent to a broker."""
        for each in self.interceptors:
            _call_safely(each.before_settle, transaction_id, outcome, messages)

    def after_settle(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        """Call interceptors after an END was sent, or could not be."""
        for each in self.interceptors:
            _call_safely(each.after_settle, transaction_id, outcome, error)

    def around_check(self, message: ReceivedMessage) -> AbstractContextManager[None]:
        """Return the context in which the user's check runs."""
        if not self.interceptors:
            return _NOTHING
        return _enter_all(self.interceptors, lambda each: each.around_check(message))

    # -- consuming ---------------------------------------------------------------------------

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """Call interceptors before messages are delivered."""
        for each in self.interceptors:
            _call_safely(each.before_consume_many, messages)

    def around_consume(self, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[None]:
        """Return the context in which the user's handler runs."""
        if not self.interceptors:
            return _NOTHING
        return _enter_all(self.interceptors, lambda each: each.around_consume(messages))

    def after_consume(self, message: ReceivedMessage, outcome: Consumed) -> None:
        """Call interceptors after a message's outcome is decided."""
        for each in self.interceptors:
            _call_safely(each.after_consume, message, outcome)


def _call_safely(hook: Callable[..., object], *given: Any) -> None:  # noqa: ANN401
    try:
        hook(*given)
    except Exception:  # noqa: BLE001 - the user's code; logged
        _log.exception("an interceptor failed; the message is processed all the same")


@contextlib.contextmanager
def _enter_all(
    interceptors: Sequence[Interceptor],
    make: Callable[[Interceptor], AbstractContextManager[object]],
) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in interceptors:
            try:
                manager = make(each)
                manager.__enter__()
            except Exception:  # noqa: BLE001 - the user's code; logged
                _log.exception("an interceptor failed; the message is processed all the same")
                continue
            stack.push(functools.partial(_exit_safely, manager))
        yield


def _exit_safely(
    manager: AbstractContextManager[object],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Leave an interceptor's context. It can neither suppress the user's exception nor raise its
    own: that is logged."""
    try:
        manager.__exit__(kind, error, trace)
    except Exception as raised:  # noqa: BLE001 - the user's code; logged
        if raised is not error:
            _log.exception("an interceptor failed; the message is processed all the same")
