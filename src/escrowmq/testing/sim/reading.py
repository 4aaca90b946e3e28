"""What a store holds, read through its face as a consumer would, and judged on the way."""

from __future__ import annotations

import msgspec

from escrowmq.base.message import Property, StoredMessage, SysFlag, Topic
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord
from escrowmq.store.store import Store
from escrowmq.testing.sim.ledger import Ident
from escrowmq.testing.sim.stage import Violation
from escrowmq.txn.op import decode_op

Queue = tuple[str, int]
_COUNT = 4096


class Seen(msgspec.Struct, frozen=True):
    """One record, where its queue's unit says that it is."""

    log_offset: int
    size: int
    message: StoredMessage

    @property
    def key(self) -> str:
        """The unique key that its sender gave it."""
        return self.message.properties.get(Property.UNIQ_KEY, "")


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
        self.queues: dict[Queue, list[Seen]] = {
            (Topic.HALF, 0): [],
            (Topic.OP, 0): [],
            (Topic.CHECK_MAX_TIME, 0): [],
        }
        for topic, count in topics:
            self.queues.update({(topic, queue_id): [] for queue_id in range(count)})
        self.outcomes: dict[int, str] = {}
        """Letters of the op records, by half queue offset."""
        self.finals: dict[Ident, Queue] = {}
        self.given_up: set[str] = set()
        self.half_at: dict[int, int] = {}
        """Queue offsets of halves by log offset."""
        self._known = known
        self._known_end = known_end
        """Records that end here or before are as they were in `known`, and not read again."""

    def advance(self, store: Store) -> None:
        """Read every queue from where the last call ended."""
        for queue, seen in self.queues.items():
            for item in self._news(store, queue, len(seen)):
                seen.append(item)
                self._take(queue, item)

    def _news(self, store: Store, queue: Queue, start: int) -> list[Seen]:
        low, end = store.bounds(*queue)
        if low != 0 or end < start:
            raise Violation(f"{queue} holds {low}..{end}, {start} were there before")
        known = self._known.queues.get(queue, []) if self._known is not None else []
        found: list[Seen] = []
        while start + len(found) < end:
            entries = store.entries(*queue, start + len(found), _COUNT)
            if not entries:
                raise Violation(f"{queue} ends at {end}, but {start + len(found)} cannot be read")
            for log_offset, size, _ in entries:
                number = start + len(found)
                is_known = (
                    number < len(known)
                    and known[number].log_offset == log_offset
                    and log_offset + size <= self._known_end
                )
                if is_known:
                    found.append(known[number])
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
            case Topic.OP:
                for half_offset, letter in decode_op(item.message):
                    if half_offset in self.outcomes:
                        raise Violation(f"two op records name half {half_offset}")
                    self.outcomes[half_offset] = letter
            case Topic.CHECK_MAX_TIME:
                self.given_up.add(item.key)
            case _:
                self._take_final(queue, item)

    def _take_final(self, queue: Queue, item: Seen) -> None:
        message = item.message
        if message.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.COMMIT:
            raise Violation(f"{queue} offset {message.queue_offset} is no committed message")
        half_offset = self.half_at.get(message.prepared_log_offset)
        if half_offset is None:
            raise Violation(f"final {item.key} without a half at {message.prepared_log_offset}")
        half = self.queues[Topic.HALF, 0][half_offset]
        wanted = (half.message.properties["REAL_TOPIC"], int(half.message.properties["REAL_QID"]))
        if half.key != item.key or half.message.body != message.body or queue != wanted:
            raise Violation(f"final {item.key} in {queue} is not of half {half.key} for {wanted}")
        ident = (item.key, message.prepared_log_offset)
        if ident in self.finals:
            raise Violation(f"{ident} stands twice: in {self.finals[ident]} and in {queue}")
        self.finals[ident] = queue

    def halves(self) -> list[tuple[int, Ident]]:
        """All halves: queue offset and identity."""
        return [
            (number, (item.key, item.log_offset))
            for number, item in enumerate(self.queues[Topic.HALF, 0])
        ]

    def open_halves(self) -> set[int]:
        """Queue offsets of the halves with no end: neither op record nor final."""
        return {
            number
            for number, ident in self.halves()
            if number not in self.outcomes and ident not in self.finals
        }

    def check_survivors(self, later: Reading, *, durable_offset: int) -> None:
        """What was durable here is unchanged in a later reading."""
        for queue, seen in self.queues.items():
            there = later.queues[queue]
            for number, item in enumerate(seen):
                if item.log_offset + item.size > durable_offset:
                    continue
                if number >= len(there) or there[number].log_offset != item.log_offset:
                    raise Violation(f"{queue} offset {number} ({item.key}) was durable and is gone")
                if there[number].message != item.message:
                    raise Violation(f"{queue} offset {number} ({item.key}) has changed")
