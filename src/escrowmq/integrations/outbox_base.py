"""The base of all outboxes. Besides sending, they answer checks, create the tables, and delete old
rows."""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import Awaitable, Callable, Collection

from escrowmq.base.own_properties import MARKER, OWNER
from escrowmq.client import producer as engine
from escrowmq.client.blocking.producer import Producer
from escrowmq.client.checking import NoMarkerFound, OpenableCheck
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.codec.hashes import account_mark
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import expiry, kept, known_brokers, schema, verdict
from escrowmq.integrations.outbox.circuit import Circuit
from escrowmq.integrations.outbox.expiry import KEEP_DEFAULT, timedelta_ms
from escrowmq.integrations.outbox.hand_over import AsyncHandOver, HandOver
from escrowmq.integrations.outbox.kept import KeptStatus
from escrowmq.integrations.outbox.steps import StepFailed, Steps, run_steps, run_steps_async
from escrowmq.integrations.outbox.tables import MarkerTable, SqlFamily
from escrowmq.integrations.outbox.verdict import CheckAnswer
from escrowmq.integrations.outbox_relay import (
    AsyncDatabase,
    AsyncRelay,
    Database,
    PassResult,
    Relay,
    run_pass,
    run_pass_async,
)
from escrowmq.net.clock import SystemClock


def make_circuit(when_away: str, kept_max: int) -> Circuit | None:
    """Return the circuit of an outbox that keeps messages; None for one that refuses them."""
    if when_away not in ("refuse", "keep"):
        raise UsageError(
            f"when_away={when_away!r}; 'refuse' (the transaction fails if no broker takes "
            "its messages) or 'keep' (they are kept in the database) is expected"
        )
    return Circuit(kept_max=kept_max) if when_away == "keep" else None


def new_database_name() -> str:
    """Make a name for a database that has none yet."""
    return secrets.token_hex(16)


class _CheckAnswers:
    """Answers checks; the part that blocking and asyncio databases share."""

    def __init__(self, producer: Producer | engine.Producer) -> None:
        self._own_mark = account_mark(producer.account) if producer.account else ""
        self._marker_table: MarkerTable | None = None
        """The table of markers that the last check found."""

    def _answer_steps(self, family: SqlFamily, message: ReceivedMessage) -> Steps[CheckAnswer]:
        # Another account's half cannot be ours, unless our account has changed: write no row for
        # it.
        owner = message.properties.get(OWNER, "")
        return verdict.answer_check(
            family,
            message.system[MARKER],
            place=self._marker_table,
            new_name=new_database_name(),
            may_write=not owner or owner == self._own_mark,
        )

    def _outcome_of(self, answer: CheckAnswer) -> Outcome | NoMarkerFound:
        self._marker_table = answer.place
        if answer.outcome is not None:
            return answer.outcome
        return NoMarkerFound(answer.place.name if answer.place is not None else "")


class OutboxBase(_CheckAnswers):
    """The base of outboxes with blocking databases."""

    def __init__(
        self, producer: Producer, database: Database, circuit: Circuit | None = None
    ) -> None:
        super().__init__(producer)
        self._producer = producer
        self._database = database
        # A repeat might store a kept message twice; the relay tries again under another key.
        self._relaying = HandOver(
            lambda name: producer.marked_messages(name).without_resends(),
            new_name=new_database_name,
        )
        self._circuit = circuit
        self._relay: Relay | None = None
        self._has_ended = False
        producer.add_database_check(self._answer_check, on_close=self._stop)
        try:
            self._relay = Relay(circuit, self._run_pass) if circuit is not None else None
        except BaseException:
            producer.remove_database_check(self._answer_check)
            raise
        if self._has_ended:  # the producer was closed meanwhile
            self._stop()

    def create_tables(self) -> None:
        """Create missing tables, for programs without migrations."""
        database = self._database
        steps = schema.create_tables(database.family, new_name=new_database_name())
        self._marker_table = run_steps(steps, database.execute)

    def find_name(self) -> str:
        """The database's name, which markers carry. Raises StepFailed if the database is
        unreachable, or the tables are missing."""
        database = self._database
        place = run_steps(
            verdict.find_marker_table(database.family, new_name=new_database_name()),
            database.execute,
        )
        self._marker_table = place
        return place.name

    def forget_markers(
        self, *, keep: dt.timedelta = KEEP_DEFAULT, gone: Collection[str] = ()
    ) -> int:
        """Delete older markers that no broker can ask for; return how many. Once a day is enough.
        Raises RouteMissing, and deletes nothing, while a broker that has taken messages of this
        database does not answer; `gone` names brokers that are gone for good."""
        keep_ms = timedelta_ms(keep)
        expiry.check_keep_time(keep_ms)
        found = self._producer.unsettled()
        steps = expiry.forget_markers(
            self._database.family,
            keep_ms=keep_ms,
            now_ms=SystemClock().now_ms(),
            needed=found.keys,
            brokers=found.brokers,
            gone=gone,
        )
        count = run_steps(steps, self._database.execute)
        if gone:
            known_brokers.forget_known_brokers()
        return count

    def forget_handled(self, *, keep: dt.timedelta = KEEP_DEFAULT) -> int:
        """Delete the records of messages that were handled longer than `keep` ago; return how
        many."""
        now_ms = SystemClock().now_ms()
        steps = expiry.forget_handled(
            self._database.family, keep_ms=timedelta_ms(keep), now_ms=now_ms
        )
        return run_steps(steps, self._database.execute)

    def kept(self) -> KeptStatus:
        """The messages kept in the database until a broker can be reached (`when_away="keep"`)."""
        return run_steps(kept.query_status(self._database.family), self._database.execute)

    def hand_over_kept(self) -> int:
        """Send the kept messages now, as far as brokers accept them; return how many. With
        `when_away="keep"`, this also happens automatically."""
        found = self._run_pass()
        if found.error is not None:
            raise found.error
        return found.sent_count

    def close(self) -> None:
        """Answer no more checks from this database, and refuse sends. Closing the producer does the
        same."""
        self._producer.remove_database_check(self._answer_check)
        self._stop()
        if self._relay is not None:
            self._relay.close()

    def _stop(self) -> None:
        """Stop the relay and refuse sends, because the outbox or its producer is closed."""
        self._has_ended = True
        self._refuse_sends()
        if self._relay is not None:
            self._relay.stop()

    def _refuse_sends(self) -> None:
        """Refuse further sends."""

    def _run_pass(self) -> PassResult:
        return run_pass(self._database, self._relaying, self._circuit)

    def _wake_relay(self) -> None:
        """Wake the relay, because messages were kept in the database."""
        if self._relay is not None:
            self._relay.wake()

    def _answer_check(self, message: ReceivedMessage) -> Outcome | NoMarkerFound:
        database = self._database
        try:
            answer = run_steps(self._answer_steps(database.family, message), database.execute)
        except StepFailed as error:
            return NoMarkerFound(error=str(error))
        return self._outcome_of(answer)


class _AsyncCheck(OpenableCheck):
    """The check of an asyncio outbox. The outbox may be made before the event loop of its producer
    runs, so its relay begins when the producer is opened."""

    def __init__(
        self,
        check: Callable[[ReceivedMessage], Awaitable[Outcome | NoMarkerFound]],
        begin_relay: Callable[[], None],
    ) -> None:
        self._check = check
        self._begin_relay = begin_relay

    def on_open(self) -> None:
        self._begin_relay()

    async def __call__(self, message: ReceivedMessage) -> Outcome | NoMarkerFound:
        return await self._check(message)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AsyncOutboxBase(_CheckAnswers):
    """The base of outboxes with asyncio databases."""

    def __init__(
        self, producer: engine.Producer, database: AsyncDatabase, circuit: Circuit | None = None
    ) -> None:
        super().__init__(producer)
        self._producer = producer
        self._database = database
        self._relaying = AsyncHandOver(
            lambda name: producer.marked_messages(name).without_resends(),
            new_name=new_database_name,
        )
        self._circuit = circuit
        self._relay = AsyncRelay(circuit, self._run_pass) if circuit is not None else None
        self._relay_task: asyncio.Task[None] | None = None
        self._answering = _AsyncCheck(self._answer_check, self._begin_relay)
        producer.add_database_check(self._answering, on_close=self._refuse_sends)
        try:
            if _is_on_loop():  # else the producer is not open yet, and will tell
                self._begin_relay()
        except BaseException:
            producer.remove_database_check(self._answering)
            raise

    async def create_tables(self) -> None:
        """Create missing tables, for programs without migrations."""
        database = self._database
        steps = schema.create_tables(await database.find_family(), new_name=new_database_name())
        self._marker_table = await run_steps_async(steps, database.execute)

    async def find_name(self) -> str:
        """The database's name, which markers carry. Raises StepFailed if the database is
        unreachable, or the tables are missing."""
        database = self._database
        steps = verdict.find_marker_table(
            await database.find_family(), new_name=new_database_name()
        )
        self._marker_table = place = await run_steps_async(steps, database.execute)
        return place.name

    async def forget_markers(
        self, *, keep: dt.timedelta = KEEP_DEFAULT, gone: Collection[str] = ()
    ) -> int:
        """Delete older markers that no broker can ask for; return how many. Once a day is enough.
        Raises RouteMissing, and deletes nothing, while a broker that has taken messages of this
        database does not answer; `gone` names brokers that are gone for good."""
        keep_ms = timedelta_ms(keep)
        expiry.check_keep_time(keep_ms)
        found = await self._producer.unsettled()
        steps = expiry.forget_markers(
            await self._database.find_family(),
            keep_ms=keep_ms,
            now_ms=SystemClock().now_ms(),
            needed=found.keys,
            brokers=found.brokers,
            gone=gone,
        )
        count = await run_steps_async(steps, self._database.execute)
        if gone:
            known_brokers.forget_known_brokers()
        return count

    async def forget_handled(self, *, keep: dt.timedelta = KEEP_DEFAULT) -> int:
        """Delete the records of messages that were handled longer than `keep` ago; return how
        many."""
        now_ms = SystemClock().now_ms()
        family = await self._database.find_family()
        steps = expiry.forget_handled(family, keep_ms=timedelta_ms(keep), now_ms=now_ms)
        return await run_steps_async(steps, self._database.execute)

    async def kept(self) -> KeptStatus:
        """The messages kept in the database until a broker can be reached (`when_away="keep"`)."""
        family = await self._database.find_family()
        return await run_steps_async(kept.query_status(family), self._database.execute)

    async def hand_over_kept(self) -> int:
        """Send the kept messages now, as far as brokers accept them; return how many. With
        `when_away="keep"`, this also happens automatically."""
        found = await self._run_pass()
        if found.error is not None:
            raise found.error
        return found.sent_count

    def close(self) -> None:
        """Answer no more checks from this database, and refuse sends. Closing the producer does the
        same. Not a coroutine: there is nothing to wait for."""
        self._producer.remove_database_check(self._answering)
        self._refuse_sends()
        if self._relay_task is not None:
            self._relay_task.cancel()

    def _refuse_sends(self) -> None:
        """Refuse further sends."""

    async def _run_pass(self) -> PassResult:
        return await run_pass_async(self._database, self._relaying, self._circuit)

    def _begin_relay(self) -> None:
        if self._relay is not None and self._relay_task is None:
            self._relay_task = self._producer.instance.keep_running(
                "an outbox's relay", self._relay.run
            )

    def _wake_relay(self) -> None:
        """Wake the relay, because messages were kept in the database."""
        if self._relay is not None:
            self._begin_relay()
            self._relay.wake()

    async def _answer_check(self, message: ReceivedMessage) -> Outcome | NoMarkerFound:
        database = self._database
        try:
            steps = self._answer_steps(await database.find_family(), message)
            answer = await run_steps_async(steps, database.execute)
        except StepFailed as error:
            return NoMarkerFound(error=str(error))
        return self._outcome_of(answer)
