"""An engine over a store on a simulated disk; puts to chosen topics can be made to fail."""

from __future__ import annotations

import random
from collections.abc import Sequence

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_record
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk
from escrowmq.txn.check_schedule import CheckScheduler, CheckToSend, LiveProducer
from escrowmq.txn.end_claim import Claim, EndReply
from escrowmq.txn.end_requests import EndRequests
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.pending_recovery import HalvesRecovery, HalvesRecoveryResult
from escrowmq.txn.pending_snapshot import PendingSnapshot
from escrowmq.txn.plain_halves import PlainHalf
from escrowmq.txn.state import Verdict
from tests.harness.exchange import SMALL, START_MS
from tests.unit.store.stores import sync

FIRST_MS, NEXT_MS = 6_050, 30_050
"""After which a half is checked first, and again."""

HOST = b"\x0a\0\0\x01\0\0\x2a\x9f"


class GrudgingStore(Store):
    """A store that refuses some topics, or all after so many puts."""

    refused: frozenset[str] = frozenset()
    puts_left: int | None = None
    has_room_left: bool = True

    def has_settling_space(self, messages: Sequence[Message]) -> bool:
        return self.has_room_left and super().has_settling_space(messages)

    def put(
        self,
        message: Message,
        now_ms: int,
        *,
        properties: bytes | None = None,
        is_settling: bool = False,
    ) -> PutResult:
        if self.puts_left is not None:
            self.puts_left -= 1
        if message.topic in self.refused or (self.puts_left is not None and self.puts_left < 0):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="asked to fail")
        return super().put(message, now_ms, properties=properties, is_settling=is_settling)


class Ground:
    def __init__(
        self, settings: BrokerSettings | None = None, store_settings: StoreSettings = SMALL
    ) -> None:
        self.disk = SimDisk()
        self.settings = settings or BrokerSettings()
        self.store_settings = store_settings
        self.now_ms = START_MS
        self.members: dict[str, list[LiveProducer]] = {}
        self.open()

    def open(
        self, *, half_offset: int = 0, op_offset: int = 0, snapshot: PendingSnapshot | None = None
    ) -> HalvesRecoveryResult:
        self.store = GrudgingStore(self.disk, self.store_settings)
        report = self.store.open(self.now_ms)
        self.engine = TransactionEngine(
            self.store, self.settings, host=HOST, as_delivered=lambda final, now_ms: final
        )
        self.recovery = HalvesRecovery(self.engine, self.store)
        self.checker = CheckScheduler(
            self.engine,
            self.settings,
            age_max_ms=lambda: self.store_settings.reserved_hours * 3_600_000,
            members=lambda group: self.members.get(group, []),
        )
        return self.recovery.run(
            self.now_ms,
            half_offset=half_offset,
            op_offset=op_offset,
            is_sound=not report.damaged,
            snapshot=snapshot,
        )

    def reopen(
        self, *, half_offset: int = 0, op_offset: int = 0, snapshot: PendingSnapshot | None = None
    ) -> HalvesRecoveryResult:
        """The process is killed and started again; nothing written is lost."""
        self.disk.crash(random.Random(0), CrashLoss.NOTHING)
        return self.open(half_offset=half_offset, op_offset=op_offset, snapshot=snapshot)

    def prepare(
        self, body: bytes = b"body", *, group: str = "PG", origin: str = "", **properties: str
    ) -> StoredMessage:
        message = Message(
            topic="T",
            body=body,
            queue_id=1,
            properties={"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": f"U{body.hex()}"}
            | properties,
            born_ms=self.now_ms,
            born_host=HOST,
            store_host=HOST,
        )
        put = self.engine.prepare(message, self.now_ms, origin=origin)
        assert put.status is PutStatus.OK
        half = self.store.read(put.log_offset)
        assert half is not None
        return half

    def end(
        self, half: StoredMessage, verdict: Verdict, *, seals: bool = True, **named: int
    ) -> EndReply:
        claim = Claim(
            log_offset=named.get("log_offset", half.log_offset),
            queue_offset=named.get("queue_offset", half.queue_offset),
            group=half.properties["PGROUP"],
            verdict=verdict,
            count=named.get("count"),
        )
        ended = EndRequests(self.engine, self.store, self.settings).end(claim, self.now_ms)
        if seals:
            self.engine.unsealed.seal(self.now_ms)
        return ended

    def decide(self, half: StoredMessage, verdict: Verdict, *, who: str = "") -> EndReply:
        """End a half by a decision of the broker; its op record is not sealed."""
        named = OpenHalf(half.queue_offset, half)
        return self.engine.carry_out_verdict(named, verdict, now_ms=self.now_ms, who=who)

    def sync(self) -> None:
        """All that was written is durable."""
        assert sync(self.store, self.now_ms)

    def due(self, span_ms: int) -> list[CheckToSend]:
        self.now_ms += span_ms
        asks = self.checker.take_due_checks(self.now_ms)
        self.engine.unsealed.seal(self.now_ms)
        return asks

    def damage(self, half: StoredMessage) -> None:
        """Its record on disk cannot be read any more, and nobody remembers it."""
        segment = next(path for path in self.disk.files if path.startswith("commitlog/"))
        self.disk.flip_bit(segment, half.log_offset + 4)
        self.engine.halves.recent.remove(half.queue_offset)

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        low, high = self.store.bounds(topic, queue_id)
        return [
            decode_record(self.store.read_record(offset, size))
            for offset, size, _ in self.store.read_units(topic, queue_id, low, high - low)
        ]

    def finals(self) -> list[bytes]:
        return [message.body for message in self.messages("T", 1)]

    def discards(self) -> list[bytes]:
        return [message.body for message in self.messages(Topic.CHECK_MAX_TIME)]

    def ops(self) -> list[bytes]:
        return [message.body for message in self.messages(Topic.OP)]


A, B, C = LiveProducer(1, "a"), LiveProducer(2, "b"), LiveProducer(3, "c")


def ground_of(*members: LiveProducer, **settings: int | bool) -> Ground:
    ground = Ground(BrokerSettings(**settings))  # type: ignore[arg-type]
    ground.members["PG"] = list(members)
    return ground


def plain_half(number: int, body: bytes, *, stored_ms: int = 0) -> PlainHalf:
    """One as the fast path stores it, at a place of its number."""
    return PlainHalf(
        number, number * 100, 90, stored_ms, "A", "B", 0, b"k", (), b"", body, 0, 0, 0, 0,
        bytes(8), bytes(8), 0,
    )  # fmt: skip
