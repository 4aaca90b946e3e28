"""Messages whose outcome stands in the user's database, as a row: the marker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.base.message import Property
from escrowmq.base.own_properties import MARKER, TRANSACTION
from escrowmq.client.closing import unless_closed
from escrowmq.client.core.end_request import Half, half_of
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outcome, delay_properties, half_properties, is_safe
from escrowmq.client.half_safety import not_safe, require_ours
from escrowmq.client.interceptors import Ends
from escrowmq.errors import ClientClosed, EscrowMQError, OutcomeContradicted, UsageError

if TYPE_CHECKING:
    from escrowmq.client.transaction_owner import TransactionOwner

_log = logging.getLogger(__name__)

MESSAGES_MAX: Final = BUNDLE_MESSAGES_MAX
"""Of one database transaction."""

_WILL_ASK: Final = "the brokers are not told, and will ask: %s"


class _Parcel:
    """Halves at one broker, with their messages' ids."""

    def __init__(self, *, is_bundle: bool) -> None:
        self._is_bundle = is_bundle
        self.halves: list[Half] = []
        self.ends: list[tuple[Message, str]] = []

    def all_ends(self) -> list[tuple[Half, int, Ends]]:
        """What is to be told: a half, how many end with it, and whose end that is."""
        first = self.halves[0]
        if self._is_bundle and first.signed_id:
            return [(first, len(self.halves), self.ends)]
        pairs = zip(self.halves, self.ends, strict=True)
        return [(half, 0, [end]) for half, end in pairs]


class Marked:
    """For integrations. A database transaction's messages, in this order:

    1. The marker is inserted, and not committed: a check that looks from here on finds it locked.
    2. `send`: the messages are stored, invisible. When this raises, nothing may be committed.
    3. `leave`: from here on only the marker speaks.
    4. The database commits.
    5. `commit`: the brokers are told. When that fails they ask, and the marker answers.

    `abandon` takes the place of the last three when the database is not going to commit.

    Messages of one broker of EscrowMQ appear together. A broker of RocketMQ delivers them one by
    one, and messages of several brokers appear broker by broker: all of them do, or none.
    """

    def __init__(self, producer: TransactionOwner, *, database: str, key: str) -> None:
        self._producer = producer
        self._marker = f"{database}:{key}"
        self.key = key
        """Of the marker."""
        self.verdict: Outcome | None = Outcome.UNKNOWN
        """What a check is answered with from here; None leaves it to the marker."""
        self.outcome: Outcome | None = None
        """As far as all brokers have confirmed it; UNKNOWN when the marker is to tell."""
        self.error: EscrowMQError | None = None
        """Why they have not."""
        self._parcels: dict[str, _Parcel] = {}
        self._work: asyncio.Task[None] | None = None

    async def send(self, messages: Sequence[Message]) -> None:
        """Store all of them, invisible. When one cannot be stored, all are rolled back."""
        assert not self._parcels, "a database transaction sends once"
        producer = self._producer
        producer.check_open()
        if len(messages) > MESSAGES_MAX:
            raise UsageError(
                f"{len(messages)} messages in one database transaction, {MESSAGES_MAX} are "
                "allowed; put more into each, or use several transactions"
            )
        producer.verdicts.open(self.key, self)
        try:
            await self._store_all(messages)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """The database is not going to commit: roll back what was stored, without waiting."""
        self.verdict = self.outcome = Outcome.ROLLBACK
        self._producer.verdicts.remember(self.key, Outcome.ROLLBACK)
        self._begin(Outcome.ROLLBACK)

    def leave(self) -> None:
        """The database is about to commit: whatever happens now, the marker tells."""
        self.verdict = None
        self.outcome = Outcome.UNKNOWN

    async def commit(self) -> None:
        """The database has committed: tell the brokers. Raises nothing of theirs, as the database
        stands; a cancellation leaves it to go on by itself."""
        self.verdict = Outcome.COMMIT
        self._begin(Outcome.COMMIT)
        if self._work is not None:
            try:
                await unless_closed(self._work)
            except ClientClosed as error:
                self._not_confirmed(Outcome.COMMIT, error, _WILL_ASK)

    # -- inside ------------------------------------------------------------------------------

    async def _store_all(self, messages: Sequence[Message]) -> None:
        if len(messages) == 1:
            await self._store(messages[0], None)
            return
        for placed in (await self._placed(messages)).values():
            # The first one goes ahead, so that the connection stands: the others keep their order.
            await self._store(*placed[0])
            done = await asyncio.gather(
                *(self._store(*each) for each in placed[1:]), return_exceptions=True
            )
            for error in done:
                if error is not None:
                    raise error

    async def _placed(
        self, messages: Sequence[Message]
    ) -> dict[str, list[tuple[Message, MessageQueue]]]:
        """Which message goes to which queue, by broker: to as few brokers as can be."""
        found: dict[str, list[tuple[Message, MessageQueue]]] = {}
        for message in messages:
            self._producer.dispatch.check(message)
            queue = await self._place(message, found)
            found.setdefault(queue.broker_name, []).append((message, queue))
        return found

    async def _place(
        self, message: Message, found: dict[str, list[tuple[Message, MessageQueue]]]
    ) -> MessageQueue:
        dispatch = self._producer.dispatch
        if not message.order_key:  # whose broker is the key's
            for name in found:
                with contextlib.suppress(UsageError):
                    return await dispatch.choose_queue(message, broker_name=name)
        return await dispatch.choose_queue(message)

    async def _store(self, message: Message, queue: MessageQueue | None) -> None:
        """Store one. Without a queue it is the only one, and may be tried at several brokers."""
        producer = self._producer
        dispatch = producer.dispatch
        is_alone = queue is None
        if delay_properties(message):
            queue = queue or await dispatch.choose_queue(message)
            await require_ours(producer.instance, queue)
        properties = half_properties(message, group=producer.wire_group)
        properties[MARKER] = self._marker
        properties[Property.UNIQ_KEY if is_alone else TRANSACTION] = self.key
        out = dispatch.prepare(message, properties)
        out.wants_id = True
        sent, result = await dispatch.deliver(message, out, queue=queue, may_repeat=is_alone)
        broker_name = sent.queue.broker_name
        half = half_of(
            sent.reply,
            broker_name=broker_name,
            topic=out.topic,
            group=producer.wire_group,
            unique_key=out.unique_key,
        )
        parcel = self._parcels.setdefault(broker_name, _Parcel(is_bundle=not is_alone))
        parcel.halves.append(half)
        parcel.ends.append((message, result.message_id))
        if not is_safe(result) and not producer.options.accepts_unsafe_halves:
            raise not_safe(result)

    def _begin(self, outcome: Outcome) -> None:
        """Tell the brokers, in the background: who waits for it may be cancelled."""
        work = self._tell_all(outcome)
        try:
            self._work = self._producer.instance.spawn(work)
        except EscrowMQError as error:  # the producer is closed
            self._not_confirmed(outcome, error, _WILL_ASK)

    async def _tell_all(self, outcome: Outcome) -> None:
        ends = [end for parcel in self._parcels.values() for end in parcel.all_ends()]
        told = await asyncio.gather(
            *(self._tell(outcome, *end) for end in ends), return_exceptions=True
        )
        errors = [error for error in told if error is not None]
        if not errors:
            self.outcome = outcome
        for error in errors:
            if not isinstance(error, EscrowMQError):
                raise error
            self._not_confirmed(outcome, error)

    async def _tell(self, outcome: Outcome, half: Half, count: int, ends: Ends) -> None:
        await self._producer.settler.settle(half, outcome, count=count, ends=ends)

    def _not_confirmed(self, outcome: Outcome, error: EscrowMQError, told: str = "%s") -> None:
        self.outcome = Outcome.UNKNOWN
        self.error = self.error or error
        if not isinstance(error, OutcomeContradicted):
            self._producer.verdicts.remember(self.key, outcome)
        self._producer.unconfirmed_count += 1
        _log.warning(told, error)
