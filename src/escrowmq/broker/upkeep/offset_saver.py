"""Saves offsets once the log that they depend on is durable."""

from __future__ import annotations

from escrowmq.base.effects import Replace
from escrowmq.base.message import Topic
from escrowmq.broker.output import Output
from escrowmq.broker.part import NOTHING, File, Part, StartContext
from escrowmq.delivery import orderly_pops
from escrowmq.delivery.groups import TRANSACTION_GROUP, GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.orderly_pops import GroupQueue, OrderlyBatches
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store
from escrowmq.txn import pending_snapshot
from escrowmq.txn.transactions import Transactions


class HalfProgressSaver(Part):
    """Saves up to where the transaction queues were processed, as consumer offsets like RocketMQ
    does. At a start, it loads the pending halves from there on."""

    name = "progress of halves"

    def __init__(self, offsets: OffsetTable, transactions: Transactions) -> None:
        self._offsets = offsets
        self._transactions = transactions

    def load(self, start: StartContext) -> None:
        """Load the pending halves, starting at the saved progress."""
        offsets = self._offsets
        self._transactions.load(
            start.now_ms,
            half_offset=offsets.get(TRANSACTION_GROUP, Topic.HALF, 0),
            op_offset=offsets.get(TRANSACTION_GROUP, Topic.OP, 0),
            is_sound=start.is_sound,
        )

    def files_to_save(self, now_ms: int) -> tuple[File, ...]:
        """Commit the progress of the transaction queues as offsets. Return the snapshot of pending
        halves, if one is due."""
        kept = self._transactions.progress_to_save(now_ms)
        if kept is None:
            return NOTHING
        offsets = self._offsets
        for topic, offset in ((Topic.HALF, kept.half_offset), (Topic.OP, kept.op_offset)):
            if offsets.get(TRANSACTION_GROUP, topic, 0) != offset:
                offsets.commit(TRANSACTION_GROUP, topic, 0, offset, now_ms)
        return ((pending_snapshot.PATH, kept.snapshot),) if kept.snapshot else NOTHING


class OffsetSaver:
    """Writes consumerOffset.json and consumerOrderInfo.json."""

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        output: Output,
        ledger: PopLedger,
        orders: OrderlyBatches,
        path: str,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._output = output
        self._ledger = ledger
        self._orders = orders
        self._path = path
        self.waiting: list[tuple[int, bytes]] = []
        """The file that waits to be written, and the log offset that must be durable first; None if
        none waits."""

    def save_when_durable(self, now_ms: int) -> None:
        """Encode changed offsets, and write them as soon as the log they depend on is durable."""
        self._ledger.note_progress(now_ms)
        if self._orders.is_changed:
            self._orders.mark_saved()
            data = self._orders.content_to_save(self._has_group_and_queue, now_ms)
            self._output.add_effect(Replace(orderly_pops.PATH, data))
        self._offsets.limit_memory()
        # Newer offsets never replace those that wait. Otherwise continuous pops could postpone the
        # file again and again, each time to a log offset that is not durable yet.
        if self._offsets.is_changed and not self.waiting:
            self._offsets.mark_saved()
            self.waiting.append((self._ledger.log_end, self._encode_offsets()))
        self.write_if_durable()

    def write_if_durable(self) -> None:
        """Write the waiting file if its part of the log is durable."""
        if self.waiting and self.waiting[0][0] <= self._store.irrevocable_offset:
            _, data = self.waiting.pop()
            self._output.add_effect(Replace(self._path, data))

    def final_files(self, now_ms: int) -> list[tuple[str, bytes]]:
        """Return the files to write when the broker stops, without offsets of records that may be
        lost."""
        found = []
        if self._orders.has_any or self._orders.is_changed:  # the file may still have the last one
            found.append(
                (orderly_pops.PATH, self._orders.content_to_save(self._has_group_and_queue, now_ms))
            )
        if self._ledger.log_end <= self._store.irrevocable_offset:
            found.append((self._path, self._encode_offsets()))
        return found

    def _encode_offsets(self) -> bytes:
        return self._offsets.content_to_save(log_end=self._store.end_offset)

    def _has_group_and_queue(self, line: GroupQueue) -> bool:
        group, topic, queue_id = line
        config = self._topics.get(topic)
        is_queue = config is not None and queue_id < config.read_queue_nums
        return is_queue and self._groups.find(group) is not None
