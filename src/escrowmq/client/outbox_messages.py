"""Messages whose outcome is decided by the marker, a row in the user's database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.base.message import Property
from escrowmq.base.own_properties import MARKER, TRANSACTION
from escrowmq.client.core.end_request import Half, parse_half
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer
from escrowmq.client.core.sending import (
    Outcome,
    SendResult,
    delay_properties,
    encode_properties,
    half_properties,
    is_stored_safely,
    properties_of,
)
from escrowmq.client.ends_in_background import send_end_in_background
from escrowmq.client.half_safety import half_not_safe_error, require_escrowmq_broker
from escrowmq.client.interceptors import Ends
from escrowmq.client.portal import FinishCallback, GoOn, result_or_raise
from escrowmq.errors import ClientClosed, EscrowMQError, OutcomeContradicted, UsageError

if TYPE_CHECKING:
    from escrowmq.client.transaction_owner import TransactionOwner

_log = logging.getLogger(__name__)

MESSAGES_MAX: Final = BUNDLE_MESSAGES_MAX
"""Limit of the messages of one database transaction."""


class _BrokerHalves:
    """The halves stored at one broker, with the ids of their messages."""

    def __init__(self, *, is_bundle: bool) -> None:
        self._is_bundle = is_bundle
        self._halves: list[Half] = []
        self._ends: list[tuple[Message, str]] = []

    def add(self, half: Half, message: Message, message_id: str) -> None:
        """Record one stored half."""
        self._halves.append(half)
        self._ends.append((message, message_id))

    def make_ends(self) -> list[_EndToSend]:
        """Return the ENDs to send to the broker."""
        first = self._halves[0]
        if self._is_bundle and first.signed_id:
            return [_EndToSend(first, len(self._halves), self._ends)]
        pairs = zip(self._halves, self._ends, strict=True)
        return [_EndToSend(half, 0, [end]) for half, end in pairs]


class _EndToSend(NamedTuple):
    """An END, and all messages that it ends."""

    half: Half
    bundle_count: int
    """The number of halves that the END ends, if they are a bundle; 0 for a single half."""
    ends: Ends


class MarkedMessages:
    """For integrations: the messages of one database transaction. Call in this order:

    1. `start_storing`: start to store the messages, invisible.
    2. Insert the marker, without committing: from here on a check finds it locked. A check that
       came earlier has inserted a tombstone, on which this insert fails.
    3. `stored`: wait until all messages are stored. If this raises, nothing may be committed.
    4. `leave_to_marker`: from here on the marker alone decides.
    5. Commit the database.
    6. `report_commit`: report the commit to the brokers, in the background. If that fails, they
       ask, and the marker answers. `report_commit_and_wait` waits for their answers.

    If the database will not commit, call `abandon` instead of the last three.

    On an EscrowMQ broker all messages appear together. RocketMQ's brokers deliver them one by one,
    and messages on several brokers appear broker by broker: in the end all of them, or none."""

    def __init__(self, producer: TransactionOwner, *, database: str, key: str) -> None:
        self._producer = producer
        self._marker = f"{database}:{key}"
        self.key = key
        """The key of the marker."""
        self.verdict: Outcome | None = Outcome.UNKNOWN
        """The answer that this producer gives to checks; None leaves it to the marker."""
        self.outcome: Outcome | None = None
        """The outcome, once all brokers have confirmed it; UNKNOWN if the marker decides."""
        self.error: EscrowMQError | None = None
        """The error because of which brokers did not confirm the outcome; None if there was
        none."""
        self._may_repeat = True
        self._is_bundle = False
        self._is_sending = False
        self._sending: asyncio.Future[None] | None = None
        self._broker_halves: dict[str, _BrokerHalves] = {}
        self._end_reports: list[asyncio.Future[None]] = []

    def without_resends(self) -> Self:
        """Make `send` and `stored` fail where they would otherwise send a message again that may be
        stored already: the marker would commit both copies. Returns this object."""
        self._may_repeat = False
        return self

    def validate(self, messages: Sequence[Message]) -> None:
        """Raise InvalidMessage if no broker would accept one of the messages. Callable from any
        thread; nothing is sent."""
        for message in messages:
            self._producer.dispatch.validate(message)
            properties = properties_of(message, unique_key=self.key)
            encode_properties(
                {**properties, **self._half_properties(message, is_alone=len(messages) == 1)}
            )

    async def send(self, messages: Sequence[Message]) -> None:
        """Store all messages, invisible. If one cannot be stored, all are rolled back."""
        assert not self._broker_halves, "a database transaction sends once"
        producer = self._producer
        producer.check_open()
        if len(messages) > MESSAGES_MAX:
            raise UsageError(
                f"{len(messages)} messages in one database transaction; {MESSAGES_MAX} are "
                "allowed. Put more into each, or use several transactions"
            )
        producer.verdicts.add_open(self.key, self)
        self._is_bundle = len(messages) > 1
        await self._store_or_roll_back(self._store_all(messages))

    def start_storing(self, messages: Sequence[Message]) -> None:
        """Start to store the messages, without waiting; `stored` waits for it."""
        self._sending = asyncio.ensure_future(self.send(messages))
        self._sending.add_done_callback(
            _mark_error_retrieved
        )  # where the marker fails, nothing waits for it

    async def wait_until_stored(self) -> None:
        """Wait until all messages are stored. If one cannot be, all are rolled back."""
        assert self._sending is not None
        await self._sending

    def try_send(self, messages: Sequence[Message], finish: FinishCallback[None]) -> bool:
        """Store one message, like `send`, without a coroutine if only the broker's answer must be
        awaited; for blocking code. Return False, having done nothing, if that is impossible."""
        if len(messages) != 1 or delay_properties(messages[0]) or not self._may_repeat:
            return False
        producer, message = self._producer, messages[0]
        producer.check_open()

        def on_stored(
            result: tuple[SendAnswer, SendResult] | None,
            error: BaseException | None = None,
            go_on: GoOn[tuple[SendAnswer, SendResult]] | None = None,
        ) -> None:
            if (
                result is None
                or not is_stored_safely(result[1])
                or self.verdict is Outcome.ROLLBACK
            ):

                def finish_storing() -> Coroutine[Any, Any, None]:
                    return self._store_or_roll_back(
                        self._record_when_stored(message, result_or_raise(result, error, go_on))
                    )

                finish(None, None, finish_storing)
                return
            self._is_sending = False
            self._record_stored(message, result)
            finish(None)

        properties = self._half_properties(message, is_alone=True)
        is_begun = producer.dispatch.try_send_half(message, properties, finish=on_stored) != ""
        if is_begun:
            producer.verdicts.add_open(self.key, self)
            self._is_sending = True
        return is_begun

    async def _record_when_stored(
        self, message: Message, work: Awaitable[tuple[SendAnswer, SendResult]]
    ) -> None:
        self._record_stored(message, await work)

    async def _store_or_roll_back(self, work: Awaitable[None]) -> None:
        """Store messages. Roll all back if one cannot be stored, or if they were abandoned
        meanwhile."""
        self._is_sending = True
        try:
            await work
        except BaseException:
            self._is_sending = False
            self.abandon()
            raise
        self._is_sending = False
        if self.verdict is Outcome.ROLLBACK:  # which came meanwhile
            self._report_outcome(Outcome.ROLLBACK)

    def abandon(self) -> None:
        """Roll back the stored messages, without waiting, because the database will not commit."""
        self.verdict = self.outcome = Outcome.ROLLBACK
        self._producer.verdicts.remember_outcome(self.key, Outcome.ROLLBACK)
        if not self._is_sending:  # else the end of sending reports it
            self._report_outcome(Outcome.ROLLBACK)

    def leave_to_marker(self) -> None:
        """Leave the decision to the marker from now on, because the database is about to commit."""
        self.verdict = None
        self.outcome = Outcome.UNKNOWN

    @property
    def broker_names(self) -> Collection[str]:
        """The names of the brokers that have stored messages."""
        return self._broker_halves.keys()

    def report_commit(self) -> None:
        """Report the database's commit to the brokers in the background. Their errors are not
        raised, because the database has committed."""
        self.verdict = Outcome.COMMIT
        self._report_outcome(Outcome.COMMIT)

    async def report_commit_and_wait(self) -> None:
        """Report the database's commit and wait for the brokers' answers. A cancellation does not
        stop the reports."""
        self.report_commit()
        if self._end_reports:
            await asyncio.wait(self._end_reports)

    # -- inside ------------------------------------------------------------------------------

    async def _store_all(self, messages: Sequence[Message]) -> None:
        if len(messages) == 1:
            await self._store(messages[0], None)
            return
        for placed in (await self._choose_queues(messages)).values():
            # The first one is sent ahead, so that the connection exists: the others keep their
            # order.
            await self._store(*placed[0])
            done = await asyncio.gather(
                *(self._store(*each) for each in placed[1:]), return_exceptions=True
            )
            for error in done:
                if error is not None:
                    raise error

    async def _choose_queues(
        self, messages: Sequence[Message]
    ) -> dict[str, list[tuple[Message, MessageQueue]]]:
        """Choose a queue for each message, by broker; use as few brokers as possible."""
        found: dict[str, list[tuple[Message, MessageQueue]]] = {}
        for message in messages:
            self._producer.dispatch.validate(message)
            queue = await self._choose_queue(message, found)
            found.setdefault(queue.broker_name, []).append((message, queue))
        return found

    async def _choose_queue(
        self, message: Message, found: dict[str, list[tuple[Message, MessageQueue]]]
    ) -> MessageQueue:
        dispatch = self._producer.dispatch
        if not message.order_key:  # whose broker is the key's
            for name in found:
                with contextlib.suppress(UsageError):
                    return await dispatch.choose_queue(message, broker_name=name)
        return await dispatch.choose_queue(message)

    async def _store(self, message: Message, queue: MessageQueue | None) -> None:
        """Store one message. `queue` is None if the transaction has only this message: it may be
        tried at several brokers."""
        producer = self._producer
        dispatch = producer.dispatch
        is_alone = queue is None
        if is_alone and not self._may_repeat:
            queue = await dispatch.choose_queue(message)  # to one queue there is one attempt
        if delay_properties(message):
            queue = queue or await dispatch.choose_queue(message)
            await require_escrowmq_broker(producer.instance, queue)
        out = dispatch.prepare(message, self._half_properties(message, is_alone=is_alone))
        out.wants_id = True
        may_repeat = is_alone and self._may_repeat
        stored = await dispatch.send_prepared(message, out, queue=queue, may_repeat=may_repeat)
        self._record_stored(message, stored)

    def _half_properties(self, message: Message, *, is_alone: bool) -> dict[str, str]:
        found = half_properties(message, group=self._producer.wire_group)
        found[MARKER] = self._marker
        found[Property.UNIQ_KEY if is_alone else TRANSACTION] = self.key
        return found

    def _record_stored(self, message: Message, stored: tuple[SendAnswer, SendResult]) -> None:
        """Record a message that a broker has stored."""
        sent, result = stored
        half = parse_half(
            sent.reply,
            broker_name=sent.queue.broker_name,
            topic=sent.queue.topic,
            group=self._producer.wire_group,
            unique_key=result.message_id,
        )
        self._broker_halves.setdefault(
            half.broker_name, _BrokerHalves(is_bundle=self._is_bundle)
        ).add(half, message, result.message_id)
        if not is_stored_safely(result) and not self._producer.options.accepts_unsafe_halves:
            raise half_not_safe_error(result)

    def _report_outcome(self, outcome: Outcome) -> None:
        """Report the outcome to the brokers in a background task, because waiters may be
        cancelled."""
        ends = [end for parcel in self._broker_halves.values() for end in parcel.make_ends()]
        errors: list[EscrowMQError] = []
        waiting = len(ends)

        def on_reported(error: EscrowMQError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                errors.append(error)
                self._record_unconfirmed(outcome, error)
            if not waiting and not errors:
                self.outcome = outcome

        if not ends:
            self.outcome = outcome
        self._end_reports = [
            send_end_in_background(
                self._producer,
                end.half,
                outcome,
                count=end.bundle_count,
                ends=end.ends,
                heard=on_reported,
            )
            for end in ends
        ]

    def _record_unconfirmed(self, outcome: Outcome, error: EscrowMQError) -> None:
        self.outcome = Outcome.UNKNOWN
        self.error = self.error or error
        if not isinstance(error, OutcomeContradicted):
            self._producer.verdicts.remember_outcome(self.key, outcome)
        self._producer.unconfirmed_count += 1
        closed = isinstance(error, ClientClosed)
        _log.warning(
            "the commit was not reported to the brokers, which will ask: %s" if closed else "%s",
            error,
        )


def _mark_error_retrieved(work: asyncio.Future[None]) -> None:
    """Read the error of a future, so that asyncio does not log it as never retrieved."""
    if not work.cancelled():
        work.exception()
