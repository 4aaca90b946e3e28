"""Where tracing and metrics take part."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import Outcome, SendResult

Consumed = Literal["acknowledged", "retried", "rejected"]


class Interceptor:
    """Override what you need. The methods run on the client's event loop: they must be quick, and
    what they raise is logged and otherwise ignored.

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
        """A message is about to be sent; properties may be added to it."""

    def after_send(
        self, message: Message, result: SendResult | None, error: BaseException | None
    ) -> None:
        """It was sent, or could not be. A one-way message has neither result nor error."""

    def before_send_many(self, messages: Sequence[Message]) -> None:
        """Messages are about to be sent as one batch; unless overridden, `before_send` hears of
        each."""
        for message in messages:
            self.before_send(message)

    def after_send_many(
        self,
        messages: Sequence[Message],
        results: Sequence[SendResult],
        error: BaseException | None,
    ) -> None:
        """The batch was sent, or could not be and has no results; unless overridden,
        `after_send` hears of each message."""
        for index, message in enumerate(messages):
            self.after_send(message, results[index] if results else None, error)

    # -- transactions ------------------------------------------------------------------------

    def before_settle(
        self, transaction_id: str, outcome: Outcome, messages: Sequence[Message]
    ) -> None:
        """A broker is about to be told how a transaction ends. `messages` are those that were
        sent in it, the received one for the answer to a check, and none when only its id is
        known."""

    def after_settle(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        """The end of a transaction was told to its broker, or could not be. It also comes for
        the answers to checks."""

    def around_check(self, message: ReceivedMessage) -> AbstractContextManager[object]:
        """Is entered where the user's check runs, on its thread, and left when it returns or
        raises."""
        return contextlib.nullcontext()

    # -- consuming ---------------------------------------------------------------------------

    def before_consume(self, message: ReceivedMessage) -> None:
        """A message is about to be handed to a handler, an iteration, or who called `receive`."""

    def before_consume_many(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages are about to be handed over together, perhaps only one; unless overridden,
        `before_consume` hears of each."""
        for message in messages:
            self.before_consume(message)

    def around_consume(self, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[object]:
        """Is entered where the user's handler runs, on its thread, and left when it returns or
        raises."""
        return contextlib.nullcontext()

    def after_consume(self, message: ReceivedMessage, outcome: Consumed) -> None:
        """It was acknowledged, or is to come again, or goes to the dead letters."""
