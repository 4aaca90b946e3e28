"""Interfaces for tracing and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import Outcome, SendResult

Consumed = Literal["acknowledged", "retried", "rejected"]


class Interceptor:
    """Override the methods you need. They run on the client's event loop, so they must be quick.
    Their exceptions are logged and otherwise ignored.

    >>> class Count(escrowmq.Interceptor):
    ...     sent = 0
    ...     def after_send(self, message, result, error):
    ...         self.sent += error is None
    >>> count = Count()
    >>> with escrowmq.Producer(nameserver, group="counted", interceptors=[count]) as counted:
    ...     sent = counted.send("paid", b"order 1")
    >>> count.sent
    1
    """

    # -- sending -----------------------------------------------------------------------------

    def before_send(self, message: Message) -> None:
        """Called before a message is sent; may add properties to it."""

    def after_send(
        self, message: Message, result: SendResult | None, error: BaseException | None
    ) -> None:
        """Called after a message was sent, or could not be. A one-way message has neither result
        nor error."""

    def before_send_many(self, messages: Sequence[Message]) -> None:
        """Called before messages are sent as one batch; by default calls `before_send` for each."""
        for message in messages:
            self.before_send(message)

    def after_send_many(
        self,
        messages: Sequence[Message],
        results: Sequence[SendResult],
        error: BaseException | None,
    ) -> None:
        """Called after a batch was sent, or could not be and has no results; by default calls
        `after_send` for each message."""
        for index, message in enumerate(messages):
            self.after_send(message, results[index] if results else None, error)

    # -- transactions ------------------------------------------------------------------------

    def before_settle(
        self, transaction_id: str, outcome: Outcome, messages: Sequence[Message]
    ) -> None:
        """Called before an END is sent to a broker. `messages` are those of the transaction; for
        the answer to a check, only the message received with it; empty if only the id is known."""

    def after_settle(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        """Called after an END was sent to its broker, or could not be. Also called for answers to
        checks."""

    def around_check(self, message: ReceivedMessage) -> AbstractContextManager[object]:
        """Return a context manager; it is entered where the user's check runs, on its thread, and
        left when the check returns or raises."""
        return contextlib.nullcontext()

    # -- consuming ---------------------------------------------------------------------------

    def before_consume(self, message: ReceivedMessage) -> None:
        """Called before a message is passed to a handler, an iteration, or the caller of
        `receive`."""

    def before_consume_many(self, messages: Sequence[ReceivedMessage]) -> None:
        """Called before messages are delivered, of which there may be only one; by default calls
        `before_consume` for each."""
        for message in messages:
            self.before_consume(message)

    def around_consume(self, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[object]:
        """Return a context manager; it is entered where the user's handler runs, on its thread, and
        left when the handler returns or raises."""
        return contextlib.nullcontext()

    def after_consume(self, message: ReceivedMessage, outcome: Consumed) -> None:
        """Called after a message was acknowledged, sent back for redelivery, or moved to the dead
        letters."""
