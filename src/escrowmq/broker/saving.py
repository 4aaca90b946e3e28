"""When offsets are saved: not before what they rest on is durable."""

from __future__ import annotations

from escrowmq.base.effects import Replace
from escrowmq.base.message import Topic
from escrowmq.broker.part import NOTHING, File, Part, Start
from escrowmq.broker.state import Broker
from escrowmq.delivery import order
from escrowmq.delivery.order import Line, OrderTable
from escrowmq.delivery.pop import PopLedger
from escrowmq.delivery.subscriptions import TRANSACTION_GROUP
from escrowmq.txn import snapshot
from escrowmq.txn.transactions import Transactions


class ProgressOfHalves(Part):
    """Says in the consumer offsets how far the queues of transactions are done with, as RocketMQ
    does, and finds from there what is pending."""

    name = "progress of halves"

    def __init__(self, broker: Broker, transactions: Transactions) -> None:
        self._broker = broker
        self._transactions = transactions

    def load(self, start: Start) -> None:
        """Find what is pending."""
        offsets = self._broker.offsets
        self._transactions.load(
            start.now_ms,
            half_offset=offsets.get(TRANSACTION_GROUP, Topic.HALF, 0),
            op_offset=offsets.get(TRANSACTION_GROUP, Topic.OP, 0),
            is_sound=start.is_sound,
        )

    def progress(self, now_ms: int) -> tuple[File, ...]:
        """Keep how far they are."""
        kept = self._transactions.kept(now_ms)
        if kept is None:
            return NOTHING
        offsets = self._broker.offsets
        for topic, offset in ((Topic.HALF, kept.half_offset), (Topic.OP, kept.op_offset)):
            if offsets.get(TRANSACTION_GROUP, topic, 0) != offset:
                offsets.commit(TRANSACTION_GROUP, topic, 0, offset, now_ms)
        return ((snapshot.PATH, kept.snapshot),) if kept.snapshot else NOTHING


class OffsetSaver:
    """Writes consumerOffset.json and consumerOrderInfo.json."""

    def __init__(self, broker: Broker, ledger: PopLedger, orders: OrderTable, *, path: str) -> None:
        self._broker = broker
        self._ledger = ledger
        self._orders = orders
        self._path = path
        self._waiting: tuple[int, bytes] | None = None

    def note(self, now_ms: int) -> None:
        """It is time to save what has changed."""
        broker = self._broker
        self._ledger.note_progress(now_ms)
        if self._orders.is_changed:
            self._orders.is_changed = False
            data = self._orders.save(self._is_there, now_ms)
            broker.effects.append(Replace(order.PATH, data))
        if broker.offsets.is_changed and self._waiting is None:
            broker.offsets.is_changed = False
            self._waiting = (self._ledger.log_end, broker.offsets.save())
        self.release()

    def release(self) -> None:
        """Write what may be written by now."""
        waiting = self._waiting
        if waiting is not None and waiting[0] <= self._broker.store.durable_offset:
            self._waiting = None
            self._broker.effects.append(Replace(self._path, waiting[1]))

    def last(self, now_ms: int) -> list[tuple[str, bytes]]:
        """What is to be written when the broker ends: nothing that the log does not hold."""
        found = [(order.PATH, self._orders.save(self._is_there, now_ms))]
        if not self._orders.has_any:
            found.clear()
        if self._ledger.log_end <= self._broker.store.durable_offset:
            found.append((self._path, self._broker.offsets.save()))
        return found

    def _is_there(self, line: Line) -> bool:
        group, topic, queue_id = line
        config = self._broker.topics.get(topic)
        is_queue = config is not None and queue_id < config.read_queue_nums
        return is_queue and self._broker.groups.peek(group) is not None
