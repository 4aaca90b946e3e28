"""Where tracing and metrics take part."""

from __future__ import annotations

from typing import Literal

from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import Outcome, SendResult

Consumed = Literal["acknowledged", "retried", "rejected"]


class Interceptor:
    """Override what you need. The methods run on the client's event loop: they must be quick, and
    what they raise is logged and otherwise ignored."""

    def before_send(self, message: Message) -> None:
        """A message is about to be sent; properties may be added to it."""

    def after_send(
        self, message: Message, result: SendResult | None, error: BaseException | None
    ) -> None:
        """It was sent, or could not be."""

    def after_settle(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        """The end of a transaction was told to its broker, or could not be. It also comes for
        the answers to checks."""

    def before_consume(self, message: ReceivedMessage) -> None:
        """A message is about to be handed to a handler, an iteration, or who called `receive`."""

    def after_consume(self, message: ReceivedMessage, outcome: Consumed) -> None:
        """It was acknowledged, or is to come again, or goes to the dead letters."""
