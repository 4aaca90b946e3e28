"""Tells brokers how transactions end, and makes sure that they have heard it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from escrowmq.base.codes import Request, Response
from escrowmq.client.connection import Connection
from escrowmq.client.core.ending import Half, end_fields, half_of_token, judge_end, token_of
from escrowmq.client.core.sending import Outcome
from escrowmq.client.instance import Instance
from escrowmq.client.watching import Ends, Watch
from escrowmq.errors import (
    ConnectFailed,
    EscrowMQError,
    IllegalOperation,
    OutcomeContradicted,
    OutcomeUnknown,
    PermissionDenied,
    RouteMissing,
    TransportError,
)

_log = logging.getLogger(__name__)

_PAUSE_FIRST_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5
_FROM_CHECK: Final = "fromTransactionCheck"
_TRUE: Final = "true"
_BUSY: Final = frozenset({Response.SYSTEM_BUSY, Response.SERVICE_NOT_AVAILABLE, Response.GO_AWAY})


class Settler:
    """Ends transactions of one producer."""

    def __init__(self, instance: Instance, *, timeout_ms: int, watch: Watch) -> None:
        self._instance = instance
        self._timeout_ms = timeout_ms
        self._watch = watch

    async def settle(
        self, half: Half, outcome: Outcome, *, count: int = 0, ends: Ends = ()
    ) -> None:
        """Returns when the broker has confirmed it. OutcomeUnknown when it has not,
        OutcomeContradicted when the transaction had ended another way. UNKNOWN only leaves the
        transaction to its check. `ends` are its messages, as far as they are known."""
        watch = self._watch
        if not watch:
            await self._settle(half, outcome, count)
            return
        transaction_id = token_of(half)
        watch.before_settle(transaction_id, outcome, [message for message, _ in ends])
        try:
            await self._settle(half, outcome, count)
        except BaseException as error:
            watch.after_settle(transaction_id, outcome, error)
            raise
        watch.after_settle(transaction_id, outcome, None)
        if watch.tracer is not None:
            address = self._instance.book.address(half.broker_name) or half.broker_name
            watch.tracer.ended(ends, outcome, address=address)

    async def settle_token(self, token: str, outcome: Outcome) -> None:
        """The same for a detached transaction."""
        await self.settle(half_of_token(token), outcome)

    # -- inside ------------------------------------------------------------------------------

    async def _settle(self, half: Half, outcome: Outcome, count: int) -> None:
        if outcome is Outcome.UNKNOWN:
            self._leave_open(half)
        else:
            await self._confirm(half, outcome, count)

    def _leave_open(self, half: Half) -> None:
        """RocketMQ's clients tell this too, so that the broker's log shows it. It changes nothing,
        so nobody waits for a connection: perhaps an interrupt ended the block."""
        connection = self._known(half)
        if connection is None:
            return
        fields = end_fields(half, Outcome.UNKNOWN)
        try:
            connection.tell(Request.END_TRANSACTION, fields)
        except EscrowMQError as error:
            _log.info("the broker was not told that an outcome is not known yet: %s", error)

    async def _confirm(self, half: Half, outcome: Outcome, count: int) -> None:
        deadline = self._instance.now() + self._timeout_ms / 1000
        fields = end_fields(half, outcome, count=count if outcome is Outcome.COMMIT else 0)
        pause_s = _PAUSE_FIRST_S
        while True:
            failure = await self._once(half, outcome, fields, deadline)
            if failure is None:
                return
            if isinstance(failure, OutcomeContradicted | PermissionDenied):
                raise failure
            if isinstance(failure, IllegalOperation) and fields[_FROM_CHECK] != _TRUE:
                # Past the time of its `check_after`, a broker takes the end of a transaction as the
                # answer to a check alone (EndTransactionProcessor.rejectCommitOrRollback, 5.3.3).
                fields = {**fields, _FROM_CHECK: _TRUE}
                continue
            left_s = deadline - self._instance.now()
            if left_s <= pause_s or not self._may_repeat(half, failure):
                raise OutcomeUnknown(
                    f"the broker {half.broker_name} did not confirm the {outcome.name} of "
                    f"transaction {half.unique_key or token_of(half)[:32]}: {failure}; there is "
                    "nothing to do, the broker will ask the group's check-back for the outcome"
                ) from failure
            _log.info("the end of a transaction is told again: %s", failure)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _once(
        self, half: Half, outcome: Outcome, fields: dict[str, str], deadline: float
    ) -> EscrowMQError | None:
        """What went wrong; None when it is confirmed."""
        left_s = max(0.001, deadline - self._instance.now())
        try:
            connection = self._known(half)
            if connection is None:
                async with asyncio.timeout(left_s):
                    address = await self._find(half)
                    connection = await self._instance.pool.get(address)
                left_s = max(0.001, deadline - self._instance.now())
            reply = await connection.request(Request.END_TRANSACTION, fields, timeout_s=left_s)
        except TimeoutError:
            return ConnectFailed(f"broker {half.broker_name} cannot be reached")
        except (TransportError, RouteMissing) as error:
            return error
        return judge_end(reply, outcome, address=connection.address)

    def _known(self, half: Half) -> Connection | None:
        """The connection to the transaction's broker, if there is one to use at once."""
        address = self._instance.book.address(half.broker_name)
        return self._instance.pool.ready(address) if address is not None else None

    def _may_repeat(self, half: Half, failure: EscrowMQError) -> bool:
        """An END that may have arrived is repeated only where that changes nothing: RocketMQ's
        own brokers store a message that is committed twice twice."""
        if isinstance(failure, ConnectFailed | RouteMissing):
            return True
        if not half.signed_id:
            return False
        code = getattr(failure, "code", None)
        return isinstance(failure, TransportError) or code in _BUSY

    async def _find(self, half: Half) -> str:
        """The address of the transaction's broker, looked up anew when it is not connected."""
        instance = self._instance
        connection = self._known(half)
        if connection is not None:
            return connection.address
        try:
            await instance.refresh_brokers()
        except EscrowMQError as error:
            if instance.book.address(half.broker_name) is None:
                raise
            _log.debug("the brokers are as they were: %s", error)
        return instance.address_of(half.broker_name)
