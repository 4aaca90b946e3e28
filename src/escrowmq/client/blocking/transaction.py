"""The blocking transaction."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Self, Unpack

from escrowmq.client import transaction as engine
from escrowmq.client.blocking.face import shorten_tracebacks
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.portal import Portal
from escrowmq.client.producer_settings import MessageFields
from escrowmq.errors import EscrowMQError

if TYPE_CHECKING:
    from types import TracebackType


@shorten_tracebacks(but={"__enter__", "__exit__", "begin"})
class Transaction:
    """Made by `Producer.transaction`. Commits when its block ends, rolls back when it raises.

    Call `database_decides()` right before your database commits: an exception after that proves
    nothing about the database, so the check-back settles the transaction. The same holds for an
    interrupt or a cancellation at any point.

    The block ends when the broker has confirmed the commit; otherwise OutcomeUnknown is raised, and
    the check-back will settle the transaction.

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
        """The id with which any process can end the transaction; empty before the first message is
        stored."""
        return self._inner.id

    @property
    def message(self) -> Message:
        """The message that was passed to `Producer.transaction`."""
        return self._inner.message

    @property
    def plan(self) -> Outcome:
        """The outcome that the block requests unless it raises; UNKNOWN if it leaves it open."""
        return self._inner.plan

    @property
    def outcome(self) -> Outcome | None:
        """The outcome as far as the broker has confirmed it: UNKNOWN if the check-back will settle
        it, None before the end."""
        return self._inner.outcome

    @property
    def error(self) -> EscrowMQError | None:
        """The error that was not raised after `database_decides()`: OutcomeUnknown,
        OutcomeContradicted or another answer of the broker."""
        return self._inner.error

    @property
    def results(self) -> list[SendResult]:
        """Results of the stored messages, in the order of sending."""
        return self._inner.results

    def begin(self) -> Self:
        """Store the transaction's message, invisible to consumers."""
        try:
            self._portal.call_without_task(self._inner.try_begin, self._inner.begin)
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
            if error is not None:
                self._portal.call(inner.__aexit__(kind, error, trace))
            elif not inner.commit_in_background(self._portal.post_in_order):
                self._portal.call_without_task(
                    functools.partial(inner.try_settle, inner.plan),
                    lambda: inner.__aexit__(None, None, None),
                )
        except EscrowMQError as raised:
            raise raised.with_traceback(None)  # noqa: B904 - the same

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Store one more message, invisible until all of them appear together. Only for a
        transaction that was made without a message; all messages go to one broker."""
        return self._portal.call(self._inner.send(topic, body, **fields))

    def database_decides(self) -> None:
        """From here on your database decides the outcome: call it right before its commit.

        If the block ends without an exception, the transaction is committed. After an exception it
        is neither committed nor rolled back: the check-back answers from the database. The broker's
        reply to the commit is no longer raised, because the database has committed: see `outcome`,
        `error`, the log, and an interceptor's `after_settle`.

        Raises TransactionBroken if a message could not be sent; then do not commit."""
        self._inner.database_decides()

    def unknown(self) -> None:
        """Leave the outcome open at the end of the block, even if it raises: the broker will check
        back."""
        self._inner.unknown()

    def rollback(self) -> None:
        """Roll back at the end of the block, even if it does not raise."""
        self._inner.rollback()

    def detach(self) -> str:
        """Return the transaction's id. The end of the block then leaves the transaction open:
        anyone who has the id can end it with `Producer.commit` or `Producer.rollback`, from any
        process; otherwise a check-back does. Raises TransactionBroken if a message could not be
        sent."""
        return self._inner.detach()

    def settle(self, outcome: Outcome) -> None:
        """End the transaction now. A block does this by itself."""
        inner = self._inner
        self._portal.call_without_task(
            functools.partial(inner.try_settle, outcome), lambda: inner.settle(outcome)
        )
