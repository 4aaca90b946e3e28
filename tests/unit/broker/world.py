"""One broker over a simulated disk: frames go in, replies come out, time is what the test says."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.effects import Hold, Replace, Send, Sync
from escrowmq.base.message import StoredMessage
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.record import decode_record, decode_records
from escrowmq.delivery.topics import TopicConfig
from escrowmq.testing.disk import CrashLoss, SimDisk

START_MS = 1_700_000_000_000


class World:
    """A broker and its peers. Syncs happen at once, unless `holds_syncs`."""

    def __init__(self, *, is_sync_flush: bool = False, **settings: Any) -> None:
        self.disk = SimDisk()
        self.now_ms = START_MS
        self.chance = random.Random(7)
        self.settings = settings
        self.store_settings = StoreSettings(
            is_sync_flush=is_sync_flush,
            log_segment_size=1 << 20,
            queue_segment_size=20 * 1024,
            index_slots_count=100,
            index_entries_max=4_000,
            reserve_size=0,
        )
        self.holds_syncs = False
        self.held_syncs: list[Sync] = []
        self.serial = 0
        self.start()

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self.core = BrokerCore(
            self.disk,
            BrokerSettings(**self.settings),
            self.store_settings,
            address=("127.0.0.1", 10_911),
            ha_address="127.0.0.1:10912",
            chance=self.chance,
        )
        self.replies: dict[int, deque[Command]] = {}
        self.readers: dict[int, FrameReader] = {}
        self.held_syncs = []
        self.core.open(self.now_ms)
        self.perform()

    def restart(self) -> None:
        self.core.close(self.now_ms)
        self.disk.restart()
        self.start()

    def crash(
        self, loss: CrashLoss = CrashLoss.NOTHING, chance: random.Random | None = None
    ) -> None:
        """Killed (by default: all that was written survives), and started again."""
        self.disk.crash(chance or random.Random(0), loss)
        self.start()

    def perform(self) -> None:
        """Do what the core asks for, until it asks for nothing."""
        while effects := self.core.take_effects():
            for effect in effects:
                match effect:
                    case Send(peer, chunks):
                        reader = self.readers.setdefault(peer, FrameReader())
                        data = b"".join(chunks)
                        self.replies.setdefault(peer, deque()).extend(reader.read_commands(data))
                    case Sync():
                        self.held_syncs.append(effect)
                        if not self.holds_syncs:
                            self.sync()
                    case Hold(peer):
                        self.core.receive(peer, b"", self.now_ms)
                    case Replace(path, data):
                        self.disk.replace(path, data)
                    case _:
                        pass

    def sync(self) -> None:
        syncs, self.held_syncs = self.held_syncs, []
        for sync in syncs:
            for file in sync.files:
                file.sync()
            self.core.sync_finished(sync.log_offset, self.now_ms)

    def run(self, span_ms: int) -> None:
        """Time passes; the core is woken whenever it wants to be."""
        end_ms = self.now_ms + span_ms
        wakes = 0
        while self.core.wake_at_ms() <= end_ms:
            self.now_ms = max(self.now_ms, self.core.wake_at_ms())
            self.core.wake(self.now_ms)
            self.perform()
            wakes += 1
            assert wakes < 100_000, "the core never rests"
        self.now_ms = end_ms

    def sync_log(self) -> None:
        """Everything so far is durable, and the core knows."""
        sync = self.core.broker.store.next_sync(self.now_ms + 20_000)
        if sync is not None:
            self.held_syncs.append(sync)
        self.sync()
        self.perform()

    # -- requests --------------------------------------------------------------------------------

    def feed(self, frames: bytes, peer: int = 1) -> None:
        if peer not in self.core.broker.peers.by_id:
            self.core.connected(peer, "127.0.0.1", 40_000 + peer, self.now_ms)
        self.core.receive(peer, frames, self.now_ms)
        self.perform()

    def frame(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> bytes:
        self.serial += 1
        ext = {name: _text(value) for name, value in (fields or {}).items() if value is not None}
        return encode_request(code, self.serial, ext=ext, body=body)

    def tell(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        peer: int = 1,
    ) -> None:
        self.feed(self.frame(code, fields, body), peer)

    def ask(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        peer: int = 1,
    ) -> Command:
        """One request and its reply, which must be there at once."""
        self.tell(code, fields, body, peer=peer)
        return self.reply(peer)

    def reply(self, peer: int = 1) -> Command:
        """The one reply that is there."""
        (reply,) = self.take_replies(peer)
        return reply

    def take_replies(self, peer: int = 1) -> list[Command]:
        found = list(self.replies.get(peer, ()))
        self.replies.pop(peer, None)
        return found

    # -- shorthands ------------------------------------------------------------------------------

    def topic(self, name: str = "T", queues: int = 1) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        self.core.broker.topics.put(config, self.now_ms)
        self.core.wake(self.now_ms)
        self.perform()

    def send(
        self, body: str, *, topic: str = "T", queue: int = 0, peer: int = 99, **properties: str
    ) -> None:
        reply = self.ask(
            Request.SEND_MESSAGE,
            {
                "topic": topic,
                "queueId": queue,
                "sysFlag": 0,
                "bornTimestamp": self.now_ms,
                "producerGroup": "P",
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": 4,
                "properties": "".join(f"{k}\1{v}\2" for k, v in properties.items()),
            },
            body.encode(),
            peer=peer,
        )
        assert reply.code == 0, reply

    def messages(self, topic: str, queue: int = 0) -> list[StoredMessage]:
        store = self.core.broker.store
        start, end = store.bounds(topic, queue)
        found = []
        while start < end:
            entries = store.read_units(topic, queue, start, 32)
            found += [decode_record(store.read_record(at, size)) for at, size, _ in entries]
            start += len(entries)
        return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def bodies(reply: Command) -> list[str]:
    return [message.body.decode() for message in decode_records(reply.body)]


def ext(reply: Command) -> dict[str, str]:
    return reply.ext or {}


def merged(frames: Iterable[bytes]) -> bytes:
    return b"".join(frames)
