"""A transaction for plain code."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Self, Unpack

from escrowmq.client import transaction as engine
from escrowmq.client.blocking.face import plain_face
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.portal import Portal
from escrowmq.client.producer_settings import MessageFields
from escrowmq.errors import EscrowMQError

if TYPE_CHECKING:
    from types import TracebackType


@plain_face(but={"__enter__", "__exit__", "begin"})
class Transaction:
    """Made by `Producer.transaction`. Commits when its block ends, rolls back when it raises.

    Call `database_decides()` right before your database commits: what is raised from there on says
    nothing about the database, and the check-back settles the transaction. An interrupt or a
    cancellation says nothing either, wherever it comes.

    A commit is confirmed by the broker before the block is left; OutcomeUnknown says that it was
    not, and that the check-back will settle it.

    >>> with producer.transaction("paid", b"order 1", keys=["o-1"]) as tx:
    ...     pass  # write to your database here; what is raised rolls both back
    ...     tx.database_decides()
    ...     pass  # and commit it here
    >>> tx.outcome
    <Outcome.COMMIT: 8>
    """

    def __init__(self, portal: Portal, inner: engine.Transaction) -> None:
        self._portal = portal
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

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
    def outcome(self) -> Outcome | None:
        """How it ended, as far as the broker has confirmed it: UNKNOWN when the check-back is to
        settle it, None before the end."""
        return self._inner.outcome

    @property
    def error(self) -> EscrowMQError | None:
        """What was not raised after `database_decides()`: OutcomeUnknown, OutcomeContradicted or
        what else the broker said to the end."""
        return self._inner.error

    @property
    def results(self) -> list[SendResult]:
        """What was stored, in the order of sending."""
        return self._inner.results

    def begin(self) -> Self:
        """Store the message that the transaction was made with, invisible to consumers."""
        try:
            self._portal.call_quickly(self._inner.begin_quickly, self._inner.begin)
        except EscrowMQError as error:
            raise error.with_traceback(None)  # noqa: B904 - itself, without what is inside
        except Exception:
            raise
        except BaseException:  # an interrupt: perhaps the message is stored, and no block follows
            self._portal.post(self._inner.abandon)
            raise
        return self

    def __enter__(self) -> Self:
        try:
            return self.begin()
        except EscrowMQError as error:
            raise error.with_traceback(None)  # noqa: B904 - the same

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        inner = self._inner
        try:
            if error is None:
                self._portal.call_quickly(
                    inner.leave_quickly, lambda: inner.__aexit__(None, None, None)
                )
            else:
                self._portal.call(inner.__aexit__(kind, error, trace))
        except EscrowMQError as raised:
            raise raised.with_traceback(None)  # noqa: B904 - the same

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Store one more message, invisible until all of them appear together. Only in a
        transaction that was made without a message; all messages go to one broker."""
        return self._portal.call(self._inner.send(topic, body, **fields))

    def database_decides(self) -> None:
        """From here on the outcome is your database's: call it right before its commit.

        When the block ends well, the transaction is committed. Whatever is raised behind this, the
        transaction is neither committed nor rolled back: the check-back answers from the database.
        What the broker says to the commit is not raised any more, as the database stands: see
        `outcome`, `error`, the log, and an interceptor's `after_settle`.

        Raises TransactionBroken when a message could not be sent; then do not commit.
        """
        self._inner.database_decides()

    def unknown(self) -> None:
        """Leave the outcome open at the end of the block, also when something is raised: the broker
        will ask the check-back."""
        self._inner.unknown()

    def rollback(self) -> None:
        """Roll back at the end of the block, although nothing was raised."""
        self._inner.rollback()

    def detach(self) -> str:
        """The transaction's id. The block leaves it alone from now on: whoever has the id ends it
        with `Producer.commit` or `Producer.rollback`, from any process; else a check-back does.
        Raises TransactionBroken when a message could not be sent."""
        return self._inner.detach()

    def settle(self, outcome: Outcome) -> None:
        """End it now. A block does this by itself."""
        inner = self._inner
        self._portal.call_quickly(
            functools.partial(inner.settle_quickly, outcome), lambda: inner.settle(outcome)
        )
