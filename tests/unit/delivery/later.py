"""A store with both kinds of later delivery over it, driven as the broker's core drives them."""

from __future__ import annotations

import random

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_record
from escrowmq.delivery import delay_queues, timer_file, timer_snapshot
from escrowmq.delivery.delay_queues import DelayQueues
from escrowmq.delivery.delayed_messages import DelayRules, delay_message
from escrowmq.delivery.timer import TimerQueue
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

START_MS = 1_700_000_000_000


class Later:
    def __init__(self, *, is_sync_flush: bool = False, segment_size: int = 1 << 16) -> None:
        self.disk = SimDisk()
        self.now_ms = START_MS
        self.store_settings = StoreSettings(
            is_sync_flush=is_sync_flush,
            log_segment_size=segment_size,
            queue_segment_size=20 * 64,
            index_slots_count=100,
            index_entries_max=400,
            reserve_size=0,
        )
        self.broker_settings = BrokerSettings()
        self.rules = DelayRules(self.store_settings, self.broker_settings)
        self.puts_fail = False
        self.fault = PutStatus.SERVICE_NOT_AVAILABLE
        self.open()

    def open(self) -> None:
        self.store = Store(self.disk, self.store_settings)
        self.store.open(self.now_ms)
        self.store.take_arrivals()
        self.delays = DelayQueues(self.store, self.store_settings, self._put)
        self.timer = TimerQueue(self.store, self.broker_settings, self._put)
        self.delays.load(self.disk.read(delay_queues.PATH), self.now_ms)
        self.timer.load(self.disk.read(timer_file.PATH))

    def _put(self, message: Message, now_ms: int) -> PutResult:
        if self.puts_fail:
            return PutResult(self.fault, reason="asked to fail")
        return self.store.put(message, now_ms)

    def send(
        self,
        body: bytes,
        more: dict[str, str] | None = None,
        *,
        topic: str = "T",
        queue_id: int = 0,
        **properties: str,
    ) -> PutResult:
        message = Message(
            topic=topic,
            body=body,
            queue_id=queue_id,
            properties={**(more or {}), **properties},
            born_ms=self.now_ms,
        )
        delayed = delay_message(message, self.now_ms, self.rules)
        assert not isinstance(delayed, Refusal)
        put = self.store.put(delayed, self.now_ms)
        assert put.status is PutStatus.OK
        return put

    def arrivals(self) -> None:
        for arrival in self.store.take_arrivals():
            if arrival.topic == Topic.SCHEDULE:
                self.delays.note_arrival(arrival, self.now_ms)
            elif arrival.topic == Topic.TIMER:
                self.timer.note_arrival(arrival)

    def wake(self) -> int:
        """What the core does when it is woken; how many records were passed."""
        self.arrivals()
        passed = self.delays.deliver_due(self.now_ms) + self.timer.deliver_due(self.now_ms)
        self.arrivals()
        return passed

    def wake_at_ms(self) -> int:
        return min(self.delays.wake_at_ms(), self.timer.wake_at_ms())

    def run(self, span_ms: int) -> None:
        """Time passes, and the core is woken whenever it wants to be."""
        end_ms = self.now_ms + span_ms
        self.arrivals()
        while self.wake_at_ms() <= end_ms:
            self.now_ms = max(self.now_ms, self.wake_at_ms())
            self.wake()
        self.now_ms = end_ms

    def sync(self) -> None:
        wanted = self.store.next_sync(self.now_ms + 20_000)
        if wanted is not None:
            for file in wanted.files:
                file.sync()
            self.store.sync_finished(wanted.log_offset, self.now_ms)
            self.arrivals()

    def save(self) -> None:
        for path, data in (
            (timer_snapshot.PATH, self.timer.snapshot_to_save(self.now_ms)),
            (delay_queues.PATH, self.delays.content_to_save(self.now_ms)),
            (timer_file.PATH, self.timer.content_to_save(self.now_ms)),
        ):
            if data is not None:
                self.disk.replace(path, data)

    def crash(
        self, loss: CrashLoss = CrashLoss.NOTHING, chance: random.Random | None = None
    ) -> None:
        self.disk.crash(chance or random.Random(0), loss)
        self.open()

    def restart(self) -> None:
        self.sync()
        self.save()
        self.store.close(self.now_ms)
        self.disk.restart()
        self.open()

    def messages(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        start, end = self.store.bounds(topic, queue_id)
        found = []
        while start < end:
            for log_offset, size, _ in self.store.read_units(topic, queue_id, start, 32):
                found.append(decode_record(self.store.read_record(log_offset, size)))
                start += 1
        return found

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.messages(topic, queue_id)]
