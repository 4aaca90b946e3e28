"""One broker over a simulated disk, asked as clients ask it: bytes in, commands out, no clock.

Syncs are carried out at once, unless `holds_syncs` is set; then `sync` and `fail_sync` decide.
"""

from __future__ import annotations

import contextlib
import random

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.effects import Close, Dial, Effect, Hold, Replace, Send, Sync
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.replication.table_marks import WatchedDisk
from escrowmq.errors import DiskFull
from escrowmq.group.membership import GroupMembership
from escrowmq.testing.disk import CrashLoss, DescriptorShortage, SimDisk
from tests.harness.caller import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Caller,
    Half,
    Pending,
    half_of_check,
)

__all__ = [
    "COMMIT",
    "ROLLBACK",
    "SMALL",
    "START_MS",
    "UNKNOWN",
    "Caller",
    "Exchange",
    "Half",
    "Pending",
    "half_of_check",
]

START_MS = 1_700_000_000_000
ADDRESS = ("10.0.0.1", 10911)
_DEADLINES_MAX = 100_000

SMALL = StoreSettings(
    log_segment_size=1 << 20,
    queue_segment_size=20 * 256,
    index_slots_count=128,
    index_entries_max=512,
    reserve_size=1 << 16,
)


class Exchange:
    """A broker and those who talk to it."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        store_settings: StoreSettings | None = None,
        *,
        disk: SimDisk | None = None,
        now_ms: int = START_MS,
        seed: int = 0,
        replica: ReplicaSettings | None = None,
        address: tuple[str, int] = ADDRESS,
        membership: GroupMembership | None = None,
        boot: str = "",
    ) -> None:
        self.replica = replica
        self.membership = membership
        self.boot = boot
        self.address = address
        self.settings = settings or BrokerSettings()
        self.store_settings = store_settings or msgspec.structs.replace(SMALL)
        self.disk = disk or SimDisk()
        self.now_ms = now_ms
        self.holds_syncs = False
        self.gets_over_errors = False
        """Whether background work may fail; otherwise its first error is raised."""
        self.waited_ms = 0
        """For so long all inputs have waited to be read."""
        self.syncs: list[Sync] = []
        self.dials: list[Dial] = []
        self.callers: dict[int, Caller] = {}
        self.holds_count = 0
        """How often a caller had to read answers before its other requests were served."""
        self._replaces: dict[str, bytes] = {}
        self._next_peer = 1
        self._chance = random.Random(seed)
        self.core = self._open()

    # -- life ------------------------------------------------------------------------------------

    def _open(self) -> BrokerCore:
        leads = self.membership is not None and self.membership.leads is not None
        core = BrokerCore(
            WatchedDisk(self.disk) if leads else self.disk,
            self.settings,
            self.store_settings,
            address=self.address,
            ha_address=f"{self.address[0]}:{self.address[1] + 1}",
            chance=self._chance,
            replica=self.replica,
            membership=self.membership,
            boot=self.boot,
        )
        self.now_ms = core.open(self.now_ms)
        core.wake(self.now_ms)
        self.core = core
        self._perform()
        return core

    def reopen(self, *, back_ms: int = 0) -> None:
        """Stop the broker properly and start it again, its clock set back by so much; all
        connections are gone."""
        self.core.close(self.now_ms)
        self.now_ms -= back_ms
        self.disk.restart()
        self._forget()
        self._open()

    def crash(self, loss: CrashLoss = CrashLoss.NOTHING, *, seed: int = 0) -> None:
        """The process is killed (or the machine's power fails) and started again."""
        self.disk.crash(random.Random(seed), loss)
        self._forget()
        self._open()

    def _forget(self) -> None:
        for caller in self.callers.values():
            caller.closed = "the broker is gone"
        self.callers.clear()
        self.syncs.clear()
        self.dials.clear()

    # -- peers -----------------------------------------------------------------------------------

    def connect(
        self, client_id: str | None = None, *, host: str = "10.0.0.9", peer: int | None = None
    ) -> Caller:
        """A new connection; `peer` is given for one that the broker dialled."""
        if peer is None:
            peer, self._next_peer = self._next_peer, self._next_peer + 1
        caller = self.callers[peer] = Caller(self, peer, client_id or f"client-{peer}")
        self.core.connected(peer, host, 40_000 + abs(peer), self.now_ms)
        self._perform()
        return caller

    def leave(self, caller: Caller) -> None:
        """A connection breaks."""
        self.callers.pop(caller.id, None)
        self.core.disconnected(caller.id, self.now_ms)
        self._perform()

    def feed(self, caller: Caller, data: bytes) -> None:
        """Bytes of a connection."""
        self.core.receive(caller.id, data, self.now_ms, self.waited_ms)
        self._perform()

    # -- effects ---------------------------------------------------------------------------------

    def _perform(self) -> None:
        while effects := self.core.take_effects():
            for effect in effects:
                self._perform_one(effect)
        error = self.core.rounds.first_error
        if error is not None and not self.gets_over_errors:
            raise error

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(peer, chunks):
                if peer in self.callers:
                    self.callers[peer].hear(b"".join(chunks))
            case Close(peer, reason):
                if peer in self.callers:
                    caller = self.callers[peer]
                    caller.closed = reason
                    self.leave(caller)
            case Hold(peer):
                if peer in self.callers:
                    self.holds_count += 1
                    self.core.receive(peer, b"", self.now_ms)
            case Dial():
                self.dials.append(effect)
            case Replace(path, data):
                self._replaces[path] = data
                if self.disk.shortage is None:
                    self._replace()
            case Sync():
                self.syncs.append(effect)
                if not self.holds_syncs and self.disk.shortage is None:
                    self.sync()

    def _replace(self) -> None:
        """What has no room is tried again later, as net/file_thread does it."""
        for path, data in [*self._replaces.items()]:
            with contextlib.suppress(DiskFull):
                self.disk.replace(path, data)
                del self._replaces[path]

    def run_out_of_descriptors(self) -> None:
        """No file is open, and none can be opened; what the shell does with files has to wait."""
        store = self.core.broker.store
        store.log.segments.close()
        store.queues.close()
        self.disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)

    def find_descriptors(self) -> None:
        """There are some again."""
        self.disk.shortage = None
        self._replace()
        if self.syncs and not self.holds_syncs:
            self.sync()

    def sync(self) -> None:
        """Carry out the sync that the broker wants."""
        wanted = self.syncs.pop(0)
        for file in wanted.files:
            file.sync()
        self.core.sync_finished(wanted.log_offset, self.now_ms)
        self._perform()

    def fail_sync(self, reason: str = "no such luck") -> None:
        """Let the sync that the broker wants fail."""
        self.syncs.pop(0)
        self.core.sync_failed(reason, self.now_ms)
        self._perform()

    # -- time ------------------------------------------------------------------------------------

    def advance(self, span_ms: int) -> None:
        """Time passes, and the broker is woken whenever it wants to be."""
        self._replace()
        end_ms = self.now_ms + span_ms
        for _ in range(_DEADLINES_MAX):
            at_ms = self.core.wake_at_ms()
            if at_ms > end_ms:
                break
            # The shell arms its timer a little after each input, so that time passes meanwhile.
            self.now_ms = min(end_ms, max(self.now_ms + 1, at_ms))
            self.disk.now_ms = self.now_ms
            self.core.wake(self.now_ms)
            self._perform()
            if self.now_ms == end_ms:
                break
        else:
            raise AssertionError("the broker wants to be woken without end")
        self.now_ms = end_ms

    def create_topic(self, topic: str, queues: int = 1, **fields: str) -> None:
        """UPDATE_AND_CREATE_TOPIC (17)."""
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        operator = self.connect("operator")
        reply = operator.ask(Request.UPDATE_AND_CREATE_TOPIC, ext | fields)
        assert reply.code == 0, reply.remark
        operator.leave()
