"""The asyncio transaction."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self, Unpack

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.base.message import Property
from escrowmq.base.own_properties import CHECKER, TRANSACTION
from escrowmq.client import half_safety
from escrowmq.client.core import end_request, sending
from escrowmq.client.core.message import Message, snapshot_of
from escrowmq.client.core.send_attempts import SendAnswer
from escrowmq.client.core.sending import Outcome, SendResult, is_stored_safely
from escrowmq.client.core.verdicts import TransactionCourse
from escrowmq.client.ends_in_background import send_end_in_background
from escrowmq.client.help_and_completion import AwaitableNone, TidyCompletion
from escrowmq.client.portal import FinishCallback, GoOn, result_or_raise
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import (
    ClientClosed,
    EscrowMQError,
    ManyMessagesUnsupported,
    OutcomeUnknown,
    UsageError,
)

if TYPE_CHECKING:
    from types import TracebackType

    from escrowmq.client.transaction_owner import TransactionOwner

_log = logging.getLogger(__name__)


class Transaction(TidyCompletion):
    """Made by `Producer.transaction`. Commits when its block ends, rolls back when it raises.

    Call `database_decides()` right before your database commits: an exception after that proves
    nothing about the database, so the check-back settles the transaction. The same holds for an
    interrupt or a cancellation at any point.

    The block ends when the broker has confirmed the commit; otherwise OutcomeUnknown is raised, and
    the check-back will settle the transaction."""

    _INTERNAL = frozenset({"abandon", "commit_in_background", "try_begin", "try_settle"})
    _is_begun = _is_over = True
    """Defaults for an object whose constructor failed: `__del__` logs nothing then."""

    def __init__(
        self,
        producer: TransactionOwner,
        message: Message | None,
        *,
        checker: str = "",
        check_after: dt.timedelta | float | None = None,
    ) -> None:
        self._producer = producer
        self._first = message
        self._checker = checker
        self._check_after_s = end_request.check_after_seconds(check_after)
        self._course = TransactionCourse(producer.verdicts)
        self._bundle = ""
        self._halves: list[end_request.Half] = []
        self._plan = Outcome.COMMIT
        self._outcome: Outcome | None = None
        self._error: EscrowMQError | None = None
        self._is_detached = False
        self._is_decided_elsewhere = False
        self._failure: BaseException | None = None
        self._results: list[SendResult] = []
        self._ends: list[tuple[Message, str]] = []
        self._is_begun = self._is_over = False

    def __repr__(self) -> str:
        if self._is_detached:
            state = "detached"
        elif self._outcome is not None:
            state = f"ended: {self._outcome.name}"
        else:
            state = "open" if self._is_begun else "not begun"
        topics = ", ".join(dict.fromkeys(message.topic for message, _ in self._ends))
        if not topics and self._first is not None:
            topics = str(self._first.topic)
        key = self._course.key or "(nothing stored)"
        return f"<Transaction {key} to {topics or 'no topic'}, {state}>"

    def __del__(self) -> None:
        # As text: a log that stores its records would keep the transaction alive, and open.
        if not self._is_begun:
            _log.warning("%s was created and never begun: nothing was sent; use `with`", repr(self))
        elif not self._is_over and self._halves:
            _log.warning("%s was dropped before it ended; the check-back settles it", repr(self))

    @property
    def id(self) -> str:
        """The id with which any process can end the transaction; empty until something is
        stored."""
        return end_request.transaction_id_of(self._halves[0]) if self._halves else ""

    @property
    def plan(self) -> Outcome:
        """The outcome that the block requests unless it raises; UNKNOWN if it leaves it open."""
        return self._plan

    @property
    def outcome(self) -> Outcome | None:
        """The outcome as far as the broker has confirmed it: UNKNOWN if the check-back will settle
        it, None before the end."""
        return self._outcome

    @property
    def error(self) -> EscrowMQError | None:
        """The error that was not raised after `database_decides()`: OutcomeUnknown,
        OutcomeContradicted or another answer of the broker."""
        return self._error

    @property
    def results(self) -> list[SendResult]:
        """Results of the stored messages, in the order of sending."""
        return self._results

    @property
    def message(self) -> Message:
        """The message that was passed to `Producer.transaction`."""
        if self._first is None:
            raise UsageError("this transaction began without a message; see `results`")
        return self._first

    # -- the block ---------------------------------------------------------------------------

    async def begin(self) -> Self:
        """Store the transaction's message, invisible to consumers."""
        if self._is_begun:
            raise UsageError("a transaction begins once; make a new one")
        self._is_begun = True
        self._producer.check_open()
        if self._first is None:
            self._bundle = self._producer.dispatch.new_id()
            self._first_send = asyncio.Lock()
            self._course.begin(self._bundle)
            return self
        try:
            await self._record_when_stored(self._first, self._store(self._first))
        except BaseException:
            self.abandon()
            raise
        return self

    def try_begin(self, finish: FinishCallback[Transaction]) -> bool:
        """Begin like `begin`, without a coroutine if only the broker's answer must be awaited.
        Return False, having done nothing, if that is impossible. Only this package uses it."""
        first = self._first
        if self._is_begun or first is None or sending.is_delayed(first):
            return False

        def on_stored(
            result: tuple[SendAnswer, SendResult] | None,
            error: BaseException | None = None,
            go_on: GoOn[tuple[SendAnswer, SendResult]] | None = None,
        ) -> None:
            if result is None or not is_stored_safely(result[1]) or self._course.is_abandoned:
                finish(None, None, lambda: self._finish_begin(
                    first, result_or_raise(result, error, go_on)
                ))  # fmt: skip
                return
            self._record_stored(first, result)
            finish(self)

        self._is_begun = True
        try:
            self._producer.check_open()
            key = self._producer.dispatch.try_send_half(
                first, self._half_properties(first), finish=on_stored
            )
        except BaseException as error:
            self._failure = error
            self.abandon()
            raise
        if key:
            self._course.begin(key)
        else:
            self._is_begun = False
        return bool(key)

    async def _finish_begin(
        self, first: Message, work: Awaitable[tuple[SendAnswer, SendResult]]
    ) -> Self:
        """Complete a `try_begin` that takes longer."""
        try:
            await self._record_when_stored(first, work)
        except BaseException:
            self.abandon()
            raise
        if self._course.is_abandoned:  # an interrupt came before the answer
            await self._end_quietly()
        return self

    def abandon(self) -> None:
        """Note that the block never starts. If a message was stored, roll it back. Internal."""
        if self._is_over and self._outcome is Outcome.ROLLBACK:
            return
        self._course.mark_abandoned()
        if self._halves and not self._is_over:
            work = self._end_quietly()
            with contextlib.suppress(ClientClosed):
                self._producer.instance.spawn(work)

    async def __aenter__(self) -> Self:
        return await self.begin()

    def commit_in_background(self, later: Callable[[Callable[[], object]], None]) -> bool:
        """Commit in the background after a block that did not raise; `later` runs the work on the
        loop's thread. Return False if the end must be waited for. Only this package uses it."""
        is_plain = self._halves and not self._is_over and self._failure is None
        if not is_plain or self._waits_for_confirmation(self._plan):
            return False
        later(lambda: self._settle_in_background(Outcome.COMMIT))
        self._is_over = True  # not before: `later` raises if the client is closed
        return True

    def try_settle(self, outcome: Outcome, finish: FinishCallback[None]) -> bool:
        """Try to end the transaction without a coroutine; return False if that is impossible. Only
        this package uses it."""
        if self._is_over or self._failure is not None or not self._halves:
            return False
        if not self._waits_for_confirmation(outcome):
            return False

        def on_result(
            result: None,
            error: BaseException | None = None,
            go_on: GoOn[None] | None = None,
        ) -> None:
            if error is not None or go_on is not None:
                finish(None, None, lambda: self._await_end(
                    outcome, result_or_raise(result, error, go_on)
                ))  # fmt: skip
                return
            self._outcome = outcome
            finish(None)

        settler = self._producer.settler
        if not settler.try_settle(
            self._halves[0], outcome, count=self._bundle_count, finish=on_result
        ):
            return False
        self._course.set_outcome(outcome)  # not before: where nothing was begun, `settle` does
        self._plan, self._is_over = outcome, True
        return True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if error is not None:
            await self._end_quietly(self._outcome_after(error))
        elif self._failure is not None:
            await self._end_quietly()
            raise half_safety.transaction_broken_error(self._failure)
        else:
            await self.settle(self._plan)

    def _outcome_after(self, error: BaseException) -> Outcome:
        """Return the outcome after an exception in the block: a rollback, since the block did not
        do its work. After `database_decides()`, an interrupt or a cancellation it is unknown,
        because the database may have committed."""
        if self._is_decided_elsewhere or self._plan is Outcome.UNKNOWN:
            return Outcome.UNKNOWN
        return Outcome.ROLLBACK if isinstance(error, Exception) else Outcome.UNKNOWN

    async def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Store one more message, invisible until all of them appear together. Only for a
        transaction that was made without a message; all messages go to one broker."""
        self._check_inside()
        if self._is_decided_elsewhere:
            raise UsageError("nothing can be added after database_decides(); send before it")
        if not self._bundle:
            raise UsageError(
                "this transaction was made with its one message; use `transaction()` without "
                "arguments to send several"
            )
        if len(self._halves) >= BUNDLE_MESSAGES_MAX:
            raise UsageError(
                f"a transaction has at most {BUNDLE_MESSAGES_MAX} messages; put more into each"
            )
        message = snapshot_of(make_message(topic, body, fields))
        # The first message chooses the broker of all: others that are sent meanwhile wait for it.
        async with contextlib.nullcontext() if self._halves else self._first_send:
            self._check_inside()
            if not self._halves:
                return await self._record_when_stored(message, self._store(message))
        if not self._halves[0].signed_id:
            await self.settle(Outcome.ROLLBACK)
            raise ManyMessagesUnsupported(
                f"broker {self._halves[0].broker_name} does not support transactions of several "
                f"messages, only EscrowMQ's do; nothing was delivered, use one message or one "
                "of those brokers"
            )
        return await self._record_when_stored(message, self._store(message))

    def database_decides(self) -> Awaitable[None]:
        """From here on your database decides the outcome: call it right before its commit. It does
        not wait, and need not be awaited.

        If the block ends without an exception, the transaction is committed. After an exception it
        is neither committed nor rolled back: the check-back answers from the database. The broker's
        reply to the commit is no longer raised, because the database has committed: see `outcome`,
        `error`, the log, and an interceptor's `after_settle`.

        Raises TransactionBroken if a message could not be sent; then do not commit."""
        self._check_running("let the database decide")
        if self._failure is not None:
            raise half_safety.transaction_broken_error(self._failure)
        self._is_decided_elsewhere = True
        return AwaitableNone()

    def unknown(self) -> Awaitable[None]:
        """Leave the outcome open at the end of the block, even if it raises: a check follows."""
        self._plan = Outcome.UNKNOWN
        return AwaitableNone()

    def rollback(self) -> Awaitable[None]:
        """Roll back at the end of the block, even if it does not raise."""
        self._plan = Outcome.ROLLBACK
        return AwaitableNone()

    def detach(self) -> str:
        """Return the transaction's id. The end of the block then leaves the transaction open:
        anyone who has the id can end it with `Producer.commit` or `Producer.rollback`, from any
        process; otherwise a check-back does. Raises TransactionBroken if a message could not be
        sent."""
        if not self._halves:
            raise UsageError("a transaction without a message cannot be detached; send one first")
        self._check_running("detach it")
        if self._failure is not None:
            raise half_safety.transaction_broken_error(self._failure)
        self._plan, self._is_over, self._is_detached = Outcome.UNKNOWN, True, True
        self._course.leave_to_check()
        return self.id

    async def settle(self, outcome: Outcome) -> None:
        """End the transaction now. A block does this by itself."""
        self._check_running("settle it")
        if not isinstance(outcome, Outcome):
            raise UsageError(f"outcome={outcome!r}; an Outcome is expected: COMMIT or ROLLBACK")
        self._course.set_outcome(outcome)
        self._plan, self._is_over = outcome, True  # before a cancellation lets `__aexit__` end it
        if not self._halves:
            self._outcome = outcome
            return
        if not self._waits_for_confirmation(outcome):
            self._settle_in_background(outcome)
            return
        settler = self._producer.settler
        await self._await_end(
            outcome,
            settler.settle(self._halves[0], outcome, count=self._bundle_count, ends=self._ends),
        )

    # -- inside ------------------------------------------------------------------------------

    @property
    def _bundle_count(self) -> int:
        """The number of messages to name in a bundle's END; otherwise 0."""
        return len(self._halves) if self._bundle and self._halves[0].signed_id else 0

    def _waits_for_confirmation(self, outcome: Outcome) -> bool:
        """Whether the end of the transaction waits until the broker has confirmed it."""
        return outcome is not Outcome.COMMIT or self._producer.options.confirms_commits

    def _settle_in_background(self, outcome: Outcome) -> None:
        self._course.set_outcome(outcome)
        self._is_over = True

        def on_result(error: EscrowMQError | None) -> None:
            if error is None:
                self._outcome = outcome
                return
            self._course.record_unconfirmed(error)
            self._producer.unconfirmed_count += 1
            self._outcome, self._error = end_request.reported_outcome(error), error
            _log.warning("%s", error)

        first, count = self._halves[0], self._bundle_count
        send_end_in_background(
            self._producer, first, outcome, count=count, ends=self._ends, heard=on_result
        )

    async def _await_end(self, outcome: Outcome, work: Awaitable[None]) -> None:
        """Wait until the END was sent to the broker."""
        try:
            await work
        except BaseException as error:
            self._outcome = Outcome.UNKNOWN
            self._course.record_unconfirmed(error)
            if not isinstance(error, EscrowMQError):
                raise
            self._raise_unconfirmed(outcome, error)
        else:
            self._outcome = outcome

    def _raise_unconfirmed(self, outcome: Outcome, error: EscrowMQError) -> None:
        """Raise the error of an unconfirmed END, unless the database has committed."""
        producer = self._producer
        producer.unconfirmed_count += 1
        self._outcome = end_request.reported_outcome(error)
        is_news = not isinstance(error, OutcomeUnknown) or outcome is Outcome.COMMIT
        if is_news and not self._is_decided_elsewhere:
            raise error
        self._error = error
        _log.warning("%s", error)

    def _check_running(self, what: str) -> None:
        if self._is_over:
            raise UsageError(
                f"the transaction has ended, or was detached; {what} inside its block, once"
            )
        if not self._is_begun:
            raise UsageError(
                "the transaction has not begun, so nothing is stored; use it in a `with` "
                "block, or call begin() first"
            )

    async def _end_quietly(self, outcome: Outcome = Outcome.ROLLBACK) -> None:
        """Send the END after the block's own exception, which the caller gets. If the END fails
        too, that is only logged, because the broker will check."""
        try:
            await self.settle(outcome)
        except EscrowMQError as error:
            self._error = error
            _log.warning("%s", error)

    def _check_inside(self) -> None:
        if self._is_over or not self._is_begun:
            raise UsageError("messages can only be sent inside the transaction's block")

    async def _record_when_stored(
        self, message: Message, work: Awaitable[tuple[SendAnswer, SendResult]]
    ) -> SendResult:
        """Wait until a message is stored as safely as required, and record it."""
        try:
            stored = await work
            self._record_stored(message, stored)
        except BaseException as error:
            self._failure = error
            raise
        result = stored[1]
        if not (is_stored_safely(result) or self._producer.options.accepts_unsafe_halves):
            await self._end_quietly()
            raise half_safety.half_not_safe_error(result)
        return result

    def _record_stored(self, message: Message, stored: tuple[SendAnswer, SendResult]) -> None:
        sent, result = stored
        half = end_request.parse_half(
            sent.reply,
            broker_name=sent.queue.broker_name,
            topic=sent.queue.topic,
            group=self._producer.wire_group,
            unique_key=result.message_id,
        )
        self._halves.append(half)
        self._results.append(result)
        self._ends.append((message, result.message_id))

    async def _store(self, message: Message) -> tuple[SendAnswer, SendResult]:
        producer = self._producer
        producer.dispatch.validate(message)
        began_at = self._halves[0].broker_name if self._bundle and self._halves else ""
        queue = await half_safety.required_queue(producer, message, began_at=began_at)
        out = producer.dispatch.prepare(message, self._half_properties(message))
        out.wants_id = True
        if not self._course.key:
            self._course.begin(out.unique_key)
        return await producer.dispatch.send_prepared(
            message, out, queue=queue, may_repeat=not self._bundle
        )

    def _half_properties(self, message: Message) -> dict[str, str]:
        found = sending.half_properties(message, group=self._producer.wire_group)
        if self._bundle:
            found[TRANSACTION] = self._bundle
        if self._checker:
            found[CHECKER] = self._checker
        if self._check_after_s:
            found[Property.CHECK_IMMUNITY_TIME] = str(self._check_after_s)
        return found
