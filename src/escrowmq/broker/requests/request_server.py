"""Serves requests from all fronts: the access check judges a request, and the handler in its row
serves it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from escrowmq.base.answer import HELD, Refusal, Reply
from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.codes import Response
from escrowmq.base.command import Command, RepeatedRequest
from escrowmq.broker.access.access_check import AccessCheck
from escrowmq.broker.access.audit_log import log_operation
from escrowmq.broker.incoming_request import IncomingRequest, Question, RequestRow
from escrowmq.broker.outgoing_requests import PeerCalls
from escrowmq.broker.peer import LongRequest, Peer
from escrowmq.broker.requests.request_table import UNKNOWN_REQUEST_ROW, bind_rows
from escrowmq.broker.upkeep.table_saving import TableSaver
from escrowmq.codec.headers import read_header
from escrowmq.delivery.auto_created import RequestAccount
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)


class RequestServer:
    """Judges and serves the requests of every front."""

    def __init__(
        self,
        *,
        present: RequestAccount,
        calls: PeerCalls,
        tables: TableSaver,
        access: AccessCheck,
        rounds: BackgroundRounds,
        handlers: Iterable[object],
    ) -> None:
        self._present = present
        self._calls = calls
        self._tables = tables
        self._access = access
        self._rounds = rounds
        self._judge: AccessCheck | None = None
        self.is_judging = False
        """Whether requests must pass the access check: there are accounts, or rate limits."""
        self.rows = bind_rows(handlers)
        self.needs_finish = False
        """Whether a request was served for which parts may have work to finish at the end of the
        input."""

    def replace_rows(
        self, change: Callable[[dict[int, RequestRow]], dict[int, RequestRow]]
    ) -> None:
        """Replace the table of requests by a modified copy. Call it before the first request."""
        self.rows = change(self.rows)

    def update_is_judging(self) -> None:
        """Update whether the access check must judge requests, because limits may have been set or
        lifted."""
        self._judge = self._access if self._access.can_refuse else None
        self.is_judging = self._judge is not None

    def request_finish(self) -> None:
        """Note that the fast path served a request for which the parts may have work to finish."""
        self.needs_finish = True

    def clear_needs_finish(self) -> None:
        """Note that the parts are finishing the work of all served requests."""
        self.needs_finish = False

    def row(self, code: int) -> RequestRow:
        """Return the row of a request code."""
        return self.rows.get(code, UNKNOWN_REQUEST_ROW)

    def serve(self, peer: Peer, command: Command, now_ms: int) -> None:
        """Serve one request. The answer goes to the peer's dialogue, immediately or later."""
        row = self.rows.get(command.code, UNKNOWN_REQUEST_ROW)
        if self._judge is not None or not row.is_brief:
            self.needs_finish = True
        request: Question = IncomingRequest(peer, row, command, None, now_ms)
        reply: Reply | None
        try:
            reply = None if self._judge is None else self._judge.judge_request(request)
            if reply is None:
                if type(command) is RepeatedRequest:
                    request.header = command.header
                elif row.header is not None:
                    request.header = read_header(row.header, command.ext)
                reply = row.serve(request)
                if row.is_audited:
                    log_operation(request, reply)
        except Exception as error:  # noqa: BLE001 - one request; it is answered with code 1
            reply = _failure_refusal(request, error)
        self._tables.answer_when_saved(request, reply)

    def judge_ahead(self, peer: Peer, command: Command, now_ms: int) -> Refusal | None:
        """Return why a request would be refused, before it is made; None if it would be
        admitted."""
        if not self._access.requires_authentication:
            return None
        request: Question = IncomingRequest(peer, self.row(command.code), command, None, now_ms)
        try:
            return self._access.judge_ahead(request)
        except Exception as error:  # noqa: BLE001 - one question, as in `serve`
            return _failure_refusal(request, error)

    def serve_next_step(self, peer: Peer, long: LongRequest[Question], now_ms: int) -> None:
        """Serve the next step of a request that takes several turns."""
        self.needs_finish = True
        request, long.request.now_ms = long.request, now_ms
        self._present.account = request.account
        try:
            reply = next(long.parts)
        except Exception as error:  # noqa: BLE001 - one request, as above
            reply = _failure_refusal(request, error)
        if reply is not HELD:
            peer.long = None
        self._tables.answer_when_saved(request, reply)

    def pass_answer(self, peer: Peer, command: Command, now_ms: int) -> None:
        """Pass a peer's answer to the broker's request that waits for it."""
        self.needs_finish = True
        tell = partial(self._calls.pass_reply, peer.id, command, now_ms)
        self._rounds.run_guarded("the answer of a client", tell, now_ms)


def _failure_refusal(request: Question, error: Exception) -> Refusal:
    if isinstance(error, EscrowMQError):
        _log.debug("request %d of %s: %s", request.command.code, request.peer.address, error)
        refusal = Refusal(Response.SYSTEM_ERROR, str(error))
    else:
        _log.error(
            "request %d of %s failed", request.command.code, request.peer.address, exc_info=error
        )
        refusal = Refusal(Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
    if request.row.is_audited:
        log_operation(request, refusal)
    return refusal
