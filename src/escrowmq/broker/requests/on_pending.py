"""Serves operators' queries and decisions about pending transactions (docs/extensions.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final

import msgspec

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import REASON_SIZE_MAX
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.broker.access import audit_log
from escrowmq.broker.access.audit_log import DenialLog
from escrowmq.broker.access.operator_addresses import OwnConsole, admits_operator
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.broker.requests.pending_filter import is_wanted_half
from escrowmq.broker.requests.transaction_view import TransactionItems
from escrowmq.codec.client_bodies import read_own_body
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.pending_bodies import (
    ChangeResult,
    HalfFilter,
    PendingCounts,
    PendingPage,
    TransactionItem,
    TransactionSelector,
)
from escrowmq.codec.record import decode_record
from escrowmq.errors import UsageError
from escrowmq.store.store import Store
from escrowmq.store.walk import EVER_MS, walk_queue
from escrowmq.txn.end_claim import Claim
from escrowmq.txn.pending import NEVER_MS
from escrowmq.txn.pending_columns import Row
from escrowmq.txn.state import State, Verdict
from escrowmq.txn.transactions import Transactions

_SCANNED_MAX: Final = 100_000
"""The most halves that one request examines; `next` in the answer says where to continue."""

_READ_MAX: Final = 5_000
"""The most halves that one request examines if each must be read from the log."""

_CHECKED_MAX: Final = 10_000
"""The most checks that one request triggers."""

_VERDICTS: Final = {"commit": Verdict.COMMIT, "rollback": Verdict.ROLLBACK}


def _operators_only(
    handler: Callable[[PendingHandlers, IncomingRequest[None]], Reply],
) -> Callable[[PendingHandlers, IncomingRequest[None]], Reply]:
    """Wrap a handler so that it serves permitted operators only."""

    def serve(self: PendingHandlers, request: IncomingRequest[None]) -> Reply:
        return self.address_refusal(request) or handler(self, request)

    return serve


class PendingHandlers:
    """Serves operators' requests about pending and discarded transactions (codes 7701 to 7708)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        console: OwnConsole,
        store: Store,
        transactions: Transactions,
        ends: EndHandlers,
        denials: DenialLog,
    ) -> None:
        self._settings = settings
        self._console = console
        self._store = store
        self._denials = denials
        self._ends = ends
        self._transactions = transactions
        self._engine = transactions.engine
        self._showing = TransactionItems(store, transactions)

    def address_refusal(self, request: IncomingRequest[None]) -> Refusal | None:
        """Return why a peer may not administer transactions from its address; None when it may."""
        settings = self._settings
        if admits_operator(settings, request.peer):
            return None
        proof = self._console.verify_request(request.peer, request.command)
        if proof is not None and proof.is_proved:
            return None
        if proof is not None and proof.code == Response.ESCROW_SIGNATURE_WANTED:
            return Refusal(proof.code, proof.fault)
        where = request.peer.address
        remark = f"escrowAdmin={settings.admin_from} does not let {where} administer transactions"
        self._denials.log_denial(request, remark, request.now_ms)
        return Refusal(Response.NO_PERMISSION, remark)

    # -- looking -----------------------------------------------------------------------------

    @_operators_only
    def list_pending(self, request: IncomingRequest[None]) -> Reply:
        """Answer with a page of the pending transactions."""
        wanted = read_own_body(request.command, HalfFilter)
        items: list[TransactionItem] = []
        matching, last = self._matching_halves(wanted, request.now_ms)
        for queue_offset, _, _ in matching:
            half = self._engine.halves.read_half(queue_offset)
            if half is not None:
                items.append(self._showing.item(half, queue_offset, request.now_ms))
            if len(items) == wanted.limit:
                last = queue_offset
                break
        return _json_answer(PendingPage(items=items, next=last))

    def _matching_halves(self, wanted: HalfFilter, now_ms: int) -> tuple[Iterator[Row], int]:
        """Examine a limited number of pending halves, and return those that match a filter. Also
        return the offset after which to continue; -1 at the end."""
        until_ms = now_ms - (wanted.min_age_ms or 0)
        since_ms = 0 if wanted.max_age_ms is None else max(0, now_ms - wanted.max_age_ms)
        rows, last = self._engine.halves.pending.matching_rows(
            wanted.after,
            count_max=_SCANNED_MAX if wanted.transaction is None else _READ_MAX,
            group=wanted.group,
            topic=wanted.topic,
            since_ms=since_ms,
            until_ms=until_ms if wanted.min_age_ms else NEVER_MS,
        )
        found = iter(rows)
        if wanted.state is not None:
            found = filter(lambda row: self._pending_state(row) == wanted.state, found)
        if wanted.transaction is not None:
            found = filter(lambda row: self._matches_filter(row[0], wanted), found)
        return found, last

    def _pending_state(self, row: Row) -> str:
        group, *_ = self._engine.halves.pending.sources.source(row[1])
        return self._showing.pending_state(row[0], group)

    def _matches_filter(self, queue_offset: int, wanted: HalfFilter) -> bool:
        half = self._engine.halves.read_half(queue_offset)
        return half is not None and is_wanted_half(half, wanted)

    @_operators_only
    def count_pending(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the number of pending halves, or of those that match a filter. With a filter,
        only a limited number of halves is examined."""
        wanted = read_own_body(request.command, HalfFilter)
        counts = (
            self._count_all()
            if wanted == HalfFilter()
            else self._count_matching(wanted, request.now_ms)
        )
        return _json_answer(counts)

    def _count_all(self) -> PendingCounts:
        engine, checker = self._engine, self._transactions.checker
        by_topic = {topic: count for topic, count in engine.halves.meter.pending.items() if count}
        oldest = engine.halves.pending.oldest_offset()
        return PendingCounts(
            count=sum(by_topic.values()),
            parked=sum(map(checker.parked_count, checker.parked_groups())),
            oldest_ms=engine.halves.pending.row(oldest).stored_ms if oldest is not None else -1,
            by_topic=by_topic,
            by_group=dict(engine.halves.meter.groups),
            parked_by_group={
                group: checker.parked_count(group) for group in checker.parked_groups()
            },
        )

    def _count_matching(self, wanted: HalfFilter, now_ms: int) -> PendingCounts:
        matching, last = self._matching_halves(wanted, now_ms)
        rows = list(matching)
        by_topic: Counter[str] = Counter()
        by_group: Counter[str] = Counter()
        parked: Counter[str] = Counter()
        sources = self._engine.halves.pending.sources
        for number, count in Counter(map(itemgetter(1), rows)).items():
            group, topic, *_ = sources.source(number)
            by_topic[topic] += count
            by_group[group] += count
        if not by_group.keys().isdisjoint(self._transactions.checker.parked_groups()):
            for row in rows:
                if self._pending_state(row) == "parked":
                    parked[sources.source(row[1])[0]] += 1
        return PendingCounts(
            count=len(rows),
            parked=parked.total(),
            oldest_ms=min(map(itemgetter(2), rows), default=-1),
            by_topic=dict(by_topic),
            by_group=dict(by_group),
            parked_by_group=dict(parked),
            next=last,
        )

    @_operators_only
    def show_transaction(self, request: IncomingRequest[None]) -> Reply:
        """Answer with everything that is known of one transaction."""
        found = self._named_halves(_read_selector(request), request.now_ms)
        items = [self._showing.item_with_events(half, request.now_ms) for half in found]
        return _json_answer(PendingPage(items=items))

    def _named_halves(self, which: TransactionSelector, now_ms: int) -> list[StoredMessage]:
        """Return the halves that a request names, the newest first. Raises UsageError when there
        are none."""
        store = self._store
        if which.id is not None:
            _, half = self._transactions.find_signed_half(which.id, now_ms)
            if half is None:
                raise UsageError("the log no longer has the half of this transaction")
            return [half]
        if not which.message_id:
            raise UsageError("name the transaction: id, or messageId")
        records = store.query(
            Topic.HALF, which.message_id, count_max=64, begin_ms=0, end_ms=EVER_MS
        ).records
        halves = [half for half in map(decode_record, records) if is_wanted_half(half, which)]
        if not halves:
            raise UsageError(f"no half message of {which.message_id} is known")
        return halves

    # -- deciding ----------------------------------------------------------------------------

    @_operators_only
    def settle_transaction(self, request: IncomingRequest[None]) -> Reply:
        """Commit or roll back a transaction on behalf of its producer."""
        which = _read_selector(request)
        if which.verdict is None:
            raise UsageError("give the verdict: commit or rollback")
        halves = self._named_halves(which, request.now_ms)
        pending = [half for half in halves if half.queue_offset in self._engine.halves.pending]
        half = (pending or halves)[0]
        claim = Claim(
            log_offset=half.log_offset,
            queue_offset=half.queue_offset,
            group=half.properties.get(Property.PGROUP, ""),
            verdict=_VERDICTS[which.verdict],
            is_from_check=True,
            who=f"{audit_log.sender_text(request)} {which.reason}".strip(),
        )
        ended = self._transactions.ends.end(claim, request.now_ms)
        what = f"{which.verdict} of half {half.queue_offset}: {ended.answer.name}"
        self._write_audit_line(request, what, which.reason)
        return self._ends.end_answer(request, ended)

    @_operators_only
    def send_checks(self, request: IncomingRequest[None]) -> Reply:
        """Send checks of the named or matching halves to their producers now."""
        which = _read_selector(request)
        if which.id or which.message_id:
            offsets = [half.queue_offset for half in self._named_halves(which, request.now_ms)]
            offsets = [offset for offset in offsets if offset in self._engine.halves.pending]
            behind = -1
        else:
            matching, behind = self._matching_halves(which, request.now_ms)
            offsets = [queue_offset for queue_offset, _, _ in islice(matching, _CHECKED_MAX)]
            if len(offsets) == _CHECKED_MAX:
                behind = offsets[-1]
        self._transactions.checker.check_now(offsets, request.now_ms)
        self._write_audit_line(request, f"check of {len(offsets)} halves", which.reason)
        return _json_answer(ChangeResult(count=len(offsets), next=behind))

    # -- those that were given up ------------------------------------------------------------

    def _matching_discarded(self, wanted: HalfFilter) -> tuple[Iterator[StoredMessage], int]:
        """Examine a limited number of discarded transactions, and return those that match a filter.
        Also return the offset after which to continue; -1 at the end."""
        store = self._store
        low, end = store.bounds(Topic.CHECK_MAX_TIME, 0)
        first = max(low, wanted.after + 1)
        last = min(end, first + _READ_MAX)
        messages = walk_queue(store, Topic.CHECK_MAX_TIME, first, last)
        found = (message for message in messages if is_wanted_half(message, wanted))
        return found, last - 1 if last < end else -1

    @_operators_only
    def list_discarded(self, request: IncomingRequest[None]) -> Reply:
        """Answer with a page of the discarded transactions."""
        wanted = read_own_body(request.command, HalfFilter)
        messages, behind = self._matching_discarded(wanted)
        page = PendingPage(items=[], next=behind)
        for message in messages:
            page.items.append(self._showing.discarded_item(message, request.now_ms))
            if len(page.items) == wanted.limit:
                page.next = message.queue_offset
                break
        return _json_answer(page)

    @_operators_only
    def resume_discarded(self, request: IncomingRequest[None]) -> Reply:
        """Resume the checks of discarded transactions."""
        which = _read_selector(request)
        done = ChangeResult()
        if which.offset_id is not None:
            source = self._store.read(parse_offset_id(which.offset_id)[1])
            if source is None or source.topic != Topic.CHECK_MAX_TIME:
                raise UsageError(f"no discarded message has the id {which.offset_id}")
            sources: Iterator[StoredMessage] = iter([source])
        else:
            sources, done.next = self._matching_discarded(which)
        resumption = self._transactions.resumption
        for source in sources:
            if resumption.state_of(source) == State.EXPIRED:
                resumed = resumption.resume(source, request.now_ms)
                done.count += resumed.count
                if resumed.put is not None:
                    done.next = -1  # there is no space for others either
                    break
                if resumed.refusal and which.offset_id is not None:
                    raise UsageError(resumed.refusal)
            if done.count >= which.limit:
                done.next = source.queue_offset
                break
        self._write_audit_line(request, f"resumption of {done.count} messages", which.reason)
        return _json_answer(done, log_end=self._store.end_offset if done.count else 0)

    @_operators_only
    def rotate_key(self, request: IncomingRequest[None]) -> Reply:
        """Create a new key for signing transaction ids."""
        reason = _read_selector(request).reason
        done = ChangeResult(key=self._transactions.renew_key(request.now_ms))
        self._write_audit_line(request, f"rotation to key {done.key}", reason)
        return _json_answer(done)

    def _write_audit_line(self, request: IncomingRequest[None], what: str, reason: str) -> None:
        audit_log.write_line("operation", request, what=what, reason=reason)


def _read_selector(request: IncomingRequest[None]) -> TransactionSelector:
    """Return the body of a request. Raises UsageError if its reason is too long to be stored."""
    which = read_own_body(request.command, TransactionSelector)
    if len(which.reason) > REASON_SIZE_MAX:
        raise UsageError(
            f"a reason of {len(which.reason)} characters; {REASON_SIZE_MAX} are allowed"
        )
    return which


def _json_answer(body: msgspec.Struct, *, log_end: int = 0) -> Answer:
    return Answer(body=msgspec.json.encode(body), log_end=log_end)
