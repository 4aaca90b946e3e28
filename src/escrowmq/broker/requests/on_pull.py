"""Serves pulls: decides who may read which messages and how many, and holds pulls that must
wait."""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice
from typing import Final

import msgspec

from escrowmq.base.answer import HELD, PullAnswer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import (
    CROWD_ARRIVALS_MAX,
    PULL_MESSAGES_MAX,
    PULL_SIZE_MAX,
    RELEASED_AT_ONCE_MAX,
    RELEASED_SIZE_MAX,
)
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.part import Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.reads.message_selection import EVERYTHING, Selector
from escrowmq.broker.reads.pull_decisions import PullDecision, PullJudge
from escrowmq.broker.reads.pull_rules import PullFlag
from escrowmq.codec.headers import PullHeader
from escrowmq.codec.pulled_reply import pull_fields
from escrowmq.delivery.clients import BROADCASTING, Clients
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.held_pulls import LongPoll, LongPolls, poll_timeout_ms, poll_weight
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError, UsageError
from escrowmq.store.store import Arrival, GetResult, GetStatus, Store

_CODE: Final = {
    GetStatus.FOUND: Response.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: Response.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: Response.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: Response.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: Response.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: Response.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: Response.PULL_OFFSET_MOVED,
}
_REMARKS: Final = {status: status.name for status in GetStatus}
"""The remark for each status of a read."""


class Pull(msgspec.Struct):
    """A pull that was accepted, with its selector. It may wait for messages."""

    request: IncomingRequest[PullHeader]
    selector: Selector


_CrowdedQueue = deque[tuple[Arrival, list[LongPoll[Pull]] | None]]
"""Arrived messages of a queue for which many pulls wait, the oldest first. Each has the pulls that
are still to be tried; None if none was tried yet."""


class PullHandlers(Part):
    """Serves PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

    name = "long polls"

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        stats: Stats,
        polls_counts: Counter[str],
        answers: AnswerSender,
    ) -> None:
        self._settings = settings
        self._store_settings = store_settings
        self._store = store
        self._offsets = offsets
        self._stats = stats
        self._answers = answers
        self._clients = clients
        self.judge = PullJudge(settings, topics, groups, clients)
        self._crowds: dict[tuple[str, int], _CrowdedQueue] = {}
        """Queues for which more pulls wait than may be answered in one turn."""
        self._released_size = 0
        """The size of the answers that were sent in this turn."""
        self.holds: LongPolls[Pull] = LongPolls(counts=polls_counts)

    def pull_messages(self, request: IncomingRequest[PullHeader]) -> Reply:
        """Answer with messages, or hold the request until there are some."""
        header, offsets = request.header, self._offsets
        judged = self.judge.decide(request, request.now_ms)
        if isinstance(judged, Refusal):
            return judged
        place = header.consumer_group, header.topic, header.queue_id
        is_kept = not (offsets.quotas.is_crowded and offsets.why_not_kept(*place, request.now_ms))
        if not is_kept and (refusal := self._progress_refusal(header.consumer_group)):
            return refusal
        # Checked before the answer reports a reset: offsets from before a reset must not count.
        commits = judged.commits and not offsets.has_reset(*place)
        reply = self._answer_or_hold(
            request, judged, request.now_ms, may_hold=bool(header.sys_flag & PullFlag.SUSPEND)
        )
        if commits and is_kept:
            offsets.commit(*place, header.commit_offset, request.now_ms)
        return reply

    def _progress_refusal(self, group: str) -> Refusal | None:
        """Return why a group whose offsets are not kept may not pull: its consumers would start at
        the newest message again and again. Those that keep their own offsets may."""
        online = self._clients.consumers.get(group)
        if online is None or online.message_model == BROADCASTING:
            return None
        remark = f"the progress of {group} is not kept, because there are too many offsets"
        return Refusal(Response.SYSTEM_ERROR, remark)

    # -- what --------------------------------------------------------------------------------

    def _answer_or_hold(
        self,
        request: IncomingRequest[PullHeader],
        judged: PullDecision,
        now_ms: int,
        *,
        may_hold: bool,
    ) -> Reply:
        """Answer a pull with messages, or with the offset that an operator has set. If there are no
        messages, hold it if `may_hold` is set."""
        header, selector = request.header, judged.selector
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            low, high = self._store.bounds(topic, queue_id)
            return Refusal(
                Response.PULL_OFFSET_MOVED, "OFFSET_RESET", ext=pull_fields(reset, low, high)
            )
        got = self._store.get(
            topic,
            queue_id,
            header.queue_offset,
            count_max=min(header.max_msg_nums, PULL_MESSAGES_MAX),
            size_max=min(header.max_msg_bytes or self._store_settings.read_size_max, PULL_SIZE_MAX),
            codes=selector.codes,
            accept=selector.accept,
            tested_max=selector.tested_max,
        )
        code = _CODE.get(got.status)
        if code is None:  # an empty queue
            is_start = header.queue_offset == 0
            code = Response.PULL_NOT_FOUND if is_start else Response.PULL_OFFSET_MOVED
        if code == Response.PULL_NOT_FOUND and may_hold:
            self._hold_pull(Pull(request, selector), now_ms)
            return HELD
        self._offsets.note_pulled(group, topic, queue_id, got.next_offset)
        pulled = self._pull_answer(header, judged, got, code)
        # The client would go back to the queue's end and read messages again, so the end must be
        # confirmed.
        is_beyond = code == Response.PULL_OFFSET_MOVED and got.next_offset < header.queue_offset
        return self._answers.after_confirmation(request, pulled) if is_beyond else pulled

    def _pull_answer(
        self, header: PullHeader, judged: PullDecision, got: GetResult, code: int
    ) -> PullAnswer:
        chunks = got.chunks if code == Response.SUCCESS else []
        size = sum(map(len, chunks))
        self._released_size += size
        if got.count:
            self._stats.count_gets(header.consumer_group, header.topic, got.count, size)
        return PullAnswer(
            code=code,
            remark=_REMARKS[got.status],
            chunks=chunks,
            next_offset=got.next_offset,
            min_offset=got.min_offset,
            max_offset=got.max_offset,
            flags=(judged.topic.topic_sys_flag, judged.group.group_sys_flag),
            size=size,
        )

    # -- when --------------------------------------------------------------------------------

    def _hold_pull(self, pull: Pull, now_ms: int) -> None:
        header = pull.request.header
        crowded = self.holds.hold(
            LongPoll(
                (header.topic, header.queue_id),
                pull,
                peer=pull.request.peer.id,
                queue_offset=header.queue_offset,
                deadline_ms=now_ms + poll_timeout_ms(header.suspend_timeout_millis, self._settings),
                account=pull.request.peer.counted_for,
                weight=poll_weight(pull.request.command),
            )
        )
        if crowded is not None:
            self._answer_held(crowded, now_ms)

    def _answer_held(self, held: LongPoll[Pull], now_ms: int) -> None:
        """Answer a pull that was held. It is judged again, as RocketMQ (PullRequestHoldService)
        does: its topic may have been deleted, or its group may have lost the right to read."""
        self.holds.remove(held)
        request = held.question.request
        reply: Reply
        try:
            judged = self.judge.decide(request, now_ms)
            if isinstance(judged, Refusal):
                reply = judged
            else:
                reply = self._answer_or_hold(request, judged, now_ms, may_hold=False)
        except (UsageError, StorageError, OSError) as error:
            reply = Refusal(Response.SYSTEM_ERROR, str(error))
        if reply is not HELD:
            self._answers.send(request, reply)

    def serve_arrival(self, arrival: Arrival, now_ms: int) -> None:
        """Answer the pulls that wait for an arrived message."""
        key = (arrival.topic, arrival.queue_id)
        if not self.holds.has(key):
            return
        crowd = self._crowds.get(key)
        if crowd is not None:
            if len(crowd) >= CROWD_ARRIVALS_MAX:
                crowd.pop()  # pulls that waited for the dropped message get this one
            crowd.append((arrival, None))
            return
        rest = self._answer_first(arrival, self.holds.polls_at(key), now_ms)
        if rest:
            self._crowds[key] = deque([(arrival, rest)])

    def _answer_first(
        self, arrival: Arrival, waiting: list[LongPoll[Pull]], now_ms: int
    ) -> list[LongPoll[Pull]]:
        """Answer the first pulls that wait for a message, up to the limits of a turn. Return the
        others, for later turns."""
        store = self._store
        self._released_size = 0
        for nth, held in enumerate(waiting[:RELEASED_AT_ONCE_MAX]):
            if self._released_size > RELEASED_SIZE_MAX:
                return waiting[nth:]
            if held.is_done or arrival.queue_offset < held.queue_offset:
                continue
            selector = held.question.selector
            if selector is EVERYTHING or selector.wants(
                arrival.tags_code,
                lambda: store.read_record(arrival.log_offset, arrival.record_size),
            ):
                self._answer_held(held, now_ms)
        return waiting[RELEASED_AT_ONCE_MAX:]

    def _answer_crowded_queue(self, now_ms: int) -> None:
        """Answer more pulls of the first crowded queue; the next queue follows in the next turn."""
        key = next(iter(self._crowds))
        crowd = self._crowds.pop(key)
        asked_count = 0
        while crowd and asked_count < RELEASED_AT_ONCE_MAX:
            arrival, waiting = crowd.popleft()
            if waiting is None:
                waiting = self.holds.polls_at(key)
            rest = self._answer_first(arrival, waiting, now_ms)
            asked_count += 1 + len(waiting) - len(rest)
            if rest:
                crowd.appendleft((arrival, rest))
                break
        if crowd:
            self._crowds[key] = crowd

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        """Drop the waiting pulls of a lost connection."""
        self.holds.remove_polls_of(peer.id)

    def wake(self, now_ms: int) -> None:
        """Answer the held pulls that have timed out. If a message has arrived for more held pulls
        of a queue than one turn may answer, answer the next of them."""
        if self._crowds:
            self._answer_crowded_queue(now_ms)
        for held in islice(self.holds.take_expired(now_ms), RELEASED_AT_ONCE_MAX):
            self._answer_held(held, now_ms)

    def wake_at_ms(self) -> int:
        """The time at which the next held pull must be answered."""
        return 0 if self._crowds else self.holds.wake_at_ms()
