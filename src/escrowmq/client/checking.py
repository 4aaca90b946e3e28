"""Check-backs (39): a broker asks for a transaction's outcome, and user code answers."""

from __future__ import annotations

import asyncio
import collections
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Property, StoredMessage
from escrowmq.base.own_properties import CHECKER, MARKER
from escrowmq.client.connection import Connection
from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.end_request import check_answer_fields, judge_end
from escrowmq.client.core.message import ReceivedMessage, to_received_message
from escrowmq.client.core.sending import Outcome
from escrowmq.client.core.verdicts import KnownOutcomes
from escrowmq.client.instance import ClientInstance
from escrowmq.client.interceptors import InterceptorCalls
from escrowmq.client.producer_settings import Check, ProducerOptions
from escrowmq.client.user_failures import is_user_failure
from escrowmq.client.workers import Workers
from escrowmq.codec.record import decode_record
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

_REMARK: Final = "checkLocalTransactionState Exception"
"""The beginning of the remark with which RocketMQ's clients report a failed check."""

_OPEN: Final = "the transaction's block is still open"
_UNKNOWN: Final = Outcome.UNKNOWN

_LISTENER_THREADS: Final = 32


DATABASE_CHECKS_MAX: Final = 8
"""At most this many checks run in databases at the same time, so that one that waits for a lock
does not block the others."""

_NO_DATABASE: Final = "the marker is of a database that this producer has no outbox for"
_UNREACHABLE: Final = "a database that may have the marker cannot be queried"


class NoMarkerFound(NamedTuple):
    """The answer of a database that does not have the marker, or that could not be queried."""

    name: str = ""
    """The name of this database. The marker names another one."""
    error: str = ""
    """Why the database could not be queried; empty if it could."""


DatabaseCheck = Callable[
    [ReceivedMessage], "Outcome | NoMarkerFound | Awaitable[Outcome | NoMarkerFound | None] | None"
]
"""A function that answers a check from a database; None means that the marker belongs to another
database."""


@runtime_checkable
class OpenableCheck(Protocol):
    """A database's check that also starts work of its own when the producer is opened."""

    def on_open(self) -> None:
        """Called on the producer's event loop while the producer is opened."""


class _PendingCheck(msgspec.Struct):
    """A check-back that is waiting for its answer."""

    connection: Connection
    fields: dict[str, str]
    message: ReceivedMessage
    checks: Sequence[Check | DatabaseCheck]
    """The functions to try in order; the first answer that knows the outcome decides."""
    elsewhere: list[NoMarkerFound] = []
    """The databases asked so far that do not have the marker."""


class _CheckQueue:
    """The queue of checks of one kind, and how many of them may run at the same time."""

    def __init__(self, *, running_max: int, name: str) -> None:
        self.waiting: collections.deque[_PendingCheck] = collections.deque()
        self.running_max = running_max
        self.running_count = 0
        self.is_starting = False
        self.workers = Workers(threads_max=running_max, name=name)

    def close(self) -> None:
        """Drop the waiting checks, and start no more."""
        self.waiting.clear()
        self.workers.close()


class CheckAnswerer:
    """Answers the check-backs that brokers send to one producer group."""

    def __init__(
        self,
        instance: ClientInstance,
        options: ProducerOptions,
        *,
        group: str,
        watch: InterceptorCalls,
        verdicts: KnownOutcomes,
    ) -> None:
        self._instance = instance
        self._options = options
        self._group = group
        self._interceptor_calls = watch
        self._verdicts = verdicts
        self.databases: dict[DatabaseCheck, Callable[[], object] | None] = {}
        """The databases that answer for messages with a marker, each with the function to call when
        it is unregistered."""
        self._is_closed = False
        self._queue = _CheckQueue(running_max=options.checks_running_max, name="escrowmq-check")
        self._database_queue = _CheckQueue(running_max=DATABASE_CHECKS_MAX, name="escrowmq-marker")
        self._listeners = Workers(threads_max=_LISTENER_THREADS, name="escrowmq-listener")

    def open(self) -> None:
        """Start to answer checks."""
        self._instance.add_shared_handler(Request.CHECK_TRANSACTION_STATE, self._on_check)
        for check in [*self.databases]:
            if isinstance(check, OpenableCheck):
                check.on_open()

    def close(self) -> None:
        """Stop answering checks; brokers will ask other producers of the group."""
        self._is_closed = True
        self._instance.remove_shared_handler(Request.CHECK_TRANSACTION_STATE, self._on_check)
        self._queue.close()
        self._database_queue.close()
        self._listeners.close()
        databases, self.databases = self.databases, {}
        for on_close in databases.values():
            if on_close is not None:
                on_close()

    async def run_user_code(self, work: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401
        """Call a user's function and return its result: coroutine functions run on this loop,
        others on a thread."""
        if is_coroutine(work):
            return await work(*given)
        return await _await_if_needed(await self._listeners.run(work, *given))

    # -- inside ------------------------------------------------------------------------------

    def _on_check(self, connection: Connection, request: Command) -> bool:
        """Queue a check for answering; return False if it belongs to another producer."""
        stored = decode_record(request.body)
        if stored.properties.get(Property.PGROUP) != self._group:
            return False
        known = self._verdicts.outcome_of(stored.properties)
        checks = self._functions_for(stored) if known is None else ()
        asked = _PendingCheck(
            connection, request.ext or {}, self._to_received_message(request, stored), checks
        )
        if known is not None:
            is_open = known is _UNKNOWN
            remark = _OPEN if is_open else None
            self._instance.spawn(self._send_answer(asked, known, remark, is_open=is_open))
        elif checks:
            self._enqueue(
                asked, self._database_queue if MARKER in stored.properties else self._queue
            )
        elif MARKER in stored.properties:
            self._instance.spawn(self._answer_no_database(asked))
        else:
            _log.warning(
                "broker %s asks about a transaction of %r, and this producer has no check for it; "
                "pass check= or checkers= to its constructor",
                connection.address,
                stored.topic,
            )
        return True

    def _functions_for(self, stored: StoredMessage) -> Sequence[Check | DatabaseCheck]:
        if MARKER in stored.properties:
            return tuple(self.databases)  # only the marker knows the outcome
        check = self._find_checker(stored)
        return (check,) if check is not None else ()

    def _enqueue(self, asked: _PendingCheck, line: _CheckQueue) -> None:
        if len(line.waiting) >= self._options.checks_held_max:
            _log.warning(
                "%d checks are already waiting; this one is dropped, and the broker will ask again",
                len(line.waiting),
            )
            return
        line.waiting.append(asked)
        self._start_waiting(line)

    def _to_received_message(self, request: Command, stored: StoredMessage) -> ReceivedMessage:
        message = to_received_message(
            stored, topic=self._instance.options.without_namespace(stored.topic)
        )
        message.broker_name = (request.ext or {}).get("bname", "")
        return message

    def _find_checker(self, stored: StoredMessage) -> Check | None:
        """Return the user's checker for a half: the one that its message names, else the one for
        its topic, else the one for all."""
        options = self._options
        name = stored.properties.get(CHECKER, "")
        found = options.checkers.get(name) if name else None
        found = found or options.checkers.get(
            self._instance.options.without_namespace(stored.topic)
        )
        found = found or options.check
        if found is None and options.listener is not None:
            found = options.listener.check
        return found

    def _start_waiting(self, line: _CheckQueue) -> None:
        # A task may run before `spawn` returns (asyncio.eager_task_factory), and come here again.
        if line.is_starting:
            return
        line.is_starting = True
        try:
            while line.waiting and line.running_count < line.running_max:
                asked = line.waiting.popleft()
                line.running_count += 1
                try:
                    self._instance.spawn(self._run_check(asked, line))
                except EscrowMQError:  # it keeps waiting, and no slot is lost
                    line.waiting.appendleft(asked)
                    line.running_count -= 1
                    raise
        finally:
            line.is_starting = False

    async def _run_check(self, asked: _PendingCheck, line: _CheckQueue) -> None:
        outcome: Outcome | None = None
        remark: str | None = None
        try:
            outcome, remark = await self._run_all_checks(asked, line.workers)
        finally:
            line.running_count -= 1
            if not self._is_closed:
                self._start_waiting(line)
        if self._is_closed:
            return
        if outcome is None:
            await self._answer_no_database(asked)
        else:
            # If the database says "unknown", the transaction is still open there, or the database
            # will know it once it is back. Such checks must not be counted, and no other member of
            # the group knows more.
            is_open = line is self._database_queue and outcome is _UNKNOWN
            await self._send_answer(asked, outcome, remark, is_open=is_open)

    async def _run_all_checks(
        self, asked: _PendingCheck, workers: Workers
    ) -> tuple[Outcome | None, str | None]:
        """Run the checks in order, and return the first outcome that is known. Otherwise return
        UNKNOWN if a check said so, and None if no database has the marker."""
        open_answer: tuple[Outcome | None, str | None] = None, None
        for check in asked.checks:
            found, remark = await self._run_user_check(asked.message, check, workers)
            if isinstance(found, NoMarkerFound):
                asked.elsewhere.append(found)
            elif found is _UNKNOWN:
                open_answer = found, remark
            elif found is not None:
                return found, remark
        return open_answer

    async def _answer_no_database(self, asked: _PendingCheck) -> None:
        message = asked.message
        errors = [each.error for each in asked.elsewhere if each.error]
        if errors:
            _log.warning(
                "the outcome of message %s of %r is unknown, because a database cannot be queried: "
                    "%s; the broker will ask again",
                message.message_id, message.topic, errors[0],
            )  # fmt: skip
            await self._send_answer(asked, Outcome.UNKNOWN, _UNREACHABLE, is_open=True)
            return
        names = ", ".join(each.name for each in asked.elsewhere)
        _log.warning(
            "broker %s asks about message %s of %r, whose outcome is in the database %s: no "
                "outbox of this producer has it (%s). Give each service a producer group of its "
                "own, or an outbox for each of the group's databases to every process of the "
                "group; if each schema has tables, and transactions change the schema, give the "
                "outbox schema=",
            asked.connection.address, message.message_id, message.topic,
            message.system[MARKER].partition(":")[0],
            f"the outboxes of this producer have {names}" if names else "it has no outbox",
        )  # fmt: skip
        await self._send_answer(asked, Outcome.UNKNOWN, _NO_DATABASE)

    async def _run_user_check(
        self, message: ReceivedMessage, check: Check | DatabaseCheck, workers: Workers
    ) -> tuple[Outcome | NoMarkerFound | None, str | None]:
        """Call the user's check and return its answer; UNKNOWN and the reason if it gives none."""
        timeout_s = self._options.check_timeout_ms / 1000
        where = f"the check of {message.topic!r} for message {message.message_id}"
        work: asyncio.Future[Any] | None = None
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                if is_coroutine(check):
                    with self._interceptor_calls.around_check(message):
                        found = await _await_if_needed(check(message))
                else:
                    work = workers.run(self._call_with_interceptors, check, message)
                    found = await _await_if_needed(await work)
            if check in self.databases and (found is None or isinstance(found, NoMarkerFound)):
                return found, None
            return _require_outcome(found)
        except BaseException as error:
            # A check may itself raise TimeoutError, because its database does not answer, before
            # the limit has expired.
            if isinstance(error, TimeoutError) and limit.expired():
                _log.error(
                    "%s has been running for more than %.1f s; it is abandoned", where, timeout_s
                )
                if work is not None and not workers.abandon(work):
                    _log.error("too many checks hang; further ones wait for this one")
                return Outcome.UNKNOWN, f"{_REMARK}: no answer within {timeout_s} s"
            if not is_user_failure(error):
                raise
            _log.exception("%s failed; the broker will ask again", where)
            return Outcome.UNKNOWN, f"{_REMARK}: {error!r}"

    def _call_with_interceptors(
        self, check: Check | DatabaseCheck, message: ReceivedMessage
    ) -> Any:  # noqa: ANN401 - what the user's check returns
        with self._interceptor_calls.around_check(message):
            return check(message)

    async def _send_answer(
        self, asked: _PendingCheck, outcome: Outcome, remark: str | None, *, is_open: bool = False
    ) -> None:
        fields = check_answer_fields(asked.fields, outcome, group=self._group, is_open=is_open)
        connection, watch, message = asked.connection, self._interceptor_calls, asked.message
        watch.before_settle(message.message_id, outcome, [message])
        error: Exception | None = None
        try:
            if outcome is Outcome.UNKNOWN:  # which no broker answers
                connection.send_one_way(Request.END_TRANSACTION, fields, remark=remark)
            else:
                timeout_s = self._instance.options.request_timeout_ms / 1000
                reply = await connection.request(
                    Request.END_TRANSACTION, fields, timeout_s=timeout_s
                )
                error = judge_end(reply, outcome, address=connection.address)
        except EscrowMQError as raised:
            error = raised
        if error is not None:
            _log.warning("the answer to a check was not accepted: %s", error)
        watch.after_settle(message.message_id, outcome, error)
        if error is None and watch.tracer is not None:
            ends = [(message, message.message_id)]
            watch.tracer.record_end(ends, outcome, address=connection.address, is_from_check=True)


async def _await_if_needed(found: Any) -> Any:  # noqa: ANN401
    """Return what the user's function returned; if that is a coroutine, await it first."""
    return await found if inspect.isawaitable(found) else found


def _require_outcome(found: object) -> tuple[Outcome, None]:
    if not isinstance(found, Outcome):
        raise UsageError(f"it returned {found!r}; Outcome.COMMIT, ROLLBACK or UNKNOWN is expected")
    return found, None
