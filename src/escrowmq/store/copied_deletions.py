"""Topics that the master of a copied log has deleted: their queues are removed here as well.

The log keeps the records of a deleted topic. A copy that was down reads them again, and then those
of the new topic of the same name, so what it removes has to end where the old topic did."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.codec.entries import ENTRY
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.dispatch import Dispatch, DispatchRun, Unseen, UnseenRun
from escrowmq.store.queue_snapshot import remove_queues
from escrowmq.store.store_parts import StoreState


class CopiedDeletions:
    """Deletes topics of a copied log."""

    def __init__(self, state: StoreState, forget_queues: Callable[[], None]) -> None:
        self._state = state
        self._forget_queues = forget_queues

    def end_life(self, topic: str, log_end: int, stored_ms: int) -> bool:
        """The master has deleted a topic when its log ended there: remove the topic's queues that
        have nothing newer. Returns False if this log does not reach as far yet."""
        state = self._state
        if state.log.end_offset < log_end:
            return False
        known = state.deleted.of_topic.get(topic)
        if known is not None and known.log_end >= log_end:
            return True
        newer = {
            queue
            for item in state.dispatcher.waiting
            for queue, end in _ends_of(item)
            if end > log_end
        }
        doomed = [
            queue
            for queue in state.queues.of(topic)
            if queue not in newer and queue.first_at_log(log_end) == queue.end
        ]
        state.deleted.note(topic, log_end=log_end, stored_ms=stored_ms)
        self._remove(doomed)
        return True

    def begin_anew(self, queue: ConsumeQueue) -> None:
        """A queue begins again with offset 0, so its topic was deleted behind the last record that
        the queue has: remove it, and the topic's other queues that have nothing newer than that.
        Any other queue may be one of the new topic."""
        state = self._state
        self.end_life(queue.topic, self._end_of(queue), state.log.stored_ms)
        if state.queues.by_key.get((queue.topic, queue.queue_id)) is queue:
            self._remove([queue])  # it never had a record, or they were damaged

    def _end_of(self, queue: ConsumeQueue) -> int:
        """Where the last record of a queue ends in the log, including those that are not visible
        yet; 0 if it has none."""
        for item in reversed(self._state.dispatcher.waiting):
            for one, end in _ends_of(item):
                if one is queue:
                    return end
        _, unit = queue.unit_up_to(queue.end - 1, queue.min)
        return 0 if unit is None else unit[0] + unit[1]

    def _remove(self, doomed: list[ConsumeQueue]) -> None:
        self._forget_queues()
        remove_queues(self._state, doomed)


def _ends_of(item: Unseen) -> list[tuple[ConsumeQueue, int]]:
    """The queues of what waits to become visible, each with the end of its last record."""
    if isinstance(item, UnseenRun):
        ends = []
        for part in item.parts:
            if part.queue is not None:
                at, size, _ = ENTRY.unpack_from(part.units, len(part.units) - ENTRY.size)
                ends.append((part.queue, at + size))
        return ends
    if item.queue is None:
        return []
    if isinstance(item, Dispatch):
        return [(item.queue, item.due_end)]
    assert isinstance(item, DispatchRun)
    return [(item.queue, item.log_offset + sum(item.sizes))]
