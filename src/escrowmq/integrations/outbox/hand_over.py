"""Hands over a transaction's messages right before it commits: writes its marker, and stores the
messages at the brokers, invisible. If no broker can be reached, and the outbox is configured so,
the messages are kept in the database instead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

from escrowmq.base.fixed_limits import BUNDLE_SIZE_MAX
from escrowmq.client import outbox_messages as engine
from escrowmq.client.core.message import Message
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.integrations.outbox import circuit, kept, marking, tables, verdict
from escrowmq.integrations.outbox.circuit import Circuit, State
from escrowmq.integrations.outbox.kept import KeptRow
from escrowmq.integrations.outbox.known_brokers import KnownBrokers
from escrowmq.integrations.outbox.marking import Keyed
from escrowmq.integrations.outbox.staged_messages import StagedMessages
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import Place, SqlFamily, Statement
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

RunSteps = Callable[[Steps[Any]], Any]
"""Runs steps inside the transaction; raises MarkerNotWritten if the database fails."""


class RunStepsAsync(Protocol):
    """`RunSteps` for asyncio."""

    async def __call__(self, steps: Steps[Any]) -> Any:  # noqa: ANN401 - what the steps lead to
        """Run the steps; return their result."""


class Abandoned(Keyed, Protocol):
    """Messages of one transaction that can be stored at brokers, or abandoned."""

    def check(self, messages: Sequence[Message]) -> None:
        """Raise InvalidMessage if no broker would accept one of the messages."""

    def begin(self, messages: Sequence[Message]) -> None:
        """Start to store the messages."""

    def abandon(self) -> None:
        """Roll back the messages, because the database will not commit."""


class Stored(Keyed, Protocol):
    """Messages of one transaction that brokers have stored."""

    @property
    def brokers(self) -> Collection[str]:
        """The brokers that have stored the messages."""


S = TypeVar("S", bound=Abandoned)


class _HandOverSteps(Generic[S]):
    """The parts of a hand-over that blocking and asyncio databases share."""

    def __init__(
        self,
        begin: Callable[[str], S],
        *,
        new_name: Callable[[], str],
        way_out: Circuit | None = None,
        on_kept: Callable[[], None] = lambda: None,
    ) -> None:
        self._begin = begin
        self._new_name = new_name
        self._circuit = way_out
        self._on_kept = on_kept
        self._place: Place | None = None
        """The table into which the last marker was written."""
        self._brokers = KnownBrokers()

    def _must_keep(self, messages: Sequence[Message]) -> Steps[bool]:
        """Whether to keep a transaction's messages without trying a broker."""
        way_out = self._circuit
        if way_out is None or way_out.state is not State.DRAINING:
            return way_out is not None and way_out.state is State.OPEN
        # The rows that the transaction sees may be older than what was kept meanwhile.
        if way_out.has_lately_kept or not way_out.refused.isdisjoint(_topics_of(messages)):
            return True
        oldest = kept.select_oldest(without=way_out.refused)
        rows = yield SqlStep(oldest, is_read=True)
        return bool(rows)

    def _marker_steps(self, family: SqlFamily, *, is_long: bool) -> Steps[tuple[S, Place | None]]:
        return marking.write(
            family, self._begin, place=self._place, new_name=self._new_name, is_long=is_long
        )

    def _writing_beside(
        self, family: SqlFamily, messages: Sequence[Message], begun: list[S], *, is_long: bool
    ) -> Steps[tuple[S, Place | None]]:
        """Write the marker while the messages are being sent, so that neither waits for the other's
        server."""

        def begin(name: str) -> S:
            if begun:  # useless: the marker belongs into another table
                begun.pop().abandon()
            begun.append(self._begin(name))
            begun[0].begin(messages)
            return begun[0]

        return marking.write(
            family, begin, place=self._place, new_name=self._new_name, is_long=is_long
        )

    def find_place(self, family: SqlFamily) -> Steps[Place]:
        """Find the table of markers, for messages that are stored before their transaction
        begins."""
        return verdict.find_place(family, new_name=self._new_name())

    def record(
        self, family: SqlFamily, place: Place, sent: Stored, rows: Sequence[KeptRow]
    ) -> Steps[None]:
        """In one transaction, write the marker of kept messages that are now stored, and delete
        their rows. Raises SentMeanwhile if another process has sent them."""
        yield from kept.delete_all([row.position for row in rows])
        yield from marking.write_into(family, place, sent.key)
        yield from marking.note_brokers(family, sent.brokers, self._brokers)

    def _may_keep(self, error: BaseException) -> bool:
        """Whether to keep messages that could not be stored. If so, open the circuit."""
        if self._circuit is None or not circuit.is_unreachable(error):
            return False
        if self._circuit.fail():
            assert isinstance(error, EscrowMQError)
            _log.warning("%s", circuit.log_text(error))
        return True

    def _check_room(self, messages: Sequence[Message]) -> None:
        """Raise if more messages would be kept than allowed, or one that no broker would ever
        accept."""
        assert self._circuit is not None
        size = sum(len(message.body) for message in messages)
        if size > BUNDLE_SIZE_MAX:
            raise UsageError(
                f"bodies of {size} bytes in one transaction; {BUNDLE_SIZE_MAX} are allowed. "
                "Use several transactions, or store large bodies elsewhere"
            )
        self._begin("").check(messages)  # a row of it would block its topic
        self._circuit.keep(len(messages), topics=_topics_of(messages))

    def _keeping(self, family: SqlFamily, messages: Sequence[Message], key: str) -> Steps[None]:
        """Write messages to the database that were not sent, or could not be. If they may have been
        sent under a marker's key, the marker is changed to a rollback."""
        if key:
            yield SqlStep(tables.take_back(key))
        now_ms = SystemClock().now_ms()
        bundle = self._new_name()
        for statement in kept.keep(family, messages, bundle=bundle, now_ms=now_ms):
            yield SqlStep(statement)
        self._on_kept()


class HandOver(_HandOverSteps[StagedMessages]):
    """The hand-over of one outbox's transactions."""

    def write_marker(
        self, family: SqlFamily, run_steps: RunSteps, *, is_long: bool = False
    ) -> StagedMessages:
        """Write the marker when the first message is sent, for databases that need it so early (see
        `marking`)."""
        sent: StagedMessages
        sent, self._place = run_steps(self._marker_steps(family, is_long=is_long))
        return sent

    def send_or_keep(
        self,
        family: SqlFamily,
        run_steps: RunSteps,
        messages: Sequence[Message],
        *,
        early: StagedMessages | None = None,
        is_long: bool = False,
    ) -> StagedMessages | None:
        """Send a transaction's messages, or keep them in the database; then return None. `early`
        are the messages of a marker that was written before. If this raises, the transaction must
        be rolled back."""
        if early is not None:
            run_steps(marking.still_there(early.key))
        if run_steps(self._must_keep(messages)):
            self._check_room(messages)
            run_steps(self._keeping(family, messages, ""))
            return None
        begun = [] if early is None else [early]
        try:
            return self.store(family, run_steps, messages, begun=begun, is_long=is_long)
        except EscrowMQError as error:
            if not self._may_keep(error):
                raise
        self._check_room(messages)
        run_steps(self._keeping(family, messages, begun[0].key))
        return None

    def store_first(self, place: Place, messages: Sequence[Message]) -> StagedMessages:
        """Store kept messages before the transaction that deletes their rows (see `record`)."""
        sent = self._begin(place.name)
        sent.begin(messages)
        sent.stored()
        return sent

    def store(
        self,
        family: SqlFamily,
        run_steps: RunSteps,
        messages: Sequence[Message],
        *,
        begun: list[StagedMessages],
        then: Sequence[Statement] = (),
        is_long: bool = False,
    ) -> StagedMessages:
        """Store the messages at brokers, and write the marker unless `begun` already has one.
        Meanwhile, run the statements `then`."""
        try:
            if begun:
                begun[0].begin(messages)
            else:
                writing = self._writing_beside(family, messages, begun, is_long=is_long)
                _, self._place = run_steps(writing)
            for statement in then:
                run_steps(_single_step(statement))
        except BaseException:
            for each in begun:
                each.abandon()
            raise
        (sent,) = begun
        sent.stored()
        try:
            run_steps(marking.note_brokers(family, sent.brokers, self._brokers, is_long=is_long))
        except BaseException:
            sent.abandon()
            raise
        sent.leave()
        return sent


class AsyncHandOver(_HandOverSteps[engine.MarkedMessages]):
    """The hand-over for asyncio."""

    async def write_marker(
        self, family: SqlFamily, run_steps: RunStepsAsync
    ) -> engine.MarkedMessages:
        """Write the marker when the first message is sent, for databases that need it so early (see
        `marking`)."""
        sent: engine.MarkedMessages
        sent, self._place = await run_steps(self._marker_steps(family, is_long=False))
        return sent

    async def send_or_keep(
        self,
        family: SqlFamily,
        run_steps: RunStepsAsync,
        messages: Sequence[Message],
        *,
        early: engine.MarkedMessages | None = None,
    ) -> engine.MarkedMessages | None:
        """Send a transaction's messages, or keep them in the database; then return None. `early`
        are the messages of a marker that was written before. If this raises, the transaction must
        be rolled back."""
        if early is not None:
            await run_steps(marking.still_there(early.key))
        if await run_steps(self._must_keep(messages)):
            self._check_room(messages)
            await run_steps(self._keeping(family, messages, ""))
            return None
        begun = [] if early is None else [early]
        try:
            return await self.store(family, run_steps, messages, begun=begun)
        except EscrowMQError as error:
            if not self._may_keep(error):
                raise
        self._check_room(messages)
        await run_steps(self._keeping(family, messages, begun[0].key))
        return None

    async def store_first(self, place: Place, messages: Sequence[Message]) -> engine.MarkedMessages:
        """Store kept messages before the transaction that deletes their rows (see `record`)."""
        sent = self._begin(place.name)
        sent.begin(messages)
        await sent.stored()
        return sent

    async def store(
        self,
        family: SqlFamily,
        run_steps: RunStepsAsync,
        messages: Sequence[Message],
        *,
        begun: list[engine.MarkedMessages],
        then: Sequence[Statement] = (),
    ) -> engine.MarkedMessages:
        """Store the messages at brokers, and write the marker unless `begun` already has one.
        Meanwhile, run the statements `then`."""
        try:
            if begun:
                begun[0].begin(messages)
            else:
                writing = self._writing_beside(family, messages, begun, is_long=False)
                _, self._place = await run_steps(writing)
            for statement in then:
                await run_steps(_single_step(statement))
        except BaseException:
            for each in begun:
                each.abandon()
            raise
        (sent,) = begun
        await sent.stored()
        try:
            await run_steps(marking.note_brokers(family, sent.brokers, self._brokers))
        except BaseException:
            sent.abandon()
            raise
        sent.leave()
        return sent


def _topics_of(messages: Sequence[Message]) -> set[str]:
    return {message.topic for message in messages}


def _single_step(statement: Statement) -> Steps[None]:
    yield SqlStep(statement)
