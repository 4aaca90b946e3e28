"""A master and a slave in memory, and the connections between them: no clock, no socket."""

from __future__ import annotations

from collections import deque

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.effects import Close, Dial, Effect, Send
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.exchange import SMALL, Exchange

MASTER_ADDRESS = ("10.0.0.1", 10911)
SLAVE_ADDRESS = ("10.0.0.2", 10911)
_STEP_MS = 50
_MAIL_MAX = 100_000


class Node(Exchange):
    """A broker of the pair: what it dials is the other one."""

    def __init__(
        self,
        pair: Pair,
        replica: ReplicaSettings | None,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        *,
        address: tuple[str, int],
        disk: SimDisk | None = None,
    ) -> None:
        self._pair = pair
        super().__init__(settings, store_settings, replica=replica, address=address, disk=disk)

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Dial():
                self._pair.dial(self, effect)
            case Send(peer, chunks) if self._pair.is_linked(self, peer):
                self._pair.carry(self, peer, b"".join(chunks))
            case Close(peer, _) if self._pair.is_linked(self, peer):
                self._pair.break_link(self, peer)
            case _:
                super()._perform_one(effect)

    def hear(self, peer: int, data: bytes) -> None:
        """Bytes of the other one."""
        self.core.receive(peer, data, self.now_ms)
        self._perform()

    def meet(self, peer: int, host: str, wired: Dial) -> None:
        """A connection with the other one is there."""
        self.core.connected(peer, host, 40_000, self.now_ms, wired.wire)
        self._perform()

    def look(self) -> None:
        """Do what is due."""
        self.core.wake(self.now_ms)
        self._perform()

    def miss(self, peer: int) -> None:
        """It is gone, or was not made."""
        self.core.disconnected(peer, self.now_ms)
        self._perform()


class Pair:
    """Both, and what is under way between them."""

    def __init__(
        self,
        *,
        master: ReplicaSettings | None = None,
        slave: ReplicaSettings | None = None,
        store: StoreSettings | None = None,
        slave_store: StoreSettings | None = None,
    ) -> None:
        self._links: dict[tuple[int, int], tuple[Node, int]] = {}
        self._mail: deque[tuple[Node, int, bytes]] = deque()
        self._is_delivering = False
        self.is_cut = True
        """Whether nobody reaches the other, as long as one of them is not there."""
        self.cut_into = 1 << 20
        """What is written arrives in parts of this size."""
        self._next_peer = 5_000
        self.store_settings = store or msgspec.structs.replace(SMALL)
        self.master = Node(
            self,
            master or ReplicaSettings(),
            BrokerSettings(name="b"),
            self.store_settings,
            address=MASTER_ADDRESS,
        )
        self.slave_replica = slave or ReplicaSettings(role="SLAVE")
        self.slave = self.new_slave(slave_store or msgspec.structs.replace(SMALL), None)
        self.is_cut = False

    def new_slave(self, store: StoreSettings, disk: SimDisk | None) -> Node:
        """A slave on a disk, which may be another one's."""
        settings = BrokerSettings(name="b", broker_id=1)
        return Node(self, self.slave_replica, settings, store, address=SLAVE_ADDRESS, disk=disk)

    # -- connections -------------------------------------------------------------------------

    def introduce(self) -> None:
        """A name server tells the slave who its master is."""
        host, port = MASTER_ADDRESS
        heard = self.slave.core.registration.on_accepted
        assert heard is not None
        heard({"masterAddr": f"{host}:{port}", "haServerAddr": f"{host}:{port + 1}"})
        self.advance(0)

    def dial(self, node: Node, called: Dial) -> None:
        """One calls the other, and is let in at once, or not."""
        if self.is_cut:
            node.core.disconnected(called.peer, node.now_ms)
            return
        other = self.master if node is self.slave else self.slave
        peer, self._next_peer = self._next_peer, self._next_peer + 1
        self._links[id(node), called.peer] = (other, peer)
        self._links[id(other), peer] = (node, called.peer)
        other.meet(peer, node.address[0], called)
        node.meet(called.peer, called.host, called)
        self.deliver()

    def is_linked(self, node: Node, peer: int) -> bool:
        """Whether a peer of one is the other."""
        return (id(node), peer) in self._links

    def carry(self, node: Node, peer: int, data: bytes) -> None:
        """One has written something to the other."""
        other, there = self._links[id(node), peer]
        for at in range(0, len(data), self.cut_into):
            self._mail.append((other, there, data[at : at + self.cut_into]))
        self.deliver()

    def deliver(self) -> None:
        """What is under way arrives."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            for _ in range(_MAIL_MAX):
                if not self._mail:
                    return
                node, peer, data = self._mail.popleft()
                if self.is_linked(node, peer):
                    node.hear(peer, data)
            raise AssertionError("they write to each other without end")
        finally:
            self._is_delivering = False

    def break_link(self, node: Node, peer: int) -> None:
        """A connection is closed by one of them."""
        other, there = self._links.pop((id(node), peer))
        del self._links[id(other), there]
        node.miss(peer)
        other.miss(there)

    def cut(self) -> None:
        """The network between them is gone."""
        self.is_cut = True
        for node in (self.master, self.slave):
            for owner, peer in [*self._links]:
                if owner == id(node) and (owner, peer) in self._links:
                    self.break_link(node, peer)

    def mend(self) -> None:
        """It is there again."""
        self.is_cut = False

    # -- time and life -----------------------------------------------------------------------

    def advance(self, span_ms: int) -> None:
        """Time passes for both."""
        for _ in range(span_ms // _STEP_MS):
            for node in (self.master, self.slave):
                node.advance(_STEP_MS)
            self.deliver()
        for node in (self.master, self.slave):
            node.look()
        self.deliver()

    def start_slave_again(self, loss: CrashLoss | None = None, *, seed: int = 0) -> None:
        """The slave is stopped, or killed with such a loss, and started again."""
        for owner, peer in [*self._links]:
            if owner == id(self.slave):
                other, there = self._links.pop((owner, peer))
                del self._links[id(other), there]
                other.miss(there)
        if loss is None:
            self.slave.reopen()
        else:
            self.slave.crash(loss, seed=seed)
        self.introduce()

    def promote(self) -> Exchange:
        """The master is gone for good; the slave is started as master by its configuration."""
        self.cut()
        disk = self.slave.disk
        self.slave.core.close(self.slave.now_ms)
        disk.restart()
        return Exchange(
            BrokerSettings(name="b"),
            self.slave.store_settings,
            disk=disk,
            now_ms=self.slave.now_ms,
            replica=ReplicaSettings(),
            address=SLAVE_ADDRESS,
        )


def log_of(store: Store, start: int = 0) -> bytes:
    """The bytes of a log, over files."""
    found = b""
    while start + len(found) < store.end_offset:
        at = start + len(found)
        found += store.log.read(at, store.end_offset - at)
    return found


def queues_of(store: Store) -> dict[tuple[str, int], bytes]:
    """What stands in each queue that has anything."""
    return {
        (queue.topic, queue.queue_id): queue.units(queue.min, queue.end - queue.min)
        for queue in store.queues
        if queue.end
    }
