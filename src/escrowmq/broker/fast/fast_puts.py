"""Puts messages, halves and messages of committed halves as records of one run on the fast path,
and applies their effects once the run is in the log."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import BATCH_AT_ONCE_MAX, HALF_PROPERTIES_SIZE_MAX
from escrowmq.base.message import Property, Topic
from escrowmq.broker.answers.answer_frames import AnswerFrames
from escrowmq.broker.fast.fast_ends import EndsPut, FastEnds
from escrowmq.broker.fast.lane_input import LaneQueues, TargetQueue
from escrowmq.broker.peer import Peer
from escrowmq.broker.rules import is_plain
from escrowmq.broker.sends.half_rules import GROUP_RULES, HalfFacts, room_for_halves
from escrowmq.broker.sends.send_rules import (
    QUEUE_RULES,
    SPECIAL_OF_HALF,
    SPECIAL_PROPERTIES,
    QueueFacts,
)
from escrowmq.codec.batch_body import decode_batch_part
from escrowmq.codec.plain_properties import PLAIN_KEYS_MAX, PlainProperties
from escrowmq.codec.properties import encode_properties, parse_properties
from escrowmq.codec.reply_template import sent_template
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import RemoteProtocolError
from escrowmq.lane.native import LaneLimits, LaneShape, LayOutSends, RequestsLane
from escrowmq.store.encoding import with_final_separator
from escrowmq.store.record_run import QueueTail, RecordRun
from escrowmq.store.store import Store
from escrowmq.txn.half_records import target_queue
from escrowmq.txn.plain_halves import HALF_MARK, PlainHalf
from escrowmq.txn.transactions import Transactions

_SOURCE_OF: Final = attrgetter("group", "topic")
_TARGETS_MAX: Final = 10_000
_GROUPS_MAX: Final = 1_024
_UNNAMED_MAX: Final = 64
_ALL: Final = 1 << 31


PutSends = tuple[
    int, bytes, int, int, list[tuple[str, int, int, int]], tuple[bytes, bool] | None, QueueTail
]
"""The result of putting sends: the position of the first that was not put; all replies; how many
were put (without batches), and how many of these are one-way; counts of each batch (lane/native);
opaque and encoding of the last one, if it is a half whose sender requests a signed id; the queue
end of the last one. (A plain tuple, because it is faster to create than a struct.)"""


class FastPuts:
    """The records of one run. Nothing else changes before the run is written."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        clients: Clients,
        stats: Stats,
        frames: AnswerFrames,
        transactions: Transactions,
        run: RecordRun,
        ends: FastEnds,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clients = clients
        self._stats = stats
        self._frames = frames
        self._transactions = transactions
        self._engine = transactions.engine
        self._run, self._ends = run, ends
        self._properties = PlainProperties(SPECIAL_PROPERTIES, SPECIAL_OF_HALF)
        self._body_size_max = store.settings.body_size_max
        self._unnamed: dict[bytes, bool] = {}
        """By the properties of a batch that has no unique key: whether they are plain."""
        self._batch_sizes: list[tuple[str, int, int]] = []
        """For each batch: its topic, its number of messages, and the size of their records."""
        self.seal_ends, self.answer_ends = ends.put_op_record, ends.answer_sealed
        self.write = self._run.write
        self._now_ms = 0
        self._reply_fields: dict[str, str] = {}
        self._halves_max = 0  # the most halves that may be pending
        self._suffix = b""
        self._depends_on: tuple[int, ...] = ()
        """The versions and settings for which the cached targets and replies are valid."""
        self._targets: dict[tuple[str, int], TargetQueue] = {}
        self._half_tail: QueueTail | None = None
        self._lane_queues = LaneQueues()
        self._groups: set[str] = set()
        self._touched_queues: list[TargetQueue] = []
        self._put_halves: list[PlainHalf] = []

    @property
    def are_allowed(self) -> bool:
        """Whether the store takes records of this path now."""
        return self._run.is_allowed

    @property
    def log_end(self) -> int:
        """The end of the last run's last record."""
        return self._run.end

    def begin(self, now_ms: int) -> bool:
        """Begin a run; return False if records may not be put this way now. Clear cached targets if
        topics or settings have changed."""
        settings = self._settings
        depends_on = (
            self._topics.version.counter, settings.is_traced,
            settings.rejects_transactions, settings.pending_max,
        )  # fmt: skip
        if depends_on != self._depends_on:
            self._depends_on = depends_on
            self._halves_max = room_for_halves(settings, 0)
            self._reply_fields = self._frames.send_reply_fields()
            added = {**self._reply_fields, Property.CLUSTER: self._settings.cluster}
            self._suffix = encode_properties(added)
            self._targets.clear()
            self._half_tail = None
            self._lane_queues.clear()
        self._now_ms = now_ms
        return self._run.begin(now_ms)

    def target_queue(self, topic: str, queue_id: int) -> TargetQueue | None:
        """Return the target of plain messages to a queue; None if the general path must decide."""
        return self._targets.get((topic, queue_id)) or self._add_target_queue(topic, queue_id)

    def _add_target_queue(self, topic: str, queue_id: int) -> TargetQueue | None:
        config = self._topics.get(topic)
        if not is_plain(QUEUE_RULES, QueueFacts(self._settings, topic, queue_id, config)):
            return None
        if len(self._targets) >= _TARGETS_MAX:
            self._targets.clear()
            self._lane_queues.clear()
        target = TargetQueue(topic, queue_id, sent_template(self._reply_fields, queue_id))
        self._pass_to_lane(target)
        self._targets[topic, queue_id] = target
        return target

    def _queue_tail(self, target: TargetQueue) -> QueueTail | None:
        """Return the end of a target's queue; None if the general path has not created the queue
        yet."""
        if target.tail is None:
            target.find_tail(self._run)
            self._pass_to_lane(target)
        return target.tail

    def _pass_to_lane(self, target: TargetQueue) -> None:
        queue_read = self._topics.readable_queue(target.topic, target.queue_id)
        self._lane_queues.add_queue(target, is_read=queue_read == target.queue_id)

    # -- messages ----------------------------------------------------------------------------------

    def put_sends(
        self,
        lay_out: LayOutSends,
        peer: Peer,
        shapes: list[LaneShape],
        data: bytes,
        at: int,
        frame_size_max: int,
        count_max: int = _ALL,
    ) -> PutSends | None:
        """Put consecutive messages, halves and batches of known shapes, at most `count_max`. Return
        None if not even the first can be put this way."""
        pending_count = self._engine.halves.pending.pages.count + len(self._put_halves)
        laid_out = lay_out(
            data, at, frame_size_max, shapes, self._properties.plans, self._lane_queues.by_name,
            self._lane_limits(peer, max(0, self._halves_max - pending_count)), count_max,
        )  # fmt: skip
        if laid_out is None:
            return None
        (
            at, records, replies, units, sent, keys, halves, batches, count, one_way_count, asked,
        ) = laid_out  # fmt: skip
        self._run.put_laid_out(records, units, keys)
        for target, sizes in sent:
            if not target.sizes:
                self._touched_queues.append(target)
            target.sizes += sizes
        if halves:
            self._put_halves += [PlainHalf(*half) for half in halves]
        if batches:
            self._batch_sizes += [batch[:3] for batch in batches]
        return at, replies, count, one_way_count, batches, asked, units[-1][0]

    def sign_last_half(self) -> tuple[PlainHalf, str]:
        """Return the half that was put last, and its signed id."""
        half = self._put_halves[-1]
        return half, self._transactions.sign(half, half.key.decode(), self._now_ms)

    @property
    def may_sign(self) -> bool:
        """Whether ids can be signed now. When a new key is due, the general path must create and
        save it first, which may fail."""
        return not self._transactions.keyring.is_rotation_due(self._now_ms)

    def _lane_limits(self, peer: Peer, halves_max: int) -> LaneLimits:
        run = self._run
        return (
            run.end, run.room_end, run.stored_ms, run.host, peer.packed, self._suffix, HALF_MARK,
            self._body_size_max, HALF_PROPERTIES_SIZE_MAX, PLAIN_KEYS_MAX, halves_max,
            self._groups, self._lane_queues.of_halves, BATCH_AT_ONCE_MAX, self._unnamed,
        )  # fmt: skip

    def learn_send(
        self, topic: str, queue_id: int, properties: bytes, *, entries: bytes | None = None
    ) -> bool:
        """Prepare the native lane for a send that it could not serve: find its queue, learn which
        properties matter (also of a batch's entries), and check that its group may send halves.
        Return False if the general path must decide."""
        target = self.target_queue(topic, queue_id)
        if target is None:
            return False
        is_there = self._queue_tail(target) is not None
        if entries is not None:
            return self._learn_batch(with_final_separator(properties), entries) and is_there
        found = self._properties.read(with_final_separator(properties))
        if found is None:
            return False
        plan, fields = found
        if plan.is_half < 0:
            return is_there
        is_known = plan.group >= 0 and self._may_send_halves(fields[plan.group].decode())
        return is_known and self._find_half_tail() is not None

    def _learn_batch(self, properties: bytes, data: bytes) -> bool:
        if b"UNIQ_KEY\x01" in properties:
            self._properties.read(properties)
        elif properties not in self._unnamed:
            if len(self._unnamed) >= _UNNAMED_MAX:
                self._unnamed.clear()
            self._unnamed[properties] = self._are_plain(properties)
        try:
            entries, _ = decode_batch_part(data, 0, count_max=BATCH_AT_ONCE_MAX)
        except RemoteProtocolError:
            return False
        return all(
            self._properties.read(with_final_separator(said)) is not None for _, _, said in entries
        )

    def _are_plain(self, properties: bytes) -> bool:
        """Whether the properties of a batch are plain. They are not stored."""
        try:
            names = parse_properties(properties.decode()).keys()
        except UnicodeDecodeError:
            return False
        return self._properties.are_plain(names)

    def _find_half_tail(self) -> QueueTail | None:
        self._half_tail = self._run.tail(Topic.HALF, 0)
        self._lane_queues.set_half_queue(self._half_tail)
        return self._half_tail

    def _may_send_halves(self, name: str) -> bool:
        if name in self._groups:
            return True
        if not is_plain(GROUP_RULES, HalfFacts(self._settings, name)):
            return False
        if len(self._groups) >= _GROUPS_MAX:
            self._groups.clear()
        self._groups.add(name)
        return True

    # -- ends --------------------------------------------------------------------------------------

    def put_ends(
        self,
        lane: RequestsLane,
        peer: Peer,
        shapes: list[LaneShape],
        data: bytes,
        at: int,
        frame_size_max: int,
    ) -> EndsPut | None:
        """End transactions for consecutive ENDs of known shapes; return None if the first cannot be
        ended this way."""
        if self._half_tail is None:
            self._find_half_tail()
        return self._ends.put(
            lane, shapes, data, at, frame_size_max,
            plans=self._properties.plans, places=self._lane_queues.by_half,
            moment=self._lane_limits(peer, 0), peer=peer, now_ms=self._now_ms,
        )  # fmt: skip

    def learn_end(self, queue_offset: int, log_offset: int) -> bool:
        """Prepare the native lane for an END that it could not serve: learn which properties of its
        half matter, and find its message's queue. Return False if the general path must decide."""
        halves = self._engine.halves
        if halves.pending.log_offset(queue_offset) != log_offset:
            return False
        half = halves.find_half(queue_offset, log_offset)
        place = None if half is None else target_queue(half.message)
        if half is None or place is None:
            return False
        sent, _, _ = encode_properties(half.message.properties).rpartition(HALF_MARK)
        if not sent.endswith(self._suffix):
            return False
        target = self.target_queue(*place)
        return (
            self._properties.read(sent[: -len(self._suffix)]) is not None
            and target is not None
            and self._queue_tail(target) is not None
        )

    # -- the whole run -----------------------------------------------------------------------------

    def apply_effects(self, peer: Peer, now_ms: int) -> None:
        """Make the written run's records visible in their queues, count them, and update the
        transactions."""
        self._run.publish()
        for target in self._touched_queues:
            self._stats.count_each_put(target.topic, target.sizes)
        for topic, count, size in self._batch_sizes:
            self._stats.count_puts(topic, count, size)
        if len(self._put_halves) == 1:  # most runs have at most one half
            (half,) = self._put_halves
            origin = self._clients.note_published(half.group, peer.id, half.topic)
            self._engine.halves.add_plain_half(half, origin=origin, account=peer.counted_for)
        elif self._put_halves:
            self._enter_halves(peer)
        if self._ends.ended:
            self._ends.mark_halves_ended(now_ms)

    def _enter_halves(self, peer: Peer) -> None:
        """Add the run's halves to the pending ones, halves of the same group and topic in one
        call."""
        halves, account = self._engine.halves, peer.counted_for
        for (group, topic), alike in groupby(self._put_halves, _SOURCE_OF):
            origin = self._clients.note_published(group, peer.id, topic)
            halves.add_plain_halves(list(alike), origin=origin, account=account)

    def clear(self) -> None:
        """Clear the run's data."""
        for target in self._touched_queues:
            target.sizes.clear()
        self._touched_queues.clear()
        self._batch_sizes.clear()
        self._put_halves.clear()
        if self._ends.ended:
            self._ends.clear()
        self._run.clear()
