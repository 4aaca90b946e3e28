"""What a store holds, read through its face as a consumer would, and judged on the way."""

from __future__ import annotations

import msgspec

from escrowmq.base.message import Property, StoredMessage, SysFlag, Topic
from escrowmq.base.own_properties import CARRIED, DELAYED, ORDER_KEY, TRANSACTION
from escrowmq.codec import fastjson
from escrowmq.codec.record import decode_record
from escrowmq.delivery.groups import TRANSACTION_GROUP
from escrowmq.errors import CorruptRecord
from escrowmq.store.store import Store
from escrowmq.txn.op_records import decode_op
from tests.sim.halves import LEVELS_MAX
from tests.sim.ledger import Ident
from tests.sim.stage import Violation

Queue = tuple[str, int]
_COUNT = 4096
QUEUES_MAX = 4
"""Of a topic, after it has grown."""


class Seen(msgspec.Struct, frozen=True, eq=False):
    """One record, where its queue's unit says that it is."""

    log_offset: int
    size: int
    message: StoredMessage

    @property
    def key(self) -> str:
        """The unique key that its sender gave it."""
        return self.message.properties.get(Property.UNIQ_KEY, "")

    @property
    def ident(self) -> Ident:
        """Of a half: which one it is."""
        return self.key, self.log_offset

    @property
    def is_delivered_late(self) -> bool:
        """Whether a delay has passed: such a message does not say of which half it is."""
        properties = self.message.properties
        return DELAYED in properties and (
            Property.DELAY in properties or Property.TIMER_OUT_MS in properties
        )


def waiting_in(store: Store) -> list[Seen]:
    """The records of the log that wait for room in a queue."""
    if store.dispatcher.stalled is None:
        return []
    rows = [row for item in store.dispatcher.waiting for row in item.single_dispatches()]
    return [
        Seen(row.log_offset, row.record_size, decode_record(record, check_crc=True))
        for row in rows
        if row.queue is not None
        for record in [store.read_record(row.log_offset, row.record_size)]
    ]


def scope_of(item: Seen) -> tuple[str, str]:
    """Producer group and transaction of a message of several."""
    properties = item.message.properties
    return properties.get(Property.PGROUP, ""), properties[TRANSACTION]


class Reading:
    """Halves, ends and finals of one store; `advance` takes in what is new.

    Violation when something stands there twice, or without what it needs."""

    def __init__(
        self,
        topics: tuple[tuple[str, int], ...],
        known: Reading | None = None,
        *,
        known_end: int = 0,
    ) -> None:
        self.queues: dict[Queue, list[Seen | None]] = {
            (Topic.HALF, 0): [],
            (Topic.OP, 0): [],
            (Topic.CHECK_MAX_TIME, 0): [],
            (Topic.TIMER, 0): [],
            **{(Topic.SCHEDULE, level): [] for level in range(LEVELS_MAX)},
        }
        """None stands where retention was faster than we."""
        for topic, _ in topics:
            self.queues.update({(topic, queue_id): [] for queue_id in range(QUEUES_MAX)})
        self.outcomes: dict[int, str] = {}
        """Letters of the op records, by half queue offset."""
        self.op_at: dict[int, int] = {}
        """Where these op records lie in the log."""
        self.finals: dict[Ident, Seen] = {}
        """What a commit has stored for a half: its message, or what waits for its time."""
        self.delivered: dict[str, list[Seen]] = {}
        """Messages by key that came after their delay."""
        self.given_up: dict[str, list[Seen]] = {}
        self.joined: dict[tuple[str, str], list[int]] = {}
        """Queue offsets of halves by producer group and transaction."""
        self.waiting: set[Ident] = set()
        """Finals in the log that no queue has had room for yet."""
        self.waiting_at: dict[tuple[Queue, int], int] = {}
        """Places in queues for which there was no room yet, and the log offsets of the records."""
        self.waiting_halves: dict[int, Ident] = {}
        """Halves of such places, by queue offset."""
        self._waiting_ones: dict[int, Seen] = {}
        self.waiting_ends: dict[int, str] = {}
        """Letters of the op records for which the same is true."""
        self.waiting_late: set[str] = set()
        """Keys of what was delivered after its delay, and waits for room in its queue."""
        self.waiting_discards: set[str] = set()
        """Keys of what was given up and waits for room where it is kept."""
        self.half_at: dict[int, int] = {}
        """Queue offsets of halves by log offset."""
        self.min_log_offset = 0
        """The log begins here."""
        self.deleted_before: int = known.deleted_before if known is not None else 0
        """The log has begun here; a loss of power may bring back some of what was deleted."""
        self._known = known
        self._known_end = known_end
        """Records that end here or before are as they were in `known`, and not read again."""

    def advance(self, store: Store) -> list[Seen]:
        """Read every queue from where the last call ended; the finals that were found."""
        first_final = len(self.finals)
        rows = waiting_in(store)
        self._take_waiting(rows)
        for queue, seen in self.queues.items():
            if store.bounds(*queue)[1] != len(seen):
                for item in self._news(store, queue, len(seen)):
                    seen.append(item)
                    if item is not None:
                        self._take(queue, item)
        self.note_begin(store)
        return list(self.finals.values())[first_final:]

    def _take_waiting(self, rows: list[Seen]) -> None:
        """Keep in mind what the log has and no queue has room for."""
        self.waiting_at = {
            ((item.message.topic, item.message.queue_id), item.message.queue_offset): (
                item.log_offset
            )
            for item in rows
        }
        self._waiting_ones = {
            item.message.queue_offset: item for item in rows if item.message.topic == Topic.HALF
        }
        self.waiting_halves = {number: item.ident for number, item in self._waiting_ones.items()}
        self.waiting_ends = {
            number: letter
            for item in rows
            if item.message.topic == Topic.OP
            for number, letter in decode_op(item.message)
        }
        self.waiting_discards = {
            item.key for item in rows if item.message.topic == Topic.CHECK_MAX_TIME
        }
        late = [
            item for item in rows
            if item.message.topic.startswith("orders") and item.is_delivered_late
        ]  # fmt: skip
        self.waiting_late = {item.key for item in late}
        self.waiting = {
            (item.key, item.message.prepared_log_offset)
            for item in rows
            if (item.message.topic, item.message.queue_id) in self.queues
            and item.message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
            and item not in late
        }

    def note_begin(self, store: Store) -> None:
        """Take note of where the log begins."""
        self.min_log_offset = store.min_log_offset
        self.deleted_before = max(self.deleted_before, self.min_log_offset)

    def numbers_of(self, queue: Queue) -> list[int]:
        """Queue offsets of the messages that the log still has."""
        return [
            number
            for number, item in enumerate(self.queues[queue])
            if item is not None and item.log_offset >= self.deleted_before
        ]

    def _news(self, store: Store, queue: Queue, start: int) -> list[Seen | None]:
        low, end = store.bounds(*queue)
        if end < start:
            raise Violation(f"{queue} holds {low}..{end}, {start} were there before")
        known = self._known.queues.get(queue, []) if self._known is not None else []
        found: list[Seen | None] = list(known[start:low])
        found += [None] * (low - start - len(found))
        while start + len(found) < end:
            entries = store.read_units(*queue, start + len(found), _COUNT)
            if not entries:
                raise Violation(f"{queue} ends at {end}, but {start + len(found)} cannot be read")
            for log_offset, size, _ in entries:
                number = start + len(found)
                before = known[number] if number < len(known) else None
                is_known = (
                    before is not None
                    and before.log_offset == log_offset
                    and log_offset + size <= self._known_end
                )
                if is_known:
                    found.append(before)
                elif log_offset < store.min_log_offset:
                    found.append(None)  # its unit had waited for room, or for a descriptor
                else:
                    found.append(self._read(store, queue, number, log_offset, size))
        return found

    def _read(self, store: Store, queue: Queue, number: int, log_offset: int, size: int) -> Seen:
        try:
            message = decode_record(store.read_record(log_offset, size), check_crc=True)
        except CorruptRecord as error:
            raise Violation(f"{queue} offset {number} cannot be read: {error}") from error
        place = (message.topic, message.queue_id, message.queue_offset, message.log_offset)
        if place != (*queue, number, log_offset):
            raise Violation(f"{queue} offset {number} leads to {place}")
        return Seen(log_offset, size, message)

    def _take(self, queue: Queue, item: Seen) -> None:
        match queue[0]:
            case Topic.HALF:
                self.half_at[item.log_offset] = item.message.queue_offset
                if TRANSACTION in item.message.properties:
                    self.joined.setdefault(scope_of(item), []).append(item.message.queue_offset)
            case Topic.OP:
                for half_offset, letter in decode_op(item.message):
                    if half_offset in self.outcomes:
                        raise Violation(f"two op records name half {half_offset}")
                    self.outcomes[half_offset] = letter
                    self.op_at[half_offset] = item.log_offset
            case Topic.CHECK_MAX_TIME:
                self.given_up.setdefault(item.key, []).append(item)
            case _:
                message = item.message
                wanted = message.properties.get(Property.REAL_TOPIC, "orders")
                if not queue[0].startswith("orders") and not wanted.startswith("orders"):
                    return  # what waits to be delivered to somebody else, or to be tried again
                if message.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.COMMIT:
                    raise Violation(f"{queue} {message.queue_offset} is no committed message")
                if queue[0].startswith("orders") and item.is_delivered_late:
                    self.delivered.setdefault(item.key, []).append(item)
                else:
                    self._take_final(queue, item)

    def _take_final(self, queue: Queue, item: Seen) -> None:
        message = item.message
        ident = (item.key, message.prepared_log_offset)
        if ident in self.finals:
            raise Violation(f"{ident} stands twice: {self.finals[ident]} and {item}")
        self.finals[ident] = item
        half_offset = self.half_at.get(message.prepared_log_offset)
        half = None if half_offset is None else self.queues[Topic.HALF, 0][half_offset]
        if half is None:
            is_waiting = (item.key, message.prepared_log_offset) in self.waiting_halves.values()
            # A loss of power may bring back a segment that was deleted, and not the half's unit.
            begin = max(self.min_log_offset, self.deleted_before)
            if message.prepared_log_offset >= begin and not is_waiting:
                raise Violation(f"final {ident} without a half")
            return
        wanted = (half.message.properties["REAL_TOPIC"], int(half.message.properties["REAL_QID"]))
        is_at_place = queue == wanted or queue[0] in (Topic.SCHEDULE, Topic.TIMER)
        if queue[0] == wanted[0]:  # the topic has become narrower since, as `Steps` judges
            is_at_place = is_at_place or queue[1] < wanted[1]
        if ORDER_KEY in message.properties:
            is_at_place = is_at_place or queue[0] == wanted[0]
        if half.key != item.key or half.message.body != message.body or not is_at_place:
            raise Violation(f"final {item.key} in {queue} is not of half {half.key} for {wanted}")

    def half(self, number: int) -> Seen | None:
        """The half at a place, also where its queue waits for room; None where retention was
        faster."""
        halves = self.queues[Topic.HALF, 0]
        found = halves[number] if number < len(halves) else None
        return self._waiting_ones.get(number) if found is None else found

    def halves(self) -> list[tuple[int, Ident]]:
        """All halves that were ever read: queue offset and identity."""
        return [
            (number, (item.key, item.log_offset))
            for number, item in enumerate(self.queues[Topic.HALF, 0])
            if item is not None
        ]

    def carried_keys(self) -> set[str]:
        """The keys of those that were carried forward."""
        halves = self.queues[Topic.HALF, 0]
        return {each.key for each in halves if each and CARRIED in each.message.properties}

    def stored(self) -> dict[Ident, int]:
        """Queue offsets of all of them, those among them that have no unit yet."""
        return {i: number for number, i in (*self.halves(), *self.waiting_halves.items())}

    def open_halves(self) -> set[int]:
        """Queue offsets of the halves in the log with no end: neither op record nor final."""
        return {
            number
            for number, ident in (*self.halves(), *self.waiting_halves.items())
            if number not in self.outcomes
            and number not in self.waiting_ends
            and ident not in self.finals
            and ident not in self.waiting
            and ident[1] >= self.min_log_offset
        }

    def check_survivors(self, later: Reading, *, durable_offset: int) -> None:
        """What was durable here is unchanged in a later reading."""
        for queue, seen in self.queues.items():
            there = later.queues[queue]
            for number, item in enumerate(seen):
                if item is None or item.log_offset + item.size > durable_offset:
                    continue
                if item.log_offset < later.deleted_before:
                    continue
                found = there[number] if number < len(there) else None
                if found is item:
                    continue
                if found is None and later.waiting_at.get((queue, number)) == item.log_offset:
                    continue
                if found is None or found.log_offset != item.log_offset:
                    raise Violation(f"{queue} offset {number} ({item.key}) was durable and is gone")
                if found.message != item.message:
                    raise Violation(f"{queue} offset {number} ({item.key}) has changed")


def checks_before(half: StoredMessage) -> int:
    """Checks of the copies of a half before it was carried forward."""
    is_carried = CARRIED in half.properties
    return int(half.properties.get(Property.TRANSACTION_CHECK_TIMES, 0)) if is_carried else 0


def first_stored_ms(half: StoredMessage) -> int:
    """When the first copy of a half was stored."""
    first = half.properties.get(CARRIED)
    return half.stored_ms if first is None else int(first.rpartition(":")[2])


def progress_of(offsets: bytes | None) -> tuple[int, int]:
    """Where half and op queues are done with, by consumerOffset.json."""
    if offsets is None:
        return 0, 0
    table = fastjson.decode_fastjson(offsets)["offsetTable"]
    half = table.get(f"{Topic.HALF}@{TRANSACTION_GROUP}", {}).get("0", 0)
    op = table.get(f"{Topic.OP}@{TRANSACTION_GROUP}", {}).get("0", 0)
    return int(half), int(op)
