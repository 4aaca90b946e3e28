"""Check-backs (39): a broker asks what became of a transaction, users' code answers."""

from __future__ import annotations

import asyncio
import collections
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.extensions import CHECKER
from escrowmq.base.message import Property, StoredMessage
from escrowmq.client.connection import Connection
from escrowmq.client.core.ending import check_answer_fields, judge_end
from escrowmq.client.core.message import ReceivedMessage, received
from escrowmq.client.core.sending import Outcome
from escrowmq.client.failures import is_failure
from escrowmq.client.instance import Instance
from escrowmq.client.settings import Check, ProducerOptions
from escrowmq.client.verdicts import Verdicts
from escrowmq.client.watching import Watch
from escrowmq.client.workers import Workers
from escrowmq.codec.record import decode_record
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

_REMARK: Final = "checkLocalTransactionState Exception"
"""How the peer's clients begin the remark of an answer that a check failed to give."""

_OPEN: Final = "the transaction's block is still open"
_UNKNOWN: Final = Outcome.UNKNOWN

_LISTENER_THREADS: Final = 32


class _Asked(msgspec.Struct):
    """One check-back that waits for its answer."""

    connection: Connection
    fields: dict[str, str]
    message: ReceivedMessage
    check: Check | None


class Checks:
    """Answers the check-backs of one producer group."""

    def __init__(
        self,
        instance: Instance,
        options: ProducerOptions,
        *,
        group: str,
        watch: Watch,
        verdicts: Verdicts,
    ) -> None:
        self._instance = instance
        self._options = options
        self._group = group
        self._watch = watch
        self._verdicts = verdicts
        self._waiting: collections.deque[_Asked] = collections.deque()
        self._running_count = 0
        self._is_closed = False
        self._workers = Workers(threads_max=options.checks_running_max, name="escrowmq-check")
        self._listeners = Workers(threads_max=_LISTENER_THREADS, name="escrowmq-listener")

    def open(self) -> None:
        """Begin to answer."""
        self._instance.share(Request.CHECK_TRANSACTION_STATE, self._take)

    def close(self) -> None:
        """Answer no more; the brokers will ask somebody else."""
        self._is_closed = True
        self._instance.unshare(Request.CHECK_TRANSACTION_STATE, self._take)
        self._waiting.clear()
        self._workers.close()
        self._listeners.close()

    async def run(self, work: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401
        """What a user's function returns: a coroutine function runs here, another on a thread."""
        if inspect.iscoroutinefunction(work):
            return await work(*given)
        return await _awaited(await self._listeners.run(work, *given))

    # -- inside ------------------------------------------------------------------------------

    def _take(self, connection: Connection, request: Command) -> bool:
        """Whether this check is one of ours."""
        stored = decode_record(request.body)
        if stored.properties.get(Property.PGROUP) != self._group:
            return False
        known = self._verdicts.of(stored.properties)
        check = self._checker(stored) if known is None else None
        asked = _Asked(connection, request.ext or {}, self._message(request, stored), check)
        if known is not None:
            self._instance.spawn(self._answer(asked, known, _OPEN if known is _UNKNOWN else None))
        elif check is None:
            _log.warning(
                "broker %s asks about a transaction of %r, and this producer has no check for it; "
                "pass check= or checkers= to its constructor",
                connection.address,
                stored.topic,
            )
        elif len(self._waiting) >= self._options.checks_held_max:
            _log.warning(
                "%d checks wait already; this one is dropped, the broker will ask again",
                len(self._waiting),
            )
        else:
            self._waiting.append(asked)
            self._start()
        return True

    def _message(self, request: Command, stored: StoredMessage) -> ReceivedMessage:
        message = received(stored, topic=self._instance.options.unwrap(stored.topic))
        message.broker_name = (request.ext or {}).get("bname", "")
        return message

    def _checker(self, stored: StoredMessage) -> Check | None:
        """By the handler name that the message carries, by topic, or the one for all."""
        options = self._options
        name = stored.properties.get(CHECKER, "")
        found = options.checkers.get(name) if name else None
        found = found or options.checkers.get(self._instance.options.unwrap(stored.topic))
        found = found or options.check
        if found is None and options.listener is not None:
            found = options.listener.check
        return found

    def _start(self) -> None:
        while self._waiting and self._running_count < self._options.checks_running_max:
            # Spawned first: should that be refused, the check waits on and no place is lost.
            self._instance.spawn(self._serve(self._waiting[0]))
            self._waiting.popleft()
            self._running_count += 1

    async def _serve(self, asked: _Asked) -> None:
        try:
            outcome, remark = await self._ask_user(asked)
        finally:
            self._running_count -= 1
            if not self._is_closed:
                self._start()
        if not self._is_closed:
            await self._answer(asked, outcome, remark)

    async def _ask_user(self, asked: _Asked) -> tuple[Outcome, str | None]:
        """The user's answer; UNKNOWN and the reason when there is none."""
        timeout_s = self._options.check_timeout_ms / 1000
        where = f"the check of {asked.message.topic!r} for message {asked.message.message_id}"
        work: asyncio.Future[Any] | None = None
        assert asked.check is not None
        try:
            async with asyncio.timeout(timeout_s):
                if _is_coroutine_function(asked.check):
                    with self._watch.around_check(asked.message):
                        found = await _awaited(asked.check(asked.message))
                else:
                    work = self._workers.run(self._check_watched, asked)
                    found = await _awaited(await work)
            return _outcome(found), None
        except TimeoutError:
            _log.error("%s runs for more than %.1f s; it is left alone", where, timeout_s)
            if work is not None and not self._workers.give_up(work):
                _log.error("too many checks hang; the next ones wait for this one")
            return Outcome.UNKNOWN, f"{_REMARK}: no answer within {timeout_s} s"
        except BaseException as error:
            if not is_failure(error):
                raise
            _log.exception("%s failed; the broker will ask again", where)
            return Outcome.UNKNOWN, f"{_REMARK}: {error!r}"

    def _check_watched(self, asked: _Asked) -> Any:  # noqa: ANN401 - what the user's check returns
        assert asked.check is not None
        with self._watch.around_check(asked.message):
            return asked.check(asked.message)

    async def _answer(self, asked: _Asked, outcome: Outcome, remark: str | None) -> None:
        fields = check_answer_fields(
            asked.fields, outcome, group=self._group, is_open=remark is _OPEN
        )
        connection, watch, message = asked.connection, self._watch, asked.message
        watch.before_settle(message.message_id, outcome, [message])
        error: Exception | None = None
        try:
            if outcome is Outcome.UNKNOWN:  # which no broker answers
                connection.tell(Request.END_TRANSACTION, fields, remark=remark)
            else:
                timeout_s = self._instance.options.request_timeout_ms / 1000
                reply = await connection.request(
                    Request.END_TRANSACTION, fields, timeout_s=timeout_s
                )
                error = judge_end(reply, outcome, address=connection.address)
        except EscrowMQError as raised:
            error = raised
        if error is not None:
            _log.warning("the answer to a check was not taken: %s", error)
        watch.after_settle(message.message_id, outcome, error)
        if error is None and watch.tracer is not None:
            ends = [(message, message.message_id)]
            watch.tracer.ended(ends, outcome, address=connection.address, is_from_check=True)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", function)  # noqa: B004 - an object with __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _awaited(found: Any) -> Any:  # noqa: ANN401
    """A plain function may return a coroutine."""
    return await found if inspect.isawaitable(found) else found


def _outcome(found: object) -> Outcome:
    if not isinstance(found, Outcome):
        raise UsageError(f"it returned {found!r}; Outcome.COMMIT, ROLLBACK or UNKNOWN is expected")
    return found
