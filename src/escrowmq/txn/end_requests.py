"""Handles ENDs: finds the half, checks whether the END may end it, and ends it. The first END wins;
a later one gets the outcome and changes nothing."""

from __future__ import annotations

import logging

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Property
from escrowmq.store.store import Store
from escrowmq.txn.doubled_halves import newest_position, status_of
from escrowmq.txn.end_claim import Claim, EndReply, EndResult
from escrowmq.txn.end_rules import EndContext, apply_rules
from escrowmq.txn.engine import TransactionEngine

_log = logging.getLogger(__name__)


class EndRequests:
    """Handles ENDs of producers and administrators."""

    def __init__(self, engine: TransactionEngine, store: Store, settings: BrokerSettings) -> None:
        self._engine = engine
        self._halves = engine.halves
        self._store = store
        self._settings = settings

    def end(self, claim: Claim, now_ms: int) -> EndReply:
        """End a transaction, or return how it was ended before."""
        place = claim.queue_offset, claim.log_offset
        if claim.queue_offset in self._halves.carried:
            place = newest_position(*place, self._halves, self._store)
        half = self._halves.find_half(*place)
        if half is None or not claim.matches(half.message):
            return EndReply(EndResult.NOT_FOUND)
        if half.message.properties.get(Property.PGROUP) != claim.group:
            return EndReply(EndResult.GROUP_WRONG)
        if half.message.queue_offset != half.queue_offset:
            return EndReply(EndResult.QUEUE_OFFSET_WRONG)
        standing = status_of(half, self._halves, self._store)
        timeout_ms = self._settings.transaction_timeout_ms
        ended = apply_rules(EndContext(claim, standing, self._halves, now_ms, timeout_ms))
        if ended is None:
            return self._engine.carry_out_verdict(
                standing.half, claim.verdict, now_ms=now_ms, who=claim.who
            )
        counters = self._halves.counters
        counters.repeated += ended.answer is EndResult.REPEATED
        if ended.answer is EndResult.CONTRADICTED:
            counters.contradicted += 1
            _log.warning(
                "transaction at half offset %d of %s is %s; %s came too late and changes nothing",
                ended.queue_offset,
                claim.group,
                ended.state.name,
                claim.verdict.name,
            )
        return ended
