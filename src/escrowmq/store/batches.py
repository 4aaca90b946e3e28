"""Stores batches: messages of one queue that are stored together, all or none."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from escrowmq.base.fixed_limits import UNSEEN_MAX
from escrowmq.base.message import Message, SysFlag
from escrowmq.codec.record import set_record_offsets
from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.encoding import (
    Piece,
    encode_pieces,
    put_results,
    too_large_result,
    with_crcs,
    without_final_zeros,
)
from escrowmq.store.results import PutResult, PutStatus
from escrowmq.store.store_parts import StoreState
from escrowmq.store.unseen import UnseenBatch, UnseenRecord


class LongBatch:
    """A batch that is too long for one turn. Its records are encoded in parts, without offsets.
    Then all get their offsets and are stored in one step, which costs a tenth of the encoding."""

    def __init__(self, message: Message, *, has_crc: bool) -> None:
        assert not message.sys_flag & SysFlag.PREPARED, "a batch has plain messages"
        self.message = message
        self.sizes: list[int] = []
        """The sizes of the records."""
        self._has_crc = has_crc
        self._records = bytearray()
        self._singles: list[Message] = []
        self._counts: list[int] = []
        """The number of messages in each part."""

    def add(self, pieces: Sequence[Piece]) -> None:
        """Encode further records."""
        message = self.message
        records = encode_pieces(
            message,
            without_final_zeros(pieces),
            queue_offset=0,
            log_offset=0,
            has_crc=self._has_crc,
            stored_ms=0,
        )
        self._records += b"".join(records)
        self.sizes += map(len, records)
        self._counts.append(len(pieces))
        self._singles += [_single_message(message, properties) for _, _, _, properties in pieces]

    def fill_in_offsets(self, *, queue_offset: int, log_offset: int, stored_ms: int) -> bytes:
        """Return the records with their offsets filled in."""
        set_record_offsets(
            self._records,
            self.sizes,
            self.message,
            queue_offset=queue_offset,
            log_offset=log_offset,
            stored_ms=stored_ms,
        )
        records = bytes(self._records)
        return with_crcs(records, self.sizes) if self._has_crc else records

    def log_offsets(self, log_offset: int) -> Iterator[int]:
        """Return the log offsets of the records, given that of the first."""
        return accumulate(self.sizes[:-1], initial=log_offset)

    def unseen_batches(self, queue: ConsumeQueue, put: PutResult) -> Iterator[UnseenBatch]:
        """Yield the runs to dispatch once the records are stored."""
        queue_offset, log_offset = put.queue_offset, put.log_offset
        begin = 0
        for count in self._counts:
            sizes = self.sizes[begin : begin + count]
            singles = self._singles[begin : begin + count]
            begin += count
            yield UnseenBatch(
                queue, singles[0], queue_offset, log_offset, put.stored_ms, singles, sizes
            )
            queue_offset += len(sizes)
            log_offset += sum(sizes)


class BatchWriter:
    """Stores batches, each as a whole or not at all."""

    def __init__(
        self,
        state: StoreState,
        judge: Callable[[Message, int, int], PutResult | None],
        *,
        unseen_max: int = UNSEEN_MAX,
    ) -> None:
        self._state = state
        self._judge = judge
        self._unseen_max = unseen_max

    def put(self, message: Message, pieces: Sequence[Piece], now_ms: int) -> list[PutResult]:
        """Append messages of one queue, all or none, with consecutive queue offsets. Each is
        `message` with its own flag, body and properties, given by `pieces`."""
        assert pieces, "a batch has messages"
        assert not message.sys_flag & SysFlag.PREPARED, "a batch has plain messages"
        state = self._state
        refused = self.refusal(message, pieces)
        if refused is not None:
            return [refused] * len(pieces)
        now_ms = max(now_ms, state.log.stored_ms)
        pieces = without_final_zeros(pieces)
        queue, log = state.queues.get_or_create(message.topic, message.queue_id), state.log
        encode = partial(
            encode_pieces,
            message,
            pieces,
            queue_offset=queue.next_offset,
            has_crc=state.settings.appends_crc,
            stored_ms=now_ms,
        )
        try:
            records = encode(log_offset=log.end_offset)
            size = sum(map(len, records))
            if not log.fits(size):
                if size > log.record_size_max:
                    return [too_large_result(size, log.record_size_max)] * len(pieces)
                log.roll(size)
                records = encode(log_offset=log.end_offset)
            log_offset = log.end_offset
            log.append(b"".join(records), now_ms)
        except (StorageError, OSError, struct.error) as error:
            return [state.write_gate.failed_put(error)] * len(pieces)
        puts = put_results(
            records, queue_offset=queue.next_offset, log_offset=log_offset, stored_ms=now_ms
        )
        queue.set_next_offset(queue.next_offset + len(puts))
        if not state.dispatcher.dispatch_batch(queue, message, pieces, puts):
            state.dispatcher.enqueue(_single_dispatches(queue, message, pieces, puts))
        return puts

    def refusal(self, message: Message, pieces: Sequence[Piece]) -> PutResult | None:
        """Return why the messages of a batch cannot be stored; None when they can."""
        state = self._state
        if state.write_gate.refusal is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=state.write_gate.refusal)
        queue = state.queues.by_key.get((message.topic, message.queue_id))
        if reason := state.dispatcher.held_back.refusal(queue):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        body_size = max([len(piece[1]) for piece in pieces])
        properties_size = max([len(piece[2]) for piece in pieces])
        return self._judge(message, body_size, properties_size)

    def begin(self, message: Message) -> LongBatch:
        """Create an empty batch to which messages are added in parts. Nothing is stored before
        `put_long`."""
        return LongBatch(message, has_crc=self._state.settings.appends_crc)

    def put_long(self, batch: LongBatch, now_ms: int) -> PutResult:
        """Append the whole batch, or nothing. Return the offset of the first record, and the size
        and end of all. Consumers see the batch part by part; later records follow after its last
        part."""
        assert batch.sizes, "a batch has messages"
        state, message = self._state, batch.message
        if state.write_gate.refusal is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=state.write_gate.refusal)
        unseen = state.dispatcher.waiting_size
        if unseen > self._unseen_max:
            reason = f"{unseen} bytes wait to be shown to consumers, {self._unseen_max} may"
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        now_ms = max(now_ms, state.log.stored_ms)
        queue, log = state.queues.get_or_create(message.topic, message.queue_id), state.log
        if reason := state.dispatcher.held_back.refusal(queue):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        size, number = sum(batch.sizes), queue.next_offset
        try:
            if not log.fits(size):
                if size > log.record_size_max:
                    return too_large_result(size, log.record_size_max)
                log.roll(size)
            at = log.end_offset
            placed = batch.fill_in_offsets(queue_offset=number, log_offset=at, stored_ms=now_ms)
            log.append(placed, now_ms)
        except (StorageError, OSError, struct.error) as error:
            return state.write_gate.failed_put(error)
        put = PutResult(PutStatus.OK, at, number, size, now_ms, at + size)
        queue.set_next_offset(number + len(batch.sizes))
        state.dispatcher.enqueue(batch.unseen_batches(queue, put))
        return put


def _single_dispatches(
    queue: ConsumeQueue, message: Message, pieces: Sequence[Piece], puts: list[PutResult]
) -> Iterator[UnseenRecord]:
    for (_, _, _, properties), put in zip(pieces, puts, strict=True):
        single = _single_message(message, properties)
        places = (put.queue_offset, put.log_offset, put.record_size, put.stored_ms)
        yield UnseenRecord(queue, single, *places)


def _single_message(message: Message, properties: dict[str, str]) -> Message:
    """Return one message of a batch, to be dispatched."""
    return Message(
        topic=message.topic,
        body=b"",
        queue_id=message.queue_id,
        properties=properties,
        sys_flag=message.sys_flag,
    )
