"""The attempts to send an END to a broker: their content, their timeouts, and the reaction to an
answer or a failure. It has no socket, no clock and no waiting. Times are in seconds."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.client.core.end_request import Half, end_fields, judge_end, transaction_id_of
from escrowmq.client.core.send_retry import BackOff
from escrowmq.client.core.sending import Outcome
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

_PAUSE_MAX_S: Final = 0.5
_LEAST_S: Final = 0.001
_FROM_CHECK: Final = "fromTransactionCheck"
_TRUE: Final = "true"
_BUSY: Final = frozenset({Response.SYSTEM_BUSY, Response.SERVICE_NOT_AVAILABLE, Response.GO_AWAY})


class EndAttempts:
    """The END of one transaction, until its broker has confirmed it or the time is over. `count` is
    the number of its messages, if it has an id of its own."""

    def __init__(
        self, half: Half, outcome: Outcome, *, count: int, timeout_ms: int, started: float
    ) -> None:
        assert outcome is not Outcome.UNKNOWN, "which needs no confirmation"
        self.fields = end_fields(half, outcome, count=count if outcome is Outcome.COMMIT else 0)
        """The header of the next attempt."""
        self._is_answer = False
        """Whether the END is sent as the answer to a check."""
        self._half = half
        self._outcome = outcome
        self._deadline = started + timeout_ms / 1000
        self._pauses = BackOff(most_s=_PAUSE_MAX_S)

    def left_s(self, now: float) -> float:
        """Return the timeout of the next attempt."""
        return max(_LEAST_S, self._deadline - now)

    def report_attempt(
        self, what: Command | EscrowMQError, *, now: float, address: str = ""
    ) -> float | None:
        """Return None once confirmed, otherwise the pause before the next attempt. Raises
        OutcomeUnknown after the last attempt, and the error if the broker refuses permanently."""
        failure: EscrowMQError | None
        if isinstance(what, Command):
            failure = judge_end(what, self._outcome, address=address)
        else:
            failure = what
        if failure is None:
            return None
        if isinstance(failure, OutcomeContradicted | PermissionDenied):
            raise failure
        if isinstance(failure, IllegalOperation) and not self._is_answer:
            # After the time of its `check_after`, a RocketMQ broker accepts the end of a
            # transaction only as the answer to a check
            # (EndTransactionProcessor.rejectCommitOrRollback, 5.3.3).
            self.fields, self._is_answer = {**self.fields, _FROM_CHECK: _TRUE}, True
            return 0.0
        pause_s = self._pauses.next_s(self._deadline - now)
        if pause_s is None or not self._may_repeat(failure):
            raise self._outcome_unknown(failure) from failure
        _log.info("the END of a transaction is sent again: %s", failure)
        return pause_s

    def _may_repeat(self, failure: EscrowMQError) -> bool:
        """Whether the END may be sent again after a failure. One that may have arrived is repeated
        only where that is harmless: RocketMQ's brokers store a message twice if it is committed
        twice."""
        if isinstance(failure, ConnectFailed | RouteMissing):
            return True
        if not self._half.signed_id:
            return False
        code = getattr(failure, "code", None)
        return isinstance(failure, TransportError) or code in _BUSY

    def _outcome_unknown(self, failure: EscrowMQError) -> OutcomeUnknown:
        half = self._half
        return OutcomeUnknown(
            f"the broker {half.broker_name} did not confirm the {self._outcome.name} of "
            f"transaction {half.unique_key or transaction_id_of(half)[:32]}: {failure}; you need "
            f"not do anything, the broker will ask the group's check-back for the outcome"
        )
