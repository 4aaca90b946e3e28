"""What the short cut puts (see there): plain messages, plain halves, and the messages of those
that are committed, as records of one run, and what else is to happen once they are in the log."""

from __future__ import annotations

from typing import Final

from escrowmq.base.extensions import CHECKER, MARKER
from escrowmq.base.message import Property, SysFlag, Topic, is_sendable
from escrowmq.broker.arrivals import Arrivals
from escrowmq.broker.asked import Question
from escrowmq.broker.entry import MARKED, ODD, ODD_OF_HALF, group_fault
from escrowmq.broker.on_end import EndHandlers
from escrowmq.broker.peer import Peer
from escrowmq.broker.putting import DIVERTING
from escrowmq.broker.state import Broker
from escrowmq.codec.hashes import tags_code
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.sent_template import SentTemplate
from escrowmq.codec.shapes import Plan, Properties
from escrowmq.store.run import Tail
from escrowmq.txn.claim import Ended, EndResult
from escrowmq.txn.plain import PlainHalf
from escrowmq.txn.state import State

_KEYS_MAX: Final = 4
"""More in a message, and its input may be too much for one turn."""

_TARGETS_MAX: Final = 10_000
_GROUPS_MAX: Final = 1_024
_SET_HERE: Final = frozenset({Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER})
_SPECIAL: Final = MARKED | DIVERTING | _SET_HERE | {Property.TRAN_MSG, Property.REPLY_TO_CLIENT}
"""Properties by which a message is no plain one, or which the broker sets itself."""


class _SpecialOfHalf:
    """The same for halves: each name of ours that means something to a broker is one."""

    _names: Final = MARKED | DIVERTING | _SET_HERE | {
        Property.REPLY_TO_CLIENT, Property.CHECK_IMMUNITY_TIME, Property.TRANSACTION_ID,
    }  # fmt: skip
    _of_clients: Final = frozenset({CHECKER, MARKER})

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, str)
        return name in self._names or (name.startswith("escrow") and name not in self._of_clients)


class Target:
    """Where the plain messages for a queue go, and what is answered to them."""

    __slots__ = ("place", "queue_id", "replies", "sizes", "tail", "topic")

    def __init__(self, topic: str, queue_id: int, replies: SentTemplate) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.tail: Tail | None = None
        """Where the queue ends, once it is known and there is one."""
        self.replies = replies
        self.sizes: list[int] = []
        """Of the records of this run that were sent to the queue, halves among them."""
        place = {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
        self.place = encode_properties(place)
        """On a half, where its message is to go."""


class ShortPuts:
    """The records of one run. Nothing else happens before `commit`."""

    def __init__(self, broker: Broker, ends: EndHandlers, arrivals: Arrivals) -> None:
        self._broker = broker
        self._ends, self._engine = ends, ends.engine
        self._is_awaited = arrivals.is_awaited
        self._run = broker.store.run(broker.packed)
        self._properties = Properties(_SPECIAL, _SpecialOfHalf())
        self._said: dict[str, str] = {}
        self._suffix = b""
        self._topics_version = -1
        self._targets: dict[tuple[str, int], Target] = {}
        self._half_tail: Tail | None = None
        self._groups: set[str] = set()
        self._sent: list[Target] = []
        self._begun: list[PlainHalf] = []
        self._ended: list[tuple[PlainHalf, Question | None]] = []
        """With those who want to be told."""

    @property
    def are_allowed(self) -> bool:
        """Whether records may be put so at all just now."""
        return self._run.is_allowed

    def begin(self, now_ms: int) -> None:
        """A run begins. What depends on topics and settings is asked for again when one of them
        has changed."""
        broker = self._broker
        version, said = broker.topics.version.counter, broker.frames.said_to_senders()
        if version != self._topics_version or said is not self._said:
            self._topics_version, self._said = version, said
            added = {**said, Property.CLUSTER: broker.settings.cluster}
            self._suffix = encode_properties(added)
            self._targets.clear()
            self._half_tail = None
        self._run.begin(now_ms)

    def target(self, topic: str, queue_id: int) -> Target | None:
        """Where plain messages for a queue go; None when they have to be asked more."""
        return self._targets.get((topic, queue_id)) or self._new_target(topic, queue_id)

    def _new_target(self, topic: str, queue_id: int) -> Target | None:
        broker = self._broker
        config = broker.topics.get(topic)
        if (
            config is None
            or config.order
            or not is_sendable(topic)
            or topic.startswith((Topic.RETRY_PREFIX, Topic.SYSTEM_PREFIX))
            or queue_id >= max(config.read_queue_nums, config.write_queue_nums)
            or config.has_many_tags
            or config.is_compacted
        ):
            return None
        if len(self._targets) >= _TARGETS_MAX:
            self._targets.clear()
        replies = SentTemplate(self._said, broker.packed, queue_id)
        target = Target(topic, queue_id, replies)
        self._targets[topic, queue_id] = target
        return target

    def _tail(self, target: Target) -> Tail | None:
        """The end of a target's queue; None when it has none yet: the general way makes it."""
        if target.tail is None:
            target.tail = self._run.tail(target.topic, target.queue_id)
        return target.tail

    # -- messages ----------------------------------------------------------------------------------

    def send(  # noqa: PLR0913 - what a record is made of
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
    ) -> tuple[Tail, bytes] | None:
        """Put a message or a half: where it went, and its unique key. None when it is no plain
        one; then nothing was put."""
        if properties[-1:] != b"\x02":  # clients leave the last one out
            properties += b"\x02"
        found = self._properties.read(properties)
        if found is None:
            return None
        plan, fields = found
        keys = tuple(filter(None, fields[plan.keys].split(b" "))) if plan.keys >= 0 else ()
        if len(keys) > _KEYS_MAX:
            return None
        key, encoded = fields[plan.key], properties + self._suffix
        if plan.is_half >= 0:
            tail = None if wants_id else self._tail_of_halves(plan, fields, sys_flag)
            sys_flag &= ~SysFlag.TRANSACTION_MASK
            encoded = b"".join((encoded, b"__transactionId__\x01", key, b"\x02", target.place))
        else:
            tail = None if sys_flag & ODD else target.tail or self._tail(target)
        if tail is None:
            return None
        code = tags_code(fields[plan.tags].decode()) if plan.tags >= 0 else 0
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
                encoded, body, code, flag, sys_flag, born_ms, peer.packed, self._broker.packed,
                reconsume_times,
            )  # fmt: skip
            self._begun.append(half)
        return tail, key

    def _tail_of_halves(self, plan: Plan, fields: list[bytes], sys_flag: int) -> Tail | None:
        """Where halves go; None when this one is to be asked more."""
        settings, pending = self._broker.settings, self._engine.halves.pending
        if (
            plan.group < 0
            or fields[plan.is_half].lower() != b"true"
            or sys_flag & ODD_OF_HALF
            or settings.rejects_transactions
            or len(pending) + len(self._begun) >= settings.pending_max
            or not self._is_group(fields[plan.group].decode())
        ):
            return None
        if self._half_tail is None:
            self._half_tail = self._run.tail(Topic.HALF, 0)
        return self._half_tail

    def _is_group(self, name: str) -> bool:
        if name in self._groups:
            return True
        if group_fault(name):
            return False
        if len(self._groups) >= _GROUPS_MAX:
            self._groups.clear()
        self._groups.add(name)
        return True

    # -- ends --------------------------------------------------------------------------------------

    def commit_half(
        self,
        group: str,
        key: bytes,
        *,
        queue_offset: int,
        log_offset: int,
        asked: Question | None,
    ) -> bool:
        """Put the message of a half; False, with nothing done, when it is not known as a plain
        one any more, or not this producer's. Who asked is told when it has an op record."""
        engine = self._engine
        halves = engine.halves
        half = halves.recent.plain(queue_offset=queue_offset, log_offset=log_offset)
        if (
            half is None
            or half.group != group
            or half.key != key
            or halves.pending.log_offset(queue_offset) != log_offset
            or self._broker.topics.queue_read(half.topic, half.queue_id) != half.queue_id
        ):
            return False
        target = self.target(half.topic, half.queue_id)
        tail = None if target is None else self._tail(target)
        if tail is None:
            return False
        run = self._run
        at = run.put(
            tail, half.body, half.properties, half.tags_code, half.flag,
            half.sys_flag | SysFlag.COMMIT, half.born_ms, half.born_host, half.reconsume_times,
            log_offset,
        )  # fmt: skip
        if at < 0:
            return False
        run.index(tail, key, half.keys, at)
        halves.recent.drop(queue_offset)
        self._ended.append((half, asked))
        return True

    # -- all of them -------------------------------------------------------------------------------

    def commit(self, peer: Peer, now_ms: int) -> bool:
        """Write what was put, and do what follows from it; False when it could not be written, and
        nothing has happened."""
        if not self._run.commit(self._is_awaited):
            self.drop()
            return False
        for target in self._sent:
            self._broker.stats.put_each(target.topic, target.sizes)
        for half in self._begun:
            origin = self._broker.clients.note_published(half.group, peer.id, half.topic)
            self._engine.halves.enter_plain(half, origin=origin, account=peer.counted_for)
        for half, asked in self._ended:
            self._engine.mark_committed(half.queue_offset, now_ms)
            if asked is not None:
                ended = Ended(EndResult.DONE, State.COMMITTED, half.queue_offset, half.topic)
                self._ends.answer(asked, ended)
        self._forget()
        return True

    def drop(self) -> None:
        """Nothing of this is to happen."""
        for half, _ in self._ended:
            self._engine.halves.recent.keep_plain(half)
        self._forget()

    def _forget(self) -> None:
        for target in self._sent:
            target.sizes.clear()
        self._sent.clear()
        self._begun.clear()
        self._ended.clear()
        self._run.done()
