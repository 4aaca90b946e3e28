"""Sends the messages kept in the database, in order, as soon as a broker can be reached.

Each transaction deletes rows and sends their messages, like any transaction of the outbox: its
marker says whether both happened, so that no message is sent twice, and none is lost, whatever dies
in between. Several processes may do this at the same time (see `kept_pass`)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import NamedTuple, Protocol

from escrowmq.client.outbox_messages import MarkedMessages
from escrowmq.errors import EscrowMQError
from escrowmq.integrations.outbox import kept
from escrowmq.integrations.outbox.circuit import IDLE_PAUSE_S, PAUSE_MAX_S, Circuit
from escrowmq.integrations.outbox.hand_over import AsyncHandOver, HandOver
from escrowmq.integrations.outbox.kept import KeptRow
from escrowmq.integrations.outbox.kept_pass import KeptPass
from escrowmq.integrations.outbox.staged_messages import StagedMessages
from escrowmq.integrations.outbox.steps import (
    Rows,
    SqlStep,
    StepFailed,
    Steps,
    run_steps,
    run_steps_async,
    to_step_failed,
)
from escrowmq.integrations.outbox.tables import SqlFamily
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

CLOSE_S = 5.0
"""Closing an outbox waits this many seconds for the relay's thread."""


class PassResult(NamedTuple):
    """The result of one pass through the kept messages."""

    sent_count: int
    """Number of messages that were sent."""
    still_kept: int
    error: Exception | None
    has_failed: bool = False
    """Whether brokers, or the database, cannot be reached."""
    refused_topics: frozenset[str] = frozenset()
    """Topics that wait behind messages that no broker accepts."""
    refusals: Mapping[int, str] = {}
    """Log texts about messages that no broker accepts, by the position of their first row."""


class Database(Protocol):
    """The user's database: the primary, not a read replica."""

    @property
    def family(self) -> SqlFamily:
        """Return the database's SQL dialect."""

    def execute(self, step: SqlStep) -> Rows:
        """Run one step on a separate connection."""

    def transaction(self) -> AbstractContextManager[Callable[[SqlStep], Rows]]:
        """Return a block that runs steps in one transaction, on a separate connection; it commits
        at the end."""


class AsyncDatabase(Protocol):
    """The user's database, for asyncio."""

    async def find_family(self) -> SqlFamily:
        """The database's SQL dialect; this may open a connection."""

    async def execute(self, step: SqlStep) -> Rows:
        """Run one step on a separate connection."""

    def transaction(
        self,
    ) -> AbstractAsyncContextManager[Callable[[SqlStep], Awaitable[Rows]]]:
        """Return a block that runs steps in one transaction, on a separate connection; it commits
        at the end."""


def run_pass(database: Database, course: HandOver, circuit: Circuit | None) -> PassResult:
    """Make one pass through the kept messages, and report progress to the outbox's circuit.
    Failures are in the result."""
    clock = SystemClock()
    walk = KeptPass(database.family, circuit)
    while not walk.is_over:
        begun_ms = clock.now_ms()
        hand_over = _send_before_deleting if walk.sends_first else _send_locked
        chosen: list[KeptRow] = []
        try:
            sent = hand_over(database, course, walk, chosen)
        except kept.SentByAnother:
            continue
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            walk.record_failure(
                chosen, _as_own_error(error), took_s=(clock.now_ms() - begun_ms) / 1000
            )
            continue
        if sent is not None:
            sent.report_commit()
            walk.record_sent(chosen)
    return _make_result(walk, run_steps(kept.query_status(database.family), database.execute))


def _send_before_deleting(
    database: Database, course: HandOver, walk: KeptPass, chosen: list[KeptRow]
) -> StagedMessages | None:
    chosen += walk.choose_rows(run_steps(_next_rows(walk), database.execute))
    if not chosen:
        return None
    messages = run_steps(kept.read_messages(chosen), database.execute)
    place = run_steps(course.find_marker_table(walk.family), database.execute)
    sent = course.store_before_transaction(place, messages)
    with _abandon_unless_left(sent) as leave, database.transaction() as execute:
        run_steps(course.record_stored(walk.family, place, sent, chosen), execute)
        leave()
    return sent


def _send_locked(
    database: Database, course: HandOver, walk: KeptPass, chosen: list[KeptRow]
) -> StagedMessages | None:
    with database.transaction() as execute:
        chosen += walk.choose_rows(run_steps(_next_rows(walk), execute))
        if not chosen:
            return None
        return course.store_with_marker(
            walk.family,
            functools.partial(run_steps, execute=execute),
            run_steps(kept.read_messages(chosen), execute),
            begun=[],
            then=kept.delete_rows([row.position for row in chosen]),
        )


async def run_pass_async(
    database: AsyncDatabase, course: AsyncHandOver, circuit: Circuit | None
) -> PassResult:
    """Make one pass through the kept messages with asyncio, and report progress to the outbox's
    circuit. Failures are in the result."""
    clock = SystemClock()
    family = await database.find_family()
    walk = KeptPass(family, circuit)
    while not walk.is_over:
        begun_ms = clock.now_ms()
        hand_over = _send_before_deleting_async if walk.sends_first else _send_locked_async
        chosen: list[KeptRow] = []
        try:
            sent = await hand_over(database, course, walk, chosen)
        except kept.SentByAnother:
            continue
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            walk.record_failure(
                chosen, _as_own_error(error), took_s=(clock.now_ms() - begun_ms) / 1000
            )
            continue
        if sent is not None:
            sent.report_commit()
            walk.record_sent(chosen)
    return _make_result(walk, await run_steps_async(kept.query_status(family), database.execute))


async def _send_before_deleting_async(
    database: AsyncDatabase, course: AsyncHandOver, walk: KeptPass, chosen: list[KeptRow]
) -> MarkedMessages | None:
    chosen += walk.choose_rows(await run_steps_async(_next_rows(walk), database.execute))
    if not chosen:
        return None
    messages = await run_steps_async(kept.read_messages(chosen), database.execute)
    place = await run_steps_async(course.find_marker_table(walk.family), database.execute)
    sent = await course.store_before_transaction(place, messages)
    with _abandon_unless_left(sent) as leave:
        async with database.transaction() as execute:
            await run_steps_async(course.record_stored(walk.family, place, sent, chosen), execute)
            leave()
    return sent


async def _send_locked_async(
    database: AsyncDatabase, course: AsyncHandOver, walk: KeptPass, chosen: list[KeptRow]
) -> MarkedMessages | None:
    async with database.transaction() as execute:
        chosen += walk.choose_rows(await run_steps_async(_next_rows(walk), execute))
        if not chosen:
            return None
        return await course.store_with_marker(
            walk.family,
            functools.partial(run_steps_async, execute=execute),
            await run_steps_async(kept.read_messages(chosen), execute),
            begun=[],
            then=kept.delete_rows([row.position for row in chosen]),
        )


@contextlib.contextmanager
def _abandon_unless_left(sent: StagedMessages | MarkedMessages) -> Iterator[Callable[[], None]]:
    """Roll the messages back if the block raises, unless it has called the yielded function: from
    then on the marker alone decides."""
    is_left = False

    def leave_to_marker() -> None:
        nonlocal is_left
        sent.leave_to_marker()
        is_left = True

    try:
        yield leave_to_marker
    except BaseException:
        if not is_left:
            sent.abandon()
        raise


def _next_rows(walk: KeptPass) -> Steps[list[KeptRow]]:
    rows = yield SqlStep(walk.next_query(), is_read=True)
    return kept.parse_rows(rows)


def _as_own_error(error: Exception) -> Exception:
    return error if isinstance(error, EscrowMQError) else to_step_failed(error)


def _make_result(walk: KeptPass, status: kept.KeptStatus) -> PassResult:
    if walk.count:
        _log.info("%d kept messages were sent, %d are left", walk.count, status.count)
    return PassResult(
        walk.count, status.count, walk.error, walk.has_failed, walk.refused_topics, walk.refusals
    )


class _PassSchedule:
    """Decides when an outbox's next pass is made."""

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit
        self._failures_count = 0
        self._refused: Collection[int] = ()
        """Positions of messages whose refusal has been logged."""
        self.pause_s = 0.0

    def record_pass(self, found: PassResult | Exception) -> None:
        """Record the result of a pass."""
        if isinstance(found, Exception) or isinstance(found.error, StepFailed):
            self.pause_s = PAUSE_MAX_S  # the database failed, which says nothing of the brokers
            error = found if isinstance(found, Exception) else found.error
            # The first time, the tables may be about to be made.
            self._log_failure(error, loud=2)
            return
        self.pause_s = self._circuit.record_pass(
            handed_over=found.sent_count,
            left=found.still_kept,
            has_failed=found.has_failed,
            refused=found.refused_topics,
        )
        self._log_failure(found.error if found.has_failed else None, loud=1)
        for position in found.refusals.keys() - self._refused:
            _log.error("%s", found.refusals[position])
        self._refused = found.refusals.keys()

    def _log_failure(self, error: Exception | None, *, loud: int) -> None:
        if error is not None:
            self._failures_count += 1
            level = logging.WARNING if self._failures_count == loud else logging.DEBUG
            _log.log(level, "kept messages cannot be sent, and are retried: %s", error)
        elif self._failures_count:
            self._failures_count = 0
            _log.info("kept messages can be sent again")

    @property
    def is_idle(self) -> bool:
        """Whether the next pass only searches for messages that other processes kept, which can
        wait."""
        return self.pause_s >= IDLE_PAUSE_S


class Relay:
    """A thread that sends kept messages, in one pass after another, while its outbox is open."""

    def __init__(self, circuit: Circuit, go: Callable[[], PassResult]) -> None:
        self._pace = _PassSchedule(circuit)
        self._go = go
        self._woken = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="escrowmq-outbox", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Start a pass soon, because a message was kept."""
        if self._pace.is_idle:
            self._woken.set()

    def stop(self) -> None:
        """End the thread soon; do not wait for it."""
        self._is_closed = True
        self._woken.set()

    def close(self) -> None:
        """End the thread, and wait for it."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            try:
                found: PassResult | Exception = self._go()
            except Exception as error:  # noqa: BLE001 - the database; tried again
                found = error
            if self._is_closed:
                return  # the failure may be due to closing
            self._pace.record_pass(found)
            self._woken.wait(self._pace.pause_s)
            self._woken.clear()
            if self._is_closed:
                return


class AsyncRelay:
    """A task that sends kept messages, in one pass after another, while its outbox is open."""

    def __init__(self, circuit: Circuit, go: Callable[[], Awaitable[PassResult]]) -> None:
        self._pace = _PassSchedule(circuit)
        self._go = go
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Start a pass soon, because a message was kept."""
        if self._pace.is_idle:
            self._woken.set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        while True:
            try:
                found: PassResult | Exception = await self._go()
            except Exception as error:  # noqa: BLE001 - the database; tried again
                found = error
            self._pace.record_pass(found)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace.pause_s):
                    await self._woken.wait()
            self._woken.clear()
