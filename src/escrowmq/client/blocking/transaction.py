"""A transaction for plain code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from escrowmq.client import transaction as engine
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.portal import Portal
from escrowmq.client.settings import MessageFields

if TYPE_CHECKING:
    from types import TracebackType


class Transaction:
    """Made by `Producer.transaction`. Commits when its block ends, rolls back when it raises.

    A commit is confirmed by the broker before the block is left; OutcomeUnknown says that it was
    not, and that the check-back will settle it.

    >>> with producer.transaction("paid", b"order 1") as tx:
    ...     if tx.results[0].offset < 0:  # your database says no
    ...         tx.rollback()
    """

    def __init__(self, portal: Portal, inner: engine.Transaction) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def id(self) -> str:
        """The id with which any process can end it; empty before the first message is stored."""
        return self._inner.id

    @property
    def message(self) -> Message:
        """The message that it began with."""
        return self._inner.message

    @property
    def plan(self) -> Outcome:
        """What the end of the block will do, if nothing is raised in it."""
        return self._inner.plan

    @property
    def results(self) -> list[SendResult]:
        """What was stored, in the order of sending."""
        return self._inner.results

    def begin(self) -> Self:
        """Store the message that the transaction was made with, invisible to consumers."""
        self._portal.call(self._inner.begin())
        return self

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.call(self._inner.__aexit__(kind, error, trace))

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Store one more message, invisible until all of them appear together. Only in a
        transaction that was made without a message; all messages go to one broker."""
        return self._portal.call(self._inner.send(topic, body, **fields))

    def unknown(self) -> None:
        """Leave the outcome open at the end of the block: the broker will ask the check-back."""
        self._inner.unknown()

    def rollback(self) -> None:
        """Roll back at the end of the block, although nothing was raised."""
        self._inner.rollback()

    def detach(self) -> str:
        """The transaction's id. The block leaves it alone from now on: whoever has the id ends it
        with `Producer.commit` or `Producer.rollback`, from any process; else a check-back does."""
        return self._inner.detach()

    def settle(self, outcome: Outcome) -> None:
        """End it now. A block does this by itself."""
        self._portal.call(self._inner.settle(outcome))
