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
from escrowmq.integrations.outbox.circuit import Circuit, CircuitState
from escrowmq.integrations.outbox.kept import KeptRow
from escrowmq.integrations.outbox.known_brokers import KnownBrokers
from escrowmq.integrations.outbox.marking import HasMarkerKey
from escrowmq.integrations.outbox.staged_messages import StagedMessages
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import MarkerTable, SqlFamily, Statement
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

RunSteps = Callable[[Steps[Any]], Any]
"""Runs steps inside the transaction; raises MarkerNotWritten if the database fails."""


class RunStepsAsync(Protocol):
    """`RunSteps` for asyncio."""

    async def __call__(self, steps: Steps[Any]) -> Any:  # noqa: ANN401 - what the steps lead to
        """Run the steps; return their result."""


class StorableMessages(HasMarkerKey, Protocol):
    """Messages of one transaction that can be stored at brokers, or abandoned."""

    def validate(self, messages: Sequence[Message]) -> None:
        """Raise InvalidMessage if no broker would accept one of the messages."""

    def start_storing(self, messages: Sequence[Message]) -> None:
        """Start to store the messages."""

    def abandon(self) -> None:
        """Roll back the messages, because the database will not commit."""


class StoredMessages(HasMarkerKey, Protocol):
    """Messages of one transaction that brokers have stored."""

    @property
    def broker_names(self) -> Collection[str]:
        """The brokers that have stored the messages."""


S = TypeVar("S", bound=StorableMessages)


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
        self._marker_table: MarkerTable | None = None
        """The table into which the last marker was written."""
        self._brokers = KnownBrokers()

    def _must_keep(self, messages: Sequence[Message]) -> Steps[bool]:
        """Whether to keep a transaction's messages without trying a broker."""
        way_out = self._circuit
        if way_out is None or way_out.state is not CircuitState.DRAINING:
            return way_out is not None and way_out.state is CircuitState.OPEN
        # The rows that the transaction sees may be older than what was kept meanwhile.
        if way_out.has_lately_kept or not way_out.refused.isdisjoint(_topics_of(messages)):
            return True
        oldest = kept.select_oldest(without=way_out.refused)
        rows = yield SqlStep(oldest, is_read=True)
        return bool(rows)

    def _marker_steps(
        self, family: SqlFamily, *, is_long: bool
    ) -> Steps[tuple[S, MarkerTable | None]]:
        return marking.write_marker(
            family, self._begin, place=self._marker_table, new_name=self._new_name, is_long=is_long
        )

    def _write_while_sending(
        self, family: SqlFamily, messages: Sequence[Message], begun: list[S], *, is_long: bool
    ) -> Steps[tuple[S, MarkerTable | None]]:
        """Write the marker while the messages are being sent, so that neither waits for the other's
        server."""

        def start_sending(name: str) -> S:
            if begun:  # useless: the marker belongs into another table
                begun.pop().abandon()
            begun.append(self._begin(name))
            begun[0].start_storing(messages)
            return begun[0]

        return marking.write_marker(
            family,
            start_sending,
            place=self._marker_table,
            new_name=self._new_name,
            is_long=is_long,
        )

    def find_marker_table(self, family: SqlFamily) -> Steps[MarkerTable]:
        """Find the table of markers, for messages that are stored before their transaction
        begins."""
        return verdict.find_marker_table(family, new_name=self._new_name())

    def record_stored(
        self, family: SqlFamily, place: MarkerTable, sent: StoredMessages, rows: Sequence[KeptRow]
    ) -> Steps[None]:
        """In one transaction, write the marker of kept messages that are now stored, and delete
        their rows. Raises SentByAnother if another process has sent them."""
        yield from kept.delete_existing_rows([row.position for row in rows])
        yield from marking.write_marker_into(family, place, sent.key)
        yield from marking.record_brokers(family, sent.broker_names, self._brokers)

    def _may_keep(self, error: BaseException) -> bool:
        """Whether to keep messages that could not be stored. If so, open the circuit."""
        if self._circuit is None or not circuit.is_unreachable(error):
            return False
        if self._circuit.record_unreachable():
            assert isinstance(error, EscrowMQError)
            _log.warning("%s", circuit.circuit_open_text(error))
        return True

    def _check_may_keep(self, messages: Sequence[Message]) -> None:
        """Raise if more messages would be kept than allowed, or one that no broker would ever
        accept."""
        assert self._circuit is not None
        size = sum(len(message.body) for message in messages)
        if size > BUNDLE_SIZE_MAX:
            raise UsageError(
                f"bodies of {size} bytes in one transaction; {BUNDLE_SIZE_MAX} are allowed. "
                "Use several transactions, or store large bodies elsewhere"
            )
        self._begin("").validate(messages)  # a row of it would block its topic
        self._circuit.count_kept(len(messages), topics=_topics_of(messages))

    def _keep_messages(
        self, family: SqlFamily, messages: Sequence[Message], key: str
    ) -> Steps[None]:
        """Write messages to the database that were not sent, or could not be. If they may have been
        sent under a marker's key, the marker is changed to a rollback."""
        if key:
            yield SqlStep(tables.change_to_rollback(key))
        now_ms = SystemClock().now_ms()
        bundle = self._new_name()
        for statement in kept.insert_rows(family, messages, bundle=bundle, now_ms=now_ms):
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
        sent, self._marker_table = run_steps(self._marker_steps(family, is_long=is_long))
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
            run_steps(marking.require_marker(early.key))
        if run_steps(self._must_keep(messages)):
            self._check_may_keep(messages)
            run_steps(self._keep_messages(family, messages, ""))
            return None
        begun = [] if early is None else [early]
        try:
            return self.store_with_marker(family, run_steps, messages, begun=begun, is_long=is_long)
        except EscrowMQError as error:
            if not self._may_keep(error):
                raise
        self._check_may_keep(messages)
        run_steps(self._keep_messages(family, messages, begun[0].key))
        return None

    def store_before_transaction(
        self, place: MarkerTable, messages: Sequence[Message]
    ) -> StagedMessages:
        """Store kept messages before the transaction that deletes their rows (see
        `record_stored`)."""
        sent = self._begin(place.name)
        sent.start_storing(messages)
        sent.wait_until_stored()
        return sent

    def store_with_marker(
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
                begun[0].start_storing(messages)
            else:
                writing = self._write_while_sending(family, messages, begun, is_long=is_long)
                _, self._marker_table = run_steps(writing)
            for statement in then:
                run_steps(_single_step(statement))
        except BaseException:
            for each in begun:
                each.abandon()
            raise
        (sent,) = begun
        sent.wait_until_stored()
        try:
            run_steps(
                marking.record_brokers(family, sent.broker_names, self._brokers, is_long=is_long)
            )
        except BaseException:
            sent.abandon()
            raise
        sent.leave_to_marker()
        return sent


class AsyncHandOver(_HandOverSteps[engine.MarkedMessages]):
    """The hand-over for asyncio."""

    async def write_marker(
        self, family: SqlFamily, run_steps: RunStepsAsync
    ) -> engine.MarkedMessages:
        """Write the marker when the first message is sent, for databases that need it so early (see
        `marking`)."""
        sent: engine.MarkedMessages
        sent, self._marker_table = await run_steps(self._marker_steps(family, is_long=False))
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
            await run_steps(marking.require_marker(early.key))
        if await run_steps(self._must_keep(messages)):
            self._check_may_keep(messages)
            await run_steps(self._keep_messages(family, messages, ""))
            return None
        begun = [] if early is None else [early]
        try:
            return await self.store_with_marker(family, run_steps, messages, begun=begun)
        except EscrowMQError as error:
            if not self._may_keep(error):
                raise
        self._check_may_keep(messages)
        await run_steps(self._keep_messages(family, messages, begun[0].key))
        return None

    async def store_before_transaction(
        self, place: MarkerTable, messages: Sequence[Message]
    ) -> engine.MarkedMessages:
        """Store kept messages before the transaction that deletes their rows (see
        `record_stored`)."""
        sent = self._begin(place.name)
        sent.start_storing(messages)
        await sent.wait_until_stored()
        return sent

    async def store_with_marker(
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
                begun[0].start_storing(messages)
            else:
                writing = self._write_while_sending(family, messages, begun, is_long=False)
                _, self._marker_table = await run_steps(writing)
            for statement in then:
                await run_steps(_single_step(statement))
        except BaseException:
            for each in begun:
                each.abandon()
            raise
        (sent,) = begun
        await sent.wait_until_stored()
        try:
            await run_steps(marking.record_brokers(family, sent.broker_names, self._brokers))
        except BaseException:
            sent.abandon()
            raise
        sent.leave_to_marker()
        return sent


def _topics_of(messages: Sequence[Message]) -> set[str]:
    return {message.topic for message in messages}


def _single_step(statement: Statement) -> Steps[None]:
    yield SqlStep(statement)
