"""The shell around one core: performs its effects on sockets, files and timers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from escrowmq.base.effects import Close, Dial, Effect, Hold, Replace, Send, Sync
from escrowmq.base.ports import Clock, Core, Disk, File, Proving
from escrowmq.base.seldom import Seldom
from escrowmq.errors import ConnectFailed
from escrowmq.net.admission import Admission
from escrowmq.net.clock import worked_s
from escrowmq.net.files import FileWork
from escrowmq.net.link import READ_SIZE, Link
from escrowmq.net.tls import Doors, Greeter, Session, TlsLink
from escrowmq.net.turns import Turns

_log = logging.getLogger(__name__)

_BACKLOG = 1024
_IDLE_SCAN_S = 10.0
_DRAIN_S = 5.0
"""Replies that wait for the disk get this long when the process is to end."""

_FLUSH_S = 5.0
"""A peer that is to be closed gets this long to read what was written to it before."""

_LATE_MS = 20
"""Inputs that are looked at so long after the first of their round may have waited."""

_ARM_S = 0.002
"""The core's next deadline is asked for this long after an input, once for all inputs until then.
To ask costs a few microseconds, which each message of a loaded core would pay."""

_UNKNOWN_MS = 1_000
"""A core that cannot tell when it wants to be woken is woken after so long."""

_DIAL_TIMEOUT_S = 3.0

_COMPLAINTS_MAX = 10
_COMPLAINT_SPAN_MS = 60_000
_COMPLAINERS_MAX = 1_000
"""Lines a minute about connections of one address that are refused, and addresses that are told
apart."""


def bind(host: str, port: int) -> socket.socket:
    """A door that is not open yet: its port is known, nobody is let in. ConnectFailed when
    the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
    except (OSError, OverflowError) as error:
        door.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConnectFailed(
            f"cannot listen on {host}:{port}: {reason}; choose another port, or 0 for any"
        ) from error
    return door


class Shell:
    """One core's connection to the world; lives on one event loop."""

    def __init__(
        self,
        core: Core,
        clock: Clock,
        disk: Disk | None,
        *,
        name: str,
        idle_ms: int = 120_000,
        flush_s: float = _FLUSH_S,
        doors: Doors | None = None,
    ) -> None:
        self.core = core
        self._clock = clock
        self._name = name
        self._idle_ms = idle_ms
        self._flush_s = flush_s
        self._doors = doors or Doors()
        self._admission = Admission(self._doors.limits, self._doors.total)
        self._admitted: dict[int, tuple[str, asyncio.Transport]] = {}
        """Peers that came by themselves, also those who have not said yet how they speak."""
        self._complaints = Seldom(
            lines_max=_COMPLAINTS_MAX, span_ms=_COMPLAINT_SPAN_MS, kinds_max=_COMPLAINERS_MAX
        )
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, Link] = {}
        self.buffer = memoryview(bytearray(READ_SIZE))
        self.behind: set[int] = set()
        """Peers that have sent more than one turn takes."""
        self._held: deque[Link] = deque()
        """Those of whom the core has kept requests, in the order of their turns."""
        self._servers: list[asyncio.Server] = []
        self._dials: set[asyncio.Task[None]] = set()
        self._files = FileWork(disk, name=name)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._arming: asyncio.TimerHandle | None = None
        self._armed_ms, self._armed_s = 0, 0.0
        self._begun_s = 0.0
        self.turns = Turns()
        self._next_peer = 1
        self._is_closed = False
        self._idle_scan_s = min(_IDLE_SCAN_S, idle_ms / 4_000)
        self._idle_timer = self._loop.call_later(self._idle_scan_s, self._close_idle)
        self._look_timer: asyncio.TimerHandle | None = None
        if self._doors.tls is not None:
            self._look_timer = self._loop.call_later(self._doors.tls.look_s, self._look)

    async def listen(self, door: socket.socket) -> None:
        """Let peers in through a bound socket."""
        self._servers.append(
            await self._loop.create_server(self._accept, sock=door, backlog=_BACKLOG)
        )

    def start(self) -> None:
        """Let the core begin: its timers and whatever it wants to do first."""
        self._wake()

    async def close(self) -> None:
        """Let nobody in, answer who waits for the disk, let written bytes leave."""
        for server in self._servers:
            server.close()
        for link in self._links.values():
            link.stop_reading()
        await self._files.settle(_DRAIN_S)
        self._is_closed = True
        for timer in (self._timer, self._idle_timer, self._arming, self._look_timer):
            if timer is not None:
                timer.cancel()
        for task in self._dials:
            task.cancel()
        for link in list(self._links.values()):
            link.close(flush_s=self._flush_s)
        for _, transport in list(self._admitted.values()):
            transport.close()  # those who had not said yet how they speak
        await self._files.close()

    # -- from the world to the core ----------------------------------------------------------

    def _accept(self) -> asyncio.BaseProtocol:
        peer = self._next_peer
        self._next_peer += 1
        tls = self._doors.tls
        if tls is None:
            return Link(self, peer)
        patience_s = tls.handshake_s if tls.mode == "enforcing" else self._idle_ms / 1_000
        return Greeter(self, peer, tls, patience_s=patience_s)

    def admit(self, peer: int, transport: asyncio.Transport) -> bool:
        """Count a connection; False, and it is cut, when there are too many."""
        host = _host_of(transport)
        refusal = self._admission.admit(host)
        if refusal:
            self.complain(transport, refusal)
            transport.abort()
            return False
        self._admitted[peer] = (host, transport)
        return True

    def dismiss(self, peer: int) -> None:
        """A connection is gone, counted or not."""
        known = self._admitted.pop(peer, None)
        if known is not None:
            self._admission.dismiss(known[0])

    def complain(
        self, transport: asyncio.Transport, reason: str, *, is_refused: bool = True
    ) -> None:
        """Write down what is wrong with a connection; of one address not more than some a
        minute."""
        now_ms = self._clock.now_ms()
        for host, count in self._complaints.take_left_out(now_ms):
            _log.warning("%s: %d more connections of %s were refused", self._name, count, host)
        host = _host_of(transport)
        if self._complaints.says(host, now_ms):
            what = " is refused" if is_refused else ""
            _log.warning("%s: a connection of %s%s: %s", self._name, host, what, reason)

    def connected(self, link: Link) -> None:
        """A link has its transport."""
        assert link.transport is not None
        if self._is_closed:
            link.transport.abort()
            return
        # A core's own numbers are negative: those it has called.
        is_new = link.peer > 0 and link.peer not in self._admitted
        if is_new and not self.admit(link.peer, link.transport):
            return
        now_ms = self._clock.now_ms()
        link.last_active_ms = now_ms
        self._links[link.peer] = link
        name = link.transport.get_extra_info("peername") or ("127.0.0.1", 0)
        self._tell(lambda: self.core.connected(link.peer, name[0], name[1], now_ms))
        self.perform()

    def identify(self, link: Link, certificate: dict[str, Any] | None) -> None:
        """A link that is connected has shown a certificate, or none."""
        identities, core, transport = self._doors.identities, self.core, link.transport
        if identities is None or not isinstance(core, Proving) or transport is None:
            return
        found = identities.of(certificate)
        if found.fault:
            self.complain(transport, f"{found.fault}; it has to sign", is_refused=False)
        if found.account:
            self._tell(lambda: core.proved(link.peer, found.account))

    def receive(self, link: Link, data: bytes, *, waited_ms: int = 0) -> None:
        """Bytes from a peer, known to have waited for so long at least."""
        now_ms = self._clock.now_ms()
        link.last_active_ms = now_ms
        if self._arming is None:
            self._begun_s = worked_s()
        try:
            # The timer that the first of these inputs armed should have fired: the loop has been
            # at what it found ready together since then.
            if self._arming is not None and now_ms - self._armed_ms > _LATE_MS:
                waited_ms = max(waited_ms, int((worked_s() - self._armed_s) * 1000))
            self.core.receive(link.peer, data, now_ms, waited_ms)
        except Exception:  # noqa: BLE001 - one peer; logged and cut
            _log.exception("%s: peer %d is cut after an internal error", self._name, link.peer)
            if link.transport is not None:
                link.transport.abort()
        self.perform()

    def go_on_later(self, link: Link) -> None:
        """The core has kept requests of a peer. One such peer has its turn between two looks of the
        loop at everybody else, however many there are."""
        self._held.append(link)
        if len(self._held) == 1:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        link = self._held[0]  # it stays at the front, lest its next turn be asked for twice
        try:
            link.go_on()
        finally:
            self._held.popleft()
            if self._held:
                self._loop.call_soon(self._go_on)

    def lost(self, link: Link) -> None:
        """A peer is gone."""
        self.dismiss(link.peer)
        self._doors.unsent.forget(link)
        self.behind.discard(link.peer)
        if self._links.pop(link.peer, None) is not None:
            self._tell(lambda: self.core.lost(link.peer, self._clock.now_ms()))
            if not self._is_closed:
                self.perform()

    def note_unsent(self, link: Link, size: int) -> None:
        """Bytes wait for a peer to read; those with the most are cut when all have too many."""
        for slow in self._doors.unsent.note(link, size):
            assert isinstance(slow, Link)
            if slow.transport is not None:
                self.complain(slow.transport, "it does not read, and what waits is too much in all")
                slow.transport.abort()

    def unreached(self, peer: int) -> None:
        """A peer that was dialled did not let us in."""
        if not self._is_closed:
            self._tell(lambda: self.core.lost(peer, self._clock.now_ms()))
            self.perform()

    def _tell(self, tell: Callable[[], object]) -> None:
        """Tell the core of something that has happened, whatever it makes of it."""
        try:
            tell()
        except Exception:  # noqa: BLE001 - one event; logged
            _log.exception("%s: an event could not be taken in", self._name)

    # -- from the core to the world ----------------------------------------------------------

    def perform(self) -> None:
        """Carry out what the core has queued, and arm its timer."""
        for effect in self.core.take_effects():
            if type(effect) is Send:
                link = self._links.get(effect.peer)
                if link is not None and not link.write(effect.chunks):
                    _log.warning("%s: peer %d does not read; cut", self._name, effect.peer)
            else:
                self._perform_rare(effect)
        if self._arming is None and not self._is_closed:
            self._armed_ms, self._armed_s = self._clock.now_ms(), worked_s()
            self._begun_s = self._begun_s or self._armed_s
            self._arming = self._loop.call_later(_ARM_S, self._arm)

    def _perform_rare(self, effect: Effect) -> None:
        match effect:
            case Sync(files, log_offset):
                self._sync(files, log_offset)
            case Close(peer, reason):
                link = self._links.get(peer)
                if link is not None:
                    _log.info("%s: peer %d closed: %s", self._name, peer, reason)
                    link.close(flush_s=self._flush_s)
            case Hold(peer):
                link = self._links.get(peer)
                if link is not None:
                    link.hold()
            case Dial(peer, host, port):
                task = self._loop.create_task(self._dial(peer, host, port))
                self._dials.add(task)
                task.add_done_callback(self._dials.discard)
            case Replace(path, data):
                self._files.replace(path, data)
            case Send():
                raise AssertionError("performed by the caller")

    def _arm(self) -> None:
        self._arming = None
        self.turns.note(worked_s() - self._begun_s)
        self._begun_s = 0.0
        try:
            at_ms = self.core.wake_at_ms()
        except Exception:  # noqa: BLE001 - without a timer nothing would ever be due again
            _log.exception("%s: it is not known when to wake the core", self._name)
            at_ms = self._clock.now_ms() + _UNKNOWN_MS
        if at_ms == self._timer_at_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_s = max(0.0, (at_ms - self._clock.now_ms()) / 1000)
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        if self._arming is None:
            self._begun_s = worked_s()
        self._tell(lambda: self.core.wake(self._clock.now_ms()))
        self.perform()

    def _close_idle(self) -> None:
        now_ms = self._clock.now_ms()
        limit_ms = now_ms - self._idle_ms
        for link in list(self._links.values()):
            if link.has_written:  # written to since the last look: not idle
                link.has_written = False
                link.last_active_ms = now_ms
            elif link.last_active_ms < limit_ms:
                _log.debug("%s: peer %d was idle; closed", self._name, link.peer)
                self._tell(link.close_idle)
        self._idle_timer = self._loop.call_later(self._idle_scan_s, self._close_idle)

    async def _dial(self, peer: int, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                dials_tls = self._doors.dials_tls
                if dials_tls is None:
                    await self._loop.create_connection(lambda: Link(self, peer), host, port)
                    return
                session = Session(dials_tls, is_server=False, host=host)
                link = TlsLink(self, peer, session)
                await self._loop.create_connection(lambda: link, host, port)
                link.begin()
        except (OSError, TimeoutError) as error:
            _log.debug("%s: no connection to %s:%d: %s", self._name, host, port, error)
            self.unreached(peer)
        except Exception:  # noqa: BLE001 - one address; logged, tried again as one that is away
            _log.exception("%s: %s:%d cannot be called", self._name, host, port)
            self.unreached(peer)

    def _look(self) -> None:
        tls = self._doors.tls
        assert tls is not None
        self._tell(tls.certificates.look)
        self._look_timer = self._loop.call_later(tls.look_s, self._look)

    # -- files, off the loop -----------------------------------------------------------------

    def _sync(self, files: tuple[File, ...], log_offset: int) -> None:
        def done(failure: str) -> None:
            now_ms = self._clock.now_ms()
            if failure:
                self._tell(lambda: self.core.sync_failed(failure, now_ms))
            else:
                self._tell(lambda: self.core.synced(log_offset, now_ms))
            self.perform()

        self._files.sync(files, done)


def _host_of(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername") or ("127.0.0.1", 0)
    return str(name[0])
