"""Sends ENDs of transactions to brokers, and makes sure that they arrive."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Final

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.connection import Connection
from escrowmq.client.core.end_attempts import EndAttempts
from escrowmq.client.core.end_request import (
    Half,
    end_fields,
    parse_transaction_id,
    transaction_id_of,
)
from escrowmq.client.core.send_retry import may_have_new_master
from escrowmq.client.core.sending import Outcome
from escrowmq.client.instance import ClientInstance
from escrowmq.client.interceptors import Ends, InterceptorCalls
from escrowmq.errors import ConnectFailed, EscrowMQError, RouteMissing, TransportError

if TYPE_CHECKING:
    from escrowmq.client.portal import FinishCallback

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0


class EndSender:
    """Sends the ENDs of one producer's transactions."""

    def __init__(
        self, instance: ClientInstance, *, timeout_ms: int, watch: InterceptorCalls
    ) -> None:
        self._instance = instance
        self._timeout_ms = timeout_ms
        self._interceptor_calls = watch

    async def settle(
        self, half: Half, outcome: Outcome, *, count: int = 0, ends: Ends = ()
    ) -> None:
        """Send the END; return when the broker has confirmed it. Raises OutcomeUnknown if it has
        not, OutcomeContradicted if the transaction had ended another way. UNKNOWN leaves the
        outcome to the check. `ends` are the transaction's messages, as far as they are known."""
        watch = self._interceptor_calls
        if not watch:
            await self._settle_at_broker(half, outcome, count)
            return
        transaction_id = transaction_id_of(half)
        watch.before_settle(transaction_id, outcome, [message for message, _ in ends])
        try:
            await self._settle_at_broker(half, outcome, count)
        except BaseException as error:
            watch.after_settle(transaction_id, outcome, error)
            raise
        watch.after_settle(transaction_id, outcome, None)
        if watch.tracer is not None:
            address = self._instance.book.address(half.broker_name) or half.broker_name
            watch.tracer.record_end(ends, outcome, address=address)

    def try_settle(
        self, half: Half, outcome: Outcome, *, count: int, finish: FinishCallback[None]
    ) -> bool:
        """Send the END immediately, without a coroutine if only the broker's answer must be
        awaited. Return False, having done nothing, if that is impossible. `finish` gets the error
        that `settle` would raise, or a coroutine that sends the END again."""
        connection = self._ready_connection(half)
        is_told = outcome is Outcome.COMMIT or outcome is Outcome.ROLLBACK
        if self._interceptor_calls or not is_told or connection is None:
            return False
        instance = self._instance
        telling = self._make_attempts(half, outcome, count)

        def on_answer(reply: Command | None, error: TransportError | None) -> None:
            came = reply or error
            assert came is not None
            try:
                pause_s = telling.report_attempt(
                    came, now=instance.now(), address=connection.address
                )
            except EscrowMQError as raised:
                finish(None, raised)
                return
            if pause_s is None:
                finish(None)
            else:
                finish(None, None, functools.partial(self._send_end, half, telling, pause_s))

        timeout_s = telling.left_s(instance.now())
        try:
            connection.request_with_callback(
                Request.END_TRANSACTION, telling.fields, b"", timeout_s=timeout_s, done=on_answer
            )
        except EscrowMQError:
            return False  # which `settle` gets as well, and judges
        return True

    async def settle_by_id(self, token: str, outcome: Outcome) -> None:
        """Send the END of a detached transaction, which is known only by its id; otherwise like
        `settle`."""
        await self.settle(parse_transaction_id(token), outcome)

    # -- inside ------------------------------------------------------------------------------

    async def _settle_at_broker(self, half: Half, outcome: Outcome, count: int) -> None:
        if outcome is Outcome.UNKNOWN:
            self._send_unknown(half)
        else:
            await self._send_until_confirmed(half, outcome, count)

    def _send_unknown(self, half: Half) -> None:
        """Report UNKNOWN to the broker, as RocketMQ's clients do; the broker only logs it. Do not
        wait for a connection, because an interrupt may have ended the block."""
        connection = self._ready_connection(half)
        if connection is None:
            return
        fields = end_fields(half, Outcome.UNKNOWN)
        try:
            connection.send_one_way(Request.END_TRANSACTION, fields)
        except EscrowMQError as error:
            _log.info("an unknown outcome was not reported to the broker: %s", error)

    async def _send_until_confirmed(self, half: Half, outcome: Outcome, count: int) -> None:
        await self._send_end(half, self._make_attempts(half, outcome, count), 0.0)

    def _make_attempts(self, half: Half, outcome: Outcome, count: int) -> EndAttempts:
        started = self._instance.now()
        return EndAttempts(half, outcome, count=count, timeout_ms=self._timeout_ms, started=started)

    async def _send_end(self, half: Half, telling: EndAttempts, pause_s: float | None) -> None:
        """Send the END after a pause, and repeat it while that may help."""
        is_elsewhere = pause_s is not None and pause_s > 0
        while pause_s is not None:
            if pause_s:
                await asyncio.sleep(pause_s)
            if is_elsewhere:
                await self._refresh_brokers(half)
            came, address = await self._attempt_end(half, telling)
            is_elsewhere = isinstance(came, Command) and may_have_new_master(came)
            pause_s = telling.report_attempt(came, now=self._instance.now(), address=address)

    async def _attempt_end(
        self, half: Half, telling: EndAttempts
    ) -> tuple[Command | TransportError | RouteMissing, str]:
        """Make one attempt; return its result and its target."""
        instance = self._instance
        left_s = telling.left_s(instance.now())
        try:
            connection = self._ready_connection(half)
            if connection is None:
                async with asyncio.timeout(left_s):
                    address = await self._find_address(half)
                    connection = await instance.pool.get(address)
                left_s = telling.left_s(instance.now())
            code = Request.END_TRANSACTION
            reply = await connection.request(code, telling.fields, timeout_s=left_s)
        except TimeoutError:
            return ConnectFailed(f"broker {half.broker_name} cannot be reached"), ""
        except (TransportError, RouteMissing) as error:
            return error, ""
        return reply, connection.address

    async def _refresh_brokers(self, half: Half) -> None:
        """Fetch the cluster's brokers again, because another broker may be the master by now."""
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._instance.refresh_brokers()
        except (EscrowMQError, TimeoutError) as error:
            _log.debug(
                "the cluster's brokers could not be refreshed: %s (%s)", error, half.broker_name
            )

    def _ready_connection(self, half: Half) -> Connection | None:
        """Return a connection to the transaction's broker if one is ready; otherwise None."""
        address = self._instance.book.address(half.broker_name)
        return self._instance.pool.get_ready(address) if address is not None else None

    async def _find_address(self, half: Half) -> str:
        """Return the address of the transaction's broker, looked up again if it is not
        connected."""
        instance = self._instance
        connection = self._ready_connection(half)
        if connection is not None:
            return connection.address
        try:
            await instance.refresh_brokers()
        except EscrowMQError as error:
            if instance.book.address(half.broker_name) is None:
                raise
            _log.debug("the cluster's brokers could not be refreshed: %s", error)
        return instance.address_of(half.broker_name)
