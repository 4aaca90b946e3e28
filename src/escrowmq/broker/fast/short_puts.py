"""What the fast path puts: plain messages, plain halves, and the messages of committed halves, as
records of one run; and what follows once they are in the log."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import BATCH_AT_ONCE_MAX, PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX
from escrowmq.base.message import Property, SysFlag, Topic
from escrowmq.broker.answers.frames import Frames
from escrowmq.broker.answers.request_times import Latency
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.fast.lane_input import Places
from escrowmq.broker.fast.short_batches import Entries, ShortBatches
from escrowmq.broker.fast.short_ends import Number, PutEnds, ShortEnds
from escrowmq.broker.fast.short_halves import ShortHalves
from escrowmq.broker.identity import Identity
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.arrivals import Arrivals
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.broker.requests.serving import Serving
from escrowmq.broker.rules import is_plain
from escrowmq.broker.sends.forbidden_to_senders import ODD, ODD_OF_HALF
from escrowmq.broker.sends.half_rules import GROUP_RULES, HalfAsked, room_for_halves
from escrowmq.broker.sends.send_rules import QUEUE_RULES, SPECIAL, SPECIAL_OF_HALF, ToQueue
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.request_shapes import PLAIN_KEYS_MAX, Plan, Properties
from escrowmq.codec.sent_template import SentTemplate
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import TopicTable
from escrowmq.lane.native import (
    EndShape,
    EndsLane,
    JsonShape,
    LayOutBatch,
    LayOutSends,
    Moment,
    Shape,
)
from escrowmq.store.run import Common, Tail
from escrowmq.store.store import Store
from escrowmq.txn.plain_halves import HALF_MARK, PlainHalf
from escrowmq.txn.state import State
from escrowmq.txn.transactions import Transactions

_SOURCE_OF: Final = attrgetter("group", "topic")
_TARGETS_MAX: Final = 10_000
_GROUPS_MAX: Final = 1_024


class Target:
    """Where the plain messages for a queue go, and how they are answered."""

    __slots__ = ("place", "queue_id", "replies", "sizes", "tail", "topic")

    def __init__(self, topic: str, queue_id: int, replies: SentTemplate) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.tail: Tail | None = None
        """The end of the queue, once it is known and exists."""
        self.replies = replies
        self.sizes: list[int] = []
        """Sizes of the records of this run for the queue, including halves."""
        place = {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
        self.place = encode_properties(place)
        """The properties on a half that name the target of its message."""


class PutStretch(msgspec.Struct):
    """Requests that were put: where the first is that was not, all replies, how many were put, how
    many of these want no answer, and as many figures of the batches besides (lane/native)."""

    end: int
    replies: bytes
    puts_count: int
    one_way_count: int
    batches: list[tuple[str, int, int, int]]


class ShortPuts:
    """The records of one run. Nothing else changes before `write`."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        clients: Clients,
        stats: Stats,
        identity: Identity,
        frames: Frames,
        transactions: Transactions,
        ends: EndHandlers,
        arrivals: Arrivals,
        serving: Serving,
        output: Output,
        latency: Latency,
        run_answers: BatchedReplies,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clients = clients
        self._stats = stats
        self._identity = identity
        self._frames = frames
        self._transactions = transactions
        self._engine = ends.engine
        self._is_awaited = arrivals.is_awaited
        self._run = store.run(identity.packed)
        self._properties = Properties(SPECIAL, SPECIAL_OF_HALF)
        self._body_size_max = store.settings.body_size_max
        room = self._run, identity.packed, self._properties, self._body_size_max
        self._batches = ShortBatches(*room)
        self._stored: list[tuple[str, int, int]] = []
        """Batches: topic, messages, and bytes of their records."""
        self._ends = ShortEnds(
            run=self._run,
            topics=topics,
            halves=ShortHalves(store.log, self._properties, identity.packed),
            ends=ends,
            serving=serving,
            output=output,
            latency=latency,
            run_answers=run_answers,
            log_ends=store.ends,
            tail_of=self._tail_of,
        )
        self.seal_ends, self.tell_ends = self._ends.seal, self._ends.tell
        self.write = self._run.write
        self._now_ms = 0
        self._said: dict[str, str] = {}
        self._halves_max = 0  # that may be pending
        self._suffix = b""
        self._depends_on: tuple[int, ...] = ()
        """What targets and replies depend on: the topics' version, and settings."""
        self._targets: dict[tuple[str, int], Target] = {}
        self._half_tail: Tail | None = None
        self._places = Places()
        self._groups: set[str] = set()
        self._sent: list[Target] = []
        self._begun: list[PlainHalf] = []

    @property
    def are_allowed(self) -> bool:
        """Whether records may be put this way just now."""
        return self._run.is_allowed

    @property
    def log_end(self) -> int:
        """The end of the last record of the last run."""
        return self._run.end

    def begin(self, now_ms: int) -> bool:
        """Begin a run, unless records may not be put this way just now. What depends on topics and
        settings is looked up again when one of them has changed."""
        settings = self._settings
        depends_on = (
            self._topics.version.counter, settings.is_traced,
            settings.rejects_transactions, settings.pending_max,
        )  # fmt: skip
        if depends_on != self._depends_on:
            self._depends_on = depends_on
            self._halves_max = room_for_halves(settings, 0)
            self._said = self._frames.send_reply_fields()
            added = {**self._said, Property.CLUSTER: self._settings.cluster}
            self._suffix = encode_properties(added)
            self._targets.clear()
            self._half_tail = None
            self._places.clear()
        self._now_ms = now_ms
        return self._run.begin(now_ms)

    def target(self, topic: str, queue_id: int) -> Target | None:
        """Where plain messages for a queue go; None when the general path must decide."""
        return self._targets.get((topic, queue_id)) or self._new_target(topic, queue_id)

    def _new_target(self, topic: str, queue_id: int) -> Target | None:
        config = self._topics.get(topic)
        if not is_plain(QUEUE_RULES, ToQueue(self._settings, topic, queue_id, config)):
            return None
        if len(self._targets) >= _TARGETS_MAX:
            self._targets.clear()
            self._places.clear()
        replies = SentTemplate(self._said, self._identity.packed, queue_id)
        target = Target(topic, queue_id, replies)
        self._note(target)
        self._targets[topic, queue_id] = target
        return target

    def _tail(self, target: Target) -> Tail | None:
        """The end of a target's queue; None when it does not exist yet: the general path creates
        it."""
        if target.tail is None:
            target.tail = self._run.tail(target.topic, target.queue_id)
            self._note(target)
        return target.tail

    def _note(self, target: Target) -> None:
        self._places.note(
            target, target.topic, target.queue_id, target.tail, target.replies, target.place,
            is_read=self._topics.queue_read(target.topic, target.queue_id) == target.queue_id,
        )  # fmt: skip

    # -- messages ----------------------------------------------------------------------------------

    def send(
        self,
        peer: Peer,
        target: Target,
        properties: bytes,
        body: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        reconsume_times: int,
        *,
        wants_id: bool,
    ) -> tuple[int, int, bytes, str] | None:
        """Put a message or a half. Returns its place in the log and in its queue, its unique key,
        and for a half the id of its transaction, if requested. None, with nothing put, when it is
        not plain."""
        if properties[-1:] != b"\x02":  # clients leave the last one out
            properties += b"\x02"
        found = self._properties.read(properties)
        if found is None:
            return None
        plan, fields = found
        keys = plan.keys_in(fields)
        if len(keys) > PLAIN_KEYS_MAX:
            return None
        key, encoded = fields[plan.key], properties + self._suffix
        if plan.is_half >= 0:
            tail = self._tail_of_halves(plan, fields, sys_flag)
            # A new key has to be kept before it signs, which may fail: the general path says so.
            if wants_id and self._transactions.keyring.is_due(self._now_ms):
                tail = None
            sys_flag &= ~SysFlag.TRANSACTION_MASK
            encoded = b"".join((encoded, HALF_MARK, key, b"\x02", target.place))
        else:
            tail = None if sys_flag & ODD else target.tail or self._tail(target)
        if tail is None:
            return None
        code = plan.tags_code_in(fields)
        run = self._run
        log_offset = run.put(
            tail, body, encoded, code, flag, sys_flag, born_ms, peer.packed, reconsume_times
        )
        if log_offset < 0:
            return None
        run.index(tail, key, keys, log_offset)
        if not target.sizes:
            self._sent.append(target)
        target.sizes.append(run.end - log_offset)
        if plan.is_half >= 0:
            half = PlainHalf(
                tail.next_offset - 1, log_offset, run.end - log_offset, run.stored_ms,
                fields[plan.group].decode(), target.topic, target.queue_id, key, keys,
                encoded, body, code, flag, sys_flag, born_ms, peer.packed, self._identity.packed,
                reconsume_times,
            )  # fmt: skip
            self._begun.append(half)
            if wants_id:
                signed_id = self._transactions.sign(half, key.decode(), self._now_ms)
                return log_offset, half.queue_offset, key, signed_id
        return log_offset, tail.next_offset - 1, key, ""

    def put_by_lane(
        self,
        lay_out: LayOutSends,
        peer: Peer,
        shapes: list[Shape | JsonShape],
        data: bytes,
        at: int,
        frame_size_max: int,
    ) -> PutStretch | None:
        """Put consecutive messages and halves of known shapes; None when none can be put this
        way."""
        pending_count = self._engine.halves.pending.pages.count + len(self._begun)
        halves_max = self._halves_max - pending_count
        if halves_max < 0:
            halves_max = 0
        laid_out = lay_out(
            data, at, frame_size_max, shapes, self._properties.plans, self._places.by_name,
            self._moment(peer, halves_max),
        )  # fmt: skip
        if laid_out is None:
            return None
        at, records, replies, units, sent, keys, halves, batches, count, one_way_count = laid_out
        self._run.put_laid_out(records, units, keys)
        for target, sizes in sent:
            if not target.sizes:
                self._sent.append(target)
            target.sizes += sizes
        if halves:
            self._begun += [PlainHalf(*half) for half in halves]
        if batches:
            self._stored += [batch[:3] for batch in batches]
        return PutStretch(at, replies, count, one_way_count, batches)

    def _moment(self, peer: Peer, halves_max: int) -> Moment:
        run = self._run
        return (
            run.end, run.room_end, run.stored_ms, run.host, peer.packed, self._suffix, HALF_MARK,
            self._body_size_max, PROPERTIES_SIZE_MAX, PLAIN_KEYS_MAX, halves_max, self._groups,
            self._places.of_halves, BATCH_AT_ONCE_MAX, self._batches.unnamed,
        )  # fmt: skip

    def batch(
        self,
        lay_out: LayOutBatch | None,
        peer: Peer,
        target: Target,
        properties: bytes,
        entries: Entries,
        common: Common,
    ) -> tuple[bytes, int, bytes] | None:
        """Put a batch. Returns the ids of its messages, the queue offset of the first, and the key
        of the whole. None, with nothing put, when it is not plain."""
        tail = self._tail(target)
        key = self._batches.key_of(properties)
        if tail is None or key is None or len(target.topic) > TOPIC_SIZE_MAX:
            return None
        moment = self._moment(peer, 0)
        put = self._batches.put(lay_out, tail, entries, common, self._suffix, moment)
        if put is None:
            return None
        ids, count = put
        self._stored.append((target.topic, count, self._run.end - moment[0]))
        return ids, tail.next_offset - count, key

    def _tail_of_halves(self, plan: Plan, fields: list[bytes], sys_flag: int) -> Tail | None:
        """Where halves go; None when the general path must decide."""
        pending_count = self._engine.halves.pending.pages.count + len(self._begun)
        if (
            plan.group < 0
            or fields[plan.is_half].lower() != b"true"
            or sys_flag & ODD_OF_HALF
            or pending_count >= self._halves_max
            or not self._is_group(fields[plan.group].decode())
        ):
            return None
        return self._half_tail or self._find_half_tail()

    def _find_half_tail(self) -> Tail | None:
        self._half_tail = self._run.tail(Topic.HALF, 0)
        self._places.note_halves(self._half_tail)
        return self._half_tail

    def _is_group(self, name: str) -> bool:
        if name in self._groups:
            return True
        if not is_plain(GROUP_RULES, HalfAsked(self._settings, name)):
            return False
        if len(self._groups) >= _GROUPS_MAX:
            self._groups.clear()
        self._groups.add(name)
        return True

    # -- ends --------------------------------------------------------------------------------------

    def end_half(
        self,
        group: str,
        key: bytes,
        *,
        queue_offset: int,
        log_offset: int,
        state: State,
        number: Number | None,
    ) -> bool:
        """End a transaction on the fast path (broker/fast/short_ends); False, with nothing done,
        when the general path must."""
        return self._ends.end(
            group,
            key,
            queue_offset=queue_offset,
            log_offset=log_offset,
            state=state,
            number=number,
            suffix=self._suffix,
        )

    def end_by_lane(
        self,
        lane: EndsLane,
        peer: Peer,
        shapes: list[EndShape],
        data: bytes,
        at: int,
        frame_size_max: int,
    ) -> PutEnds | None:
        """End transactions for consecutive ENDs of known shapes; None when none can be ended this
        way."""
        if self._half_tail is None:
            self._find_half_tail()
        return self._ends.end_by_lane(
            lane, shapes, data, at, frame_size_max,
            plans=self._properties.plans, places=self._places.by_half,
            moment=self._moment(peer, 0),
        )  # fmt: skip

    def _tail_of(self, topic: str, queue_id: int) -> Tail | None:
        target = self.target(topic, queue_id)
        return None if target is None else self._tail(target)

    # -- all of them -------------------------------------------------------------------------------

    def apply_effects(self, peer: Peer, now_ms: int) -> None:
        """Do what follows from the written run. Its records are visible in their queues only from
        here on."""
        self._run.publish(self._is_awaited)
        for target in self._sent:
            self._stats.put_each(target.topic, target.sizes)
        for topic, count, size in self._stored:
            self._stats.put(topic, count, size)
        if len(self._begun) == 1:  # most reads have one, if any
            (half,) = self._begun
            origin = self._clients.note_published(half.group, peer.id, half.topic)
            self._engine.halves.enter_plain(half, origin=origin, account=peer.counted_for)
        elif self._begun:
            self._enter_halves(peer)
        if self._ends.ended:
            self._ends.commit(peer, now_ms)

    def _enter_halves(self, peer: Peer) -> None:
        """Add the new halves to the pending ones, those that are alike at once."""
        halves, account = self._engine.halves, peer.counted_for
        for (group, topic), alike in groupby(self._begun, _SOURCE_OF):
            origin = self._clients.note_published(group, peer.id, topic)
            halves.enter_alike(list(alike), origin=origin, account=account)

    def forget(self) -> None:
        """Clear the run."""
        for target in self._sent:
            target.sizes.clear()
        self._sent.clear()
        self._stored.clear()
        self._begun.clear()
        if self._ends.ended:
            self._ends.forget()
        self._run.done()
