"""Removes the queues of topics that the master of a copied log has deleted.

The log keeps the records of a deleted topic. A copy that was down reads them again, and then those
of a new topic of the same name. So only queues whose records all precede the deletion are removed.
"""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.codec.store_entries import ENTRY
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.queue_snapshot import remove_queues
from escrowmq.store.store_parts import StoreState
from escrowmq.store.unseen import Unseen, UnseenBatch, UnseenRecord, UnseenRun


class CopiedDeletions:
    """Applies the master's deletions of topics to a copied log."""

    def __init__(self, state: StoreState, forget_queues: Callable[[], None]) -> None:
        self._state = state
        self._forget_queues = forget_queues

    def apply_deletion(self, topic: str, log_end: int, stored_ms: int) -> bool:
        """Remove the queues of a topic that the master deleted when its log ended at `log_end`,
        except queues with newer records. Return False if this log does not reach that offset
        yet."""
        state = self._state
        if state.log.end_offset < log_end:
            return False
        known = state.deleted.of_topic.get(topic)
        if known is not None and known.log_end >= log_end:
            return True
        newer = {
            queue
            for item in state.dispatcher.waiting
            for queue, end in _waiting_record_ends(item)
            if end > log_end
        } | {
            queue
            for queue, held in state.dispatcher.held_back.units.items()
            if held[-1].log_offset >= log_end
        }
        doomed = [
            queue
            for queue in state.queues.queues_of(topic)
            if queue not in newer and queue.first_at_log_offset(log_end) == queue.end
        ]
        state.deleted.record_deletion(topic, log_end=log_end, stored_ms=stored_ms)
        self._remove_queues(doomed)
        return True

    def remove_restarted_queue(self, queue: ConsumeQueue) -> None:
        """Remove a queue that begins again with offset 0, because its topic was deleted after the
        queue's last record. Remove also the topic's other queues, except those with newer
        records."""
        state = self._state
        self.apply_deletion(queue.topic, self._last_record_end(queue), state.log.stored_ms)
        if state.queues.by_key.get((queue.topic, queue.queue_id)) is queue:
            self._remove_queues([queue])  # it had no readable record

    def _last_record_end(self, queue: ConsumeQueue) -> int:
        """Return the end of the queue's last record in the log, visible or not; 0 if it has
        none."""
        for item in reversed(self._state.dispatcher.waiting):
            for one, end in _waiting_record_ends(item):
                if one is queue:
                    return end
        if held := self._state.dispatcher.held_back.units.get(queue):
            return held[-1].log_offset + held[-1].record_size
        _, unit = queue.find_unit_backwards(queue.end - 1, queue.min)
        return 0 if unit is None else unit[0] + unit[1]

    def _remove_queues(self, doomed: list[ConsumeQueue]) -> None:
        self._forget_queues()
        remove_queues(self._state, doomed)


def _waiting_record_ends(item: Unseen) -> list[tuple[ConsumeQueue, int]]:
    """Return the queues of records that wait to become visible, each with the end of its last
    record."""
    if isinstance(item, UnseenRun):
        ends = []
        for part in item.parts:
            if part.queue is not None:
                at, size, _ = ENTRY.unpack_from(part.units, len(part.units) - ENTRY.size)
                ends.append((part.queue, at + size))
        return ends
    if item.queue is None:
        return []
    if isinstance(item, UnseenRecord):
        return [(item.queue, item.needed_visible_end)]
    assert isinstance(item, UnseenBatch)
    return [(item.queue, item.log_offset + sum(item.sizes))]
