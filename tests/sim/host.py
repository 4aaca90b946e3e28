"""One simulated machine: it performs a core's effects at simulated later times, and can be killed,
stopped for a while, or lose its power at any operation on its disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from escrowmq.base.core import Core, PromptCore
from escrowmq.base.effects import Close, Dial, Effect, Hold, Replace, Send, Sync
from escrowmq.base.ports import SyncNotStarted
from escrowmq.errors import DiskFull, StorageError
from escrowmq.testing.disk import SimCrash, SimDisk, is_out_of_descriptors
from tests.sim.clock import Action, WallClock
from tests.sim.network import Address, Link, SimNetwork
from tests.sim.stage import Stage

_IDLE_MS = 120_000
_IDLE_SCAN_MS = 10_000
_AGAIN_MS = 50
_AGAIN_MAX_MS = 5_000
"""What could not be done for want of a descriptor is tried again after so long
(net/file_thread)."""


class SimHost:
    """The shell of one core (the simulated counterpart of net/shell)."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        address: Address,
        *,
        disk: SimDisk,
        sync_ms: Callable[[], int],
        died: Callable[[SimHost], None],
    ) -> None:
        self._stage = stage
        self._network = network
        self.address = address
        self.disk = disk
        self.core: Core | None = None
        self.wall = WallClock(stage.clock)
        self.on_send: Callable[[int, bytes], None] | None = None
        """Sees what is handed to a connection that the core takes for open."""
        self.on_received: Callable[[int, bytes], None] | None = None
        """Sees what came of a connection, when the core has worked it off."""
        self.on_lost: Callable[[int, int], None] | None = None
        """Told when the core has learnt of the end of a connection, and when something came of it
        last."""
        self.on_step: Callable[[], None] | None = None
        """Told after every input that the core has worked off."""
        self.paused_until_ms = 0
        self._held: list[tuple[Action, Link | None]] = []
        self._sync_ms = sync_ms
        self._died = died
        self._life = 0
        self._links: dict[int, Link] = {}
        self._peers: dict[int, int] = {}
        self._active_ms: dict[int, int] = {}
        self._next_peer = 1
        self._files_free_ms = 0
        self._replacing: dict[str, bytes] = {}
        self._timer_ms = -1
        self._timer_count = 0

    # -- life ------------------------------------------------------------------------------------

    def start(self, core: Core) -> None:
        """Take up a core that is ready, and let peers in."""
        self.core = core
        if isinstance(core, PromptCore):
            core.set_writer(self._let_leave)
        self._files_free_ms = 0
        self._replacing.clear()
        self._network.listen(self.address, self)
        self._input(lambda core, now_ms: core.wake(now_ms))
        self._scan_idle(self._life)

    def stop(self, *, drops_bytes: bool = False) -> None:
        """The process is gone: connections break, and nothing that was planned happens."""
        self.core = None
        self._life += 1
        self._timer_ms = -1
        self._network.shut(self.address)
        self.paused_until_ms = 0
        held, self._held = self._held, []
        unseen = [link for _, link in held if link is not None]
        for link in dict.fromkeys([*self._links.values(), *unseen]):
            if drops_bytes:
                link.is_carrying = False
            link.close(is_caller=link.caller is self)
        self._links.clear()
        self._peers.clear()
        self._active_ms.clear()

    def links(self) -> list[Link]:
        """The connections that the core takes for open, without those that it dialled."""
        return [link for peer, link in self._links.items() if peer > 0]

    def _input(self, feed: Callable[[Core, int], None], link: Link | None = None) -> None:
        """Give the core something, and perform what it wants; not before it runs again. Whoever
        sent what it fails at is cut (net/shell)."""
        core, clock = self.core, self._stage.clock
        if core is None:
            return
        if clock.now_ms() < self.paused_until_ms:
            self._when_running(partial(self._input, feed, link))
            return
        now_ms = self.disk.now_ms = self.wall.now_ms()
        try:
            try:
                feed(core, now_ms)
            except (OSError, StorageError) as error:
                self._excuse(error)
                if link is not None:
                    link.cut()
            self._perform(core)
            # What a core gets over by itself is a mistake all the same.
            failed = getattr(core, "rounds", None)
            if failed is not None and failed.first_error is not None:
                self._excuse(failed.first_error)
                failed.first_error = None
            if self.on_step is not None:
                self.on_step()
        except SimCrash as crash:
            self._stage.note("the machine stops: %s", crash)
            self._died(self)

    def _excuse(self, error: Exception) -> None:
        """Only where there is no room, or no descriptor, may something fail."""
        if isinstance(error, DiskFull) and self.disk.room is not None:
            self._stage.done["inputs, rounds and small files without room"] += 1
            self._stage.note("no room: %s", error)
            return
        if not is_out_of_descriptors(error):
            raise error
        self._stage.done["inputs and rounds without a descriptor"] += 1
        self._stage.note("no descriptor: %s", error)

    # -- from the network ------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        """See network.End."""
        self._when_running(partial(self._opened, link), link)

    def received(self, link: Link, data: bytes) -> None:
        """See network.End."""
        self._when_running(partial(self._received, link, data), link)

    def lost(self, link: Link) -> None:
        """See network.End."""
        self._when_running(partial(self._lost, link), link)

    def _when_running(self, action: Action, link: Link | None = None) -> None:
        """A stopped process notices nothing; what came meanwhile comes in order when it goes on."""
        if self._stage.clock.now_ms() < self.paused_until_ms or self._held:
            if not self._held:
                self._stage.clock.at(self.paused_until_ms, partial(self._go_on, self._life))
            self._held.append((action, link))
        else:
            action()

    def _go_on(self, life: int) -> None:
        if life != self._life:
            return
        if self._stage.clock.now_ms() < self.paused_until_ms:
            self._stage.clock.at(self.paused_until_ms, partial(self._go_on, life))
            return
        held, self._held = self._held, []
        for action, link in held:
            if life == self._life:
                action()
            elif link is not None:  # it died of what came before; nobody takes this one up
                link.close(is_caller=link.caller is self)

    def _opened(self, link: Link) -> None:
        peer = self._peers.get(id(link))
        if peer is None:
            peer, self._next_peer = self._next_peer, self._next_peer + 1
            self._take(peer, link)
        host, port = link.host if link.caller is not self else self.address
        self._input(lambda core, now_ms: core.connected(peer, host, port, now_ms))

    def _received(self, link: Link, data: bytes) -> None:
        peer = self._peers.get(id(link))
        if peer is not None:
            self._active_ms[peer] = self.wall.now_ms()

            def receive(core: Core, now_ms: int) -> None:
                core.receive(peer, data, now_ms)
                if self.on_received is not None:
                    self.on_received(peer, data)

            self._input(receive, link)

    def _lost(self, link: Link) -> None:
        peer = self._peers.pop(id(link), None)
        if peer is not None:
            self._links.pop(peer, None)
            active_ms = self._active_ms.pop(peer, 0)

            def lost(core: Core, now_ms: int) -> None:
                core.disconnected(peer, now_ms)
                if self.on_lost is not None:
                    self.on_lost(peer, active_ms)

            self._input(lost)

    def _take(self, peer: int, link: Link) -> None:
        self._links[peer] = link
        self._peers[id(link)] = peer
        self._active_ms[peer] = self.wall.now_ms()

    def _close_idle(self, life: int) -> None:
        if life != self._life:
            return
        now_ms = self.wall.now_ms()
        for peer, active_ms in list(self._active_ms.items()):
            if active_ms < now_ms - _IDLE_MS and peer in self._links:
                self._close(peer)
        self._scan_idle(life)

    def _scan_idle(self, life: int) -> None:
        close = partial(self._when_running, partial(self._close_idle, life))
        self._stage.clock.after(_IDLE_SCAN_MS, close)

    def _close(self, peer: int) -> None:
        link = self._links.get(peer)
        if link is not None:
            link.close(is_caller=link.caller is self)
            self._lost(link)

    # -- effects ---------------------------------------------------------------------------------

    def _perform(self, core: Core) -> None:
        for effect in core.take_effects():
            self._perform_one(effect)
        at_ms = core.wake_at_ms()
        if at_ms != self._timer_ms:
            self._timer_ms = at_ms
            self._timer_count += 1
            delay_ms = max(at_ms - self.wall.now_ms(), 1)
            self._stage.clock.after(delay_ms, partial(self._wake, self._timer_count, self._life))

    def _let_leave(self, peer: int, chunks: list[bytes]) -> None:
        """An answer leaves while the core works on an input: nothing comes in meanwhile."""
        self._perform_one(Send(peer, chunks))

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(peer, chunks):
                link = self._links.get(peer)
                if link is not None:
                    if self.on_send is not None:
                        for chunk in chunks:
                            self.on_send(peer, chunk)
                    link.send(b"".join(chunks), is_from_caller=link.caller is self)
            case Sync():
                self._sync(effect)
            case Replace(path, data):
                is_under_way = path in self._replacing
                self._replacing[path] = data
                if not is_under_way:
                    _, end_ms = self._file_time()
                    replace = partial(self._replace, path, self._life, _AGAIN_MS)
                    self._stage.clock.at(end_ms, replace)
            case Hold(peer):
                self._input(lambda core, now_ms: core.receive(peer, b"", now_ms))
            case Dial(peer, host, port):
                self._take(peer, self._network.connect(self, self.address, (host, port)))
            case Close(peer, _):
                self._close(peer)

    def _wake(self, count: int, life: int) -> None:
        if count == self._timer_count and life == self._life:
            self._timer_ms = -1
            self._input(lambda core, now_ms: core.wake(now_ms))

    # -- files, on a thread of their own ---------------------------------------------------------

    def _file_time(self) -> tuple[int, int]:
        """When the next operation of the file thread starts and ends."""
        start_ms = max(self._stage.clock.now_ms(), self._files_free_ms)
        self._files_free_ms = start_ms + self._sync_ms()
        return start_ms, self._files_free_ms

    def _sync(self, effect: Sync) -> None:
        """What is written after the moment in the middle is not covered."""
        start_ms, end_ms = self._file_time()
        middle_ms = self._stage.chance.randint(start_ms, end_ms)
        sync = partial(self._sync_now, effect, end_ms, self._life, _AGAIN_MS)
        self._stage.clock.at(middle_ms, sync)

    def _sync_now(self, effect: Sync, end_ms: int, life: int, again_ms: int) -> None:
        if life != self._life:
            return
        failure = ""
        try:
            for file in effect.files:
                file.sync()
        except SyncNotStarted as error:
            self._stage.done["syncs that had to wait for a descriptor"] += 1
            self._stage.note("a sync could not begin: %s", error)
            later_ms = min(2 * again_ms, _AGAIN_MAX_MS)
            sync = partial(self._sync_now, effect, end_ms + again_ms, life, later_ms)
            self._stage.clock.after(again_ms, sync)
            return
        except OSError as error:
            failure = f"the disk could not make the store durable: {error}"
        except SimCrash as crash:
            self._stage.note("the machine stops: %s", crash)
            self._died(self)
            return
        self._stage.clock.at(end_ms, partial(self._synced, effect, failure, life))

    def _synced(self, effect: Sync, failure: str, life: int) -> None:
        if life != self._life:
            return
        if failure:
            self._input(lambda core, now_ms: core.sync_failed(failure, now_ms))
        else:
            self._input(lambda core, now_ms: core.sync_finished(effect.log_offset, now_ms))

    def _replace(self, path: str, life: int, again_ms: int) -> None:
        if life != self._life:
            return
        try:
            self.disk.replace(path, self._replacing[path])
            del self._replacing[path]
        except StorageError as error:
            self._excuse(error)
            replace = partial(self._replace, path, life, min(2 * again_ms, _AGAIN_MAX_MS))
            self._stage.clock.after(again_ms, replace)
        except SimCrash as crash:
            self._stage.note("the machine stops: %s", crash)
            self._died(self)
