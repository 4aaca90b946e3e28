"""Pulls: who may read which messages, and how many; and who must wait."""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice
from typing import Final

import msgspec

from escrowmq.base.answer import HELD, Pulled, Refusal, Reply
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
from escrowmq.broker.answers.answer_delivery import Answers
from escrowmq.broker.asked import Asked
from escrowmq.broker.part import Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.reads.message_selection import EVERYTHING, Selector
from escrowmq.broker.reads.pull_judgements import Judged, PullJudge
from escrowmq.broker.reads.pull_rules import PullFlag
from escrowmq.codec.headers import PullHeader
from escrowmq.codec.pulled_reply import pull_fields
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.held_pulls import Holds, LongPoll, wait_ms_of, weight_of
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError, UsageError
from escrowmq.store.store import Arrival, Got, GotStatus, Store

_CODE: Final = {
    GotStatus.FOUND: Response.SUCCESS,
    GotStatus.NO_MATCHED_MESSAGE: Response.PULL_RETRY_IMMEDIATELY,
    GotStatus.MESSAGE_WAS_REMOVING: Response.PULL_RETRY_IMMEDIATELY,
    GotStatus.OFFSET_FOUND_NULL: Response.PULL_NOT_FOUND,
    GotStatus.OFFSET_OVERFLOW_ONE: Response.PULL_NOT_FOUND,
    GotStatus.OFFSET_OVERFLOW_BADLY: Response.PULL_OFFSET_MOVED,
    GotStatus.OFFSET_TOO_SMALL: Response.PULL_OFFSET_MOVED,
}
_REMARKS: Final = {status: status.name for status in GotStatus}
"""NO_MATCHED_LOGIC_QUEUE and NO_MESSAGE_IN_QUEUE depend on the requested offset."""


class Pull(msgspec.Struct):
    """One judged pull, while it waits."""

    asked: Asked[PullHeader]
    selector: Selector


_Crowd = deque[tuple[Arrival, list[LongPoll[Pull]] | None]]
"""Messages of a queue that many pulls wait for, each with the pulls that may still want it; None
before its turn."""


class PullHandlers(Part):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

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
        answers: Answers,
    ) -> None:
        self._settings = settings
        self._store_settings = store_settings
        self._store = store
        self._offsets = offsets
        self._stats = stats
        self._answers = answers
        self.judge = PullJudge(settings, topics, groups, clients)
        self._crowds: dict[tuple[str, int], _Crowd] = {}
        """Queues with more waiting pulls than are answered at once."""
        self._released_size = 0
        """Bytes of the answers sent at once."""
        self.holds: Holds[Pull] = Holds(counts=polls_counts)

    def pull(self, asked: Asked[PullHeader]) -> Reply:
        """Answer with messages, or hold the request until there are some."""
        header, offsets = asked.header, self._offsets
        judged = self.judge.judge(asked, asked.now_ms)
        if isinstance(judged, Refusal):
            return judged
        place = header.consumer_group, header.topic, header.queue_id
        # Checked before the answer reports a reset: what was read before it is void.
        commits = header.sys_flag & PullFlag.COMMIT_OFFSET and not offsets.has_reset(*place)
        reply = self._answer(
            asked, judged, asked.now_ms, may_hold=bool(header.sys_flag & PullFlag.SUSPEND)
        )
        if commits:
            offsets.commit(*place, header.commit_offset, asked.now_ms)
        return reply

    # -- what --------------------------------------------------------------------------------

    def _answer(
        self, asked: Asked[PullHeader], judged: Judged, now_ms: int, *, may_hold: bool
    ) -> Reply:
        """Answer a pull, new or held."""
        header, selector = asked.header, judged.selector
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
            self._hold(Pull(asked, selector), now_ms)
            return HELD
        self._offsets.pulled(group, topic, queue_id, got.next_offset)
        pulled = self._pull_answer(header, judged, got, code)
        # The client goes back to where the queue ends, and would read all of that again.
        is_beyond = code == Response.PULL_OFFSET_MOVED and got.next_offset < header.queue_offset
        return self._answers.once_confirmed(pulled) if is_beyond else pulled

    def _pull_answer(self, header: PullHeader, judged: Judged, got: Got, code: int) -> Pulled:
        chunks = got.chunks if code == Response.SUCCESS else []
        size = sum(map(len, chunks))
        self._released_size += size
        if got.count:
            self._stats.get(header.consumer_group, header.topic, got.count, size)
        return Pulled(
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

    def _hold(self, pull: Pull, now_ms: int) -> None:
        header = pull.asked.header
        crowded = self.holds.hold(
            LongPoll(
                (header.topic, header.queue_id),
                pull,
                peer=pull.asked.peer.id,
                queue_offset=header.queue_offset,
                deadline_ms=now_ms + wait_ms_of(header.suspend_timeout_millis, self._settings),
                account=pull.asked.peer.counted_for,
                weight=weight_of(pull.asked.command),
            )
        )
        if crowded is not None:
            self._release(crowded, now_ms)

    def _release(self, held: LongPoll[Pull], now_ms: int) -> None:
        """Answer a pull that waited. It is judged again: meanwhile its topic may have been deleted,
        or its group may have lost the right to read (RocketMQ, PullRequestHoldService, does the
        same)."""
        self.holds.release(held)
        asked = held.question.asked
        reply: Reply
        try:
            judged = self.judge.judge(asked, now_ms)
            if isinstance(judged, Refusal):
                reply = judged
            else:
                reply = self._answer(asked, judged, now_ms, may_hold=False)
        except (UsageError, StorageError, OSError) as error:
            reply = Refusal(Response.SYSTEM_ERROR, str(error))
        if reply is not HELD:
            self._answers.give(asked, reply)

    def arrived(self, arrival: Arrival, now_ms: int) -> None:
        """A message has arrived: answer the pulls that wait for it."""
        key = (arrival.topic, arrival.queue_id)
        if not self.holds.has(key):
            return
        crowd = self._crowds.get(key)
        if crowd is not None:
            if len(crowd) >= CROWD_ARRIVALS_MAX:
                crowd.pop()  # those that waited for that one get this one
            crowd.append((arrival, None))
            return
        rest = self._wake_some(arrival, self.holds.waiting(key), now_ms)
        if rest:
            self._crowds[key] = deque([(arrival, rest)])

    def _wake_some(
        self, arrival: Arrival, waiting: list[LongPoll[Pull]], now_ms: int
    ) -> list[LongPoll[Pull]]:
        """Answer the first pulls that wait for a message; the others follow later."""
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
                self._release(held, now_ms)
        return waiting[RELEASED_AT_ONCE_MAX:]

    def _wake_crowd(self, now_ms: int) -> None:
        """Continue with a queue that many wait for, and then with the next one."""
        key = next(iter(self._crowds))
        crowd = self._crowds.pop(key)
        asked_count = 0
        while crowd and asked_count < RELEASED_AT_ONCE_MAX:
            arrival, waiting = crowd.popleft()
            if waiting is None:
                waiting = self.holds.waiting(key)
            rest = self._wake_some(arrival, waiting, now_ms)
            asked_count += 1 + len(waiting) - len(rest)
            if rest:
                crowd.appendleft((arrival, rest))
                break
        if crowd:
            self._crowds[key] = crowd

    def lost(self, peer: Peer, now_ms: int) -> None:
        """A connection has ended, with its waiting pulls."""
        self.holds.lost(peer.id)

    def wake(self, now_ms: int) -> None:
        """Answer the pulls that have timed out, and those of a crowd whose message arrived."""
        if self._crowds:
            self._wake_crowd(now_ms)
        for held in islice(self.holds.expired(now_ms), RELEASED_AT_ONCE_MAX):
            self._release(held, now_ms)

    def wake_at_ms(self) -> int:
        """When the next held pull must be answered."""
        return 0 if self._crowds else self.holds.wake_at_ms()
