"""The shell around one core: performs its effects on sockets, files and timers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from escrowmq.base.core import AccountsCore, Core, DiallingCore, GuardedCore, PromptCore
from escrowmq.base.effects import Close, Dial, Effect, Hold, Replace, Send, Sync
from escrowmq.base.ports import Clock, Disk, File
from escrowmq.base.wire import Wire
from escrowmq.errors import StorageError
from escrowmq.net.clock import steady_s
from escrowmq.net.connection_counts import ConnectionCounts
from escrowmq.net.dialling import dial
from escrowmq.net.file_thread import FileThread
from escrowmq.net.incoming_connections import IncomingConnections
from escrowmq.net.input_polling import InputPolling
from escrowmq.net.link import PeerLink
from escrowmq.net.link_table import LinkTable
from escrowmq.net.listening_port import ListeningPort
from escrowmq.net.loop_turns import sync_lengths
from escrowmq.net.protocol_detection import ProtocolDetector
from escrowmq.net.timeouts import DIAL_S, DRAIN_S, FLUSH_S, IDLE_SCAN_S, first_bytes_timeout_s
from escrowmq.net.tls import MemberTlsPolicy, PortOptions, TlsLink, TlsPolicy, TlsSession
from escrowmq.net.wake_timer import WakeTimer

_log = logging.getLogger(__name__)

_BACKLOG = 1024


class Shell:
    """Runs one core on an event loop: passes inputs to it, and performs its effects."""

    def __init__(  # noqa: PLR0913 - a core, the world around it, and its bounds
        self,
        core: Core,
        clock: Clock,
        disk: Disk | None,
        *,
        name: str,
        idle_ms: int = 120_000,
        flush_s: float = FLUSH_S,
        port_options: PortOptions | None = None,
        spin_s: float = 0.0,
    ) -> None:
        self.core = core
        self._clock = clock
        self._name = name
        self._idle_ms = idle_ms
        self._options = port_options or PortOptions()
        self.entrance = IncomingConnections(
            ConnectionCounts(self._options.limits, self._options.total),
            clock,
            name=name,
            is_stranger=core.is_stranger if isinstance(core, GuardedCore) else None,
        )
        self._loop = asyncio.get_running_loop()
        self.links = LinkTable(
            clock, self._options.unsent, name=name, idle_ms=idle_ms, flush_s=flush_s
        )
        self.reads = self.links.reads
        self._held: deque[PeerLink] = deque()
        """Peers with requests that the core has kept, in the order of their turns."""
        self._servers: list[asyncio.Server] = []
        self._dials: set[asyncio.Task[None]] = set()
        self._files = FileThread(disk, name=name)
        self.spin = InputPolling(spin_s, self._loop.call_soon)
        self.alarm = WakeTimer(
            clock, self.spin, name=name, wake=self.wake, wake_at_ms=core.wake_at_ms
        )
        if isinstance(core, PromptCore):
            core.set_writer(self._write_to)
        self.syncs = sync_lengths()
        self._next_peer = 1
        self._is_closed = False
        self._idle_scan_s = min(IDLE_SCAN_S, idle_ms / 4_000)
        self._idle_timer = self._loop.call_later(self._idle_scan_s, self._close_idle)
        self._look_timer: asyncio.TimerHandle | None = None
        self._schedule_reload()

    async def listen(self, listener: ListeningPort) -> None:
        """Accept connections on a port."""
        accept = partial(self.make_protocol, listener.wires, listener.tls, has_tls=listener.has_tls)
        server = await self._loop.create_server(accept, sock=listener.socket, backlog=_BACKLOG)
        self._servers.append(server)

    def start(self) -> None:
        """Start the core: its timers and first effects."""
        self.wake()

    def wake(self) -> None:
        """Let the core do what is due now."""
        self._notify_core(lambda: self.core.wake(self._clock.now_ms()))
        self.perform_effects()

    @property
    def is_syncing(self) -> bool:
        """Whether the core waits for the disk."""
        return self._files.is_syncing

    async def close(self) -> None:
        """Stop accepting connections, wait for the answers that wait for the disk, send what was
        written, and close all connections."""
        for server in self._servers:
            server.close()
        self.links.stop_reading()
        # Before `_is_closed` is set and links end: the core is still informed of these syncs, and
        # its answers are sent.
        await self._files.wait_for_sync(DRAIN_S)
        self._is_closed = True
        self.alarm.stop()
        self.spin.stop()
        for timer in (self._idle_timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        for task in self._dials:
            task.cancel()
        self.links.close_all()
        self.entrance.close_all()
        await self._files.close()

    # -- from the world to the core ----------------------------------------------------------

    def make_protocol(
        self,
        wires: tuple[Wire, ...] = (Wire.REMOTING,),
        own_tls: TlsPolicy | None = None,
        *,
        has_tls: bool = True,
    ) -> asyncio.BaseProtocol:
        """Make the protocol object for a new connection to a port with these protocols."""
        peer = self._next_peer
        self._next_peer += 1
        tls = (self._options.tls if has_tls else None) or own_tls
        if tls is None and len(wires) == 1:
            return PeerLink(self, peer, wires[0])
        handshake_s = tls.handshake_s if tls is not None and tls.mode == "enforcing" else None
        patience_s = first_bytes_timeout_s(idle_ms=self._idle_ms, handshake_s=handshake_s)
        if isinstance(tls, MemberTlsPolicy):
            patience_s = tls.silent_s
        return ProtocolDetector(self, peer, tls, wires=wires, patience_s=patience_s)

    def link_connected(self, link: PeerLink) -> None:
        """Report a newly connected peer to the core."""
        assert link.transport is not None
        if self._is_closed:
            link.abort()
            return
        # Negative numbers are those of connections that the core has opened.
        is_new = link.peer > 0 and link.peer not in self.entrance
        if is_new and not self.entrance.admit_connection(link.peer, link.transport):
            return
        now_ms = self._clock.now_ms()
        self.links.add(link, now_ms)
        name = link.transport.get_extra_info("peername") or ("127.0.0.1", 0)
        self._notify_core(
            lambda: self.core.connected(link.peer, name[0], name[1], now_ms, link.wire)
        )
        self.perform_effects()

    def report_certificate(self, link: PeerLink, certificate: dict[str, Any] | None) -> None:
        """Pass on the certificate that a connected peer has presented, or None."""
        identities, core, transport = self._options.identities, self.core, link.transport
        if identities is None or not isinstance(core, AccountsCore) or transport is None:
            return
        found = identities.owner_of(certificate)
        if found.fault:
            self.entrance.log_problem(
                transport, f"{found.fault}; it must sign requests", is_refused=False
            )
        if found.account:
            self._notify_core(lambda: core.set_certificate_account(link.peer, found.account))

    def clock_leapt(self, by_ms: int) -> None:
        """Shift idle timers by a forward jump of the clock, and report the jump to the core. The
        clock does not show it yet."""
        self.links.clock_leapt(by_ms)
        self.core.clock_leapt(by_ms)

    def receive(self, link: PeerLink, data: bytes, *, waited_ms: int = 0) -> None:
        """Process bytes from a peer that have waited at least this long."""
        spin = self.spin
        if spin.span_s:
            spin.note_input()
        now_ms = self._clock.now_ms()
        link.last_active_ms = now_ms
        late_ms = self.alarm.begin_input(now_ms)
        if late_ms > waited_ms:
            waited_ms = late_ms
        try:
            self.core.receive(link.peer, data, now_ms, waited_ms)
        except StorageError as error:  # its answer is dropped: it is not treated as done
            _log.error("%s: peer %d is cut: %s", self._name, link.peer, error)
            link.abort()
        except Exception:  # noqa: BLE001 - one peer; logged and cut
            _log.exception("%s: peer %d is cut after an internal error", self._name, link.peer)
            link.abort()
        self.perform_effects()
        if spin.span_s:
            spin.poll_if_credited()

    def serve_later(self, link: PeerLink) -> None:
        """Give a peer a turn later, because the core has kept requests of it. One such peer has its
        turn in each round of the loop, however many there are."""
        self._held.append(link)
        if len(self._held) == 1:
            self._loop.call_soon(self._serve_next_kept)

    def _serve_next_kept(self) -> None:
        link = self._held[0]  # it stays at the front, so that its next turn is not requested twice
        try:
            link.serve_kept()
        finally:
            self._held.popleft()
            if self._held:
                self._loop.call_soon(self._serve_next_kept)

    def link_lost(self, link: PeerLink) -> None:
        """Report a lost peer to the core."""
        self.entrance.forget_connection(link.peer)
        if self.links.remove(link):
            self._notify_core(lambda: self.core.disconnected(link.peer, self._clock.now_ms()))
            if not self._is_closed:
                self.perform_effects()

    def record_unsent(self, link: PeerLink, size: int) -> None:
        """Count bytes that wait until a peer reads them; if all connections together have too many,
        cut the largest."""
        for slow in self._options.unsent.record_size(link, size):
            assert isinstance(slow, PeerLink)
            if slow.transport is not None:
                self.entrance.log_problem(
                    slow.transport, "it does not read, and too many bytes are unsent in total"
                )
                slow.transport.abort()

    def dial_failed(self, peer: int) -> None:
        """Report to the core that a connection attempt failed."""
        if not self._is_closed:
            self._notify_core(lambda: self.core.disconnected(peer, self._clock.now_ms()))
            self.perform_effects()

    def dial_tls_failed(self, peer: int, fault: str) -> None:
        """Report to the core that TLS with a member of the group failed; the connection will be
        lost."""
        core, members = self.core, self._options.members
        if members is not None:
            members.note_tls_failure()
        if isinstance(core, DiallingCore):
            self._notify_core(lambda: core.dial_tls_failed(peer, fault, self._clock.now_ms()))

    def _notify_core(self, tell: Callable[[], object]) -> None:
        """Report an event to the core, and perform its effects."""
        try:
            tell()
        except Exception:  # noqa: BLE001 - one event; logged
            _log.exception("%s: an event could not be processed", self._name)

    # -- from the core to the world ----------------------------------------------------------

    def perform_effects(self) -> None:
        """Perform the core's queued effects, and set its timer."""
        for effect in self.core.take_effects():
            if type(effect) is Send:
                self._write_to(effect.peer, effect.chunks)
                continue
            try:
                self._perform_effect(effect)
            except Exception:  # noqa: BLE001 - one effect; logged, those behind it are carried out
                # The core assumes that effects are carried out: it would wait for a lost Sync for
                # ever.
                _log.exception("%s: an effect could not be carried out", self._name)
        if self.alarm.query_timer is None:
            self.alarm.input_done()

    def _write_to(self, peer: int, chunks: list[bytes]) -> None:
        link = self.links.by_peer.get(peer)
        try:
            if link is not None and not link.write(chunks):
                self.links.log_cut(peer)
        except Exception:  # noqa: BLE001 - one peer; logged
            _log.exception("%s: peer %d could not be notified", self._name, peer)

    def _perform_effect(self, effect: Effect) -> None:
        match effect:
            case Sync(files, log_offset):
                self._start_sync(files, log_offset)
            case Close(peer, reason):
                self.links.close(peer, reason)
            case Hold(peer):
                self.links.hold_input(peer)
            case Dial():
                task = self._loop.create_task(self._dial(effect))
                self._dials.add(task)
                task.add_done_callback(self._dials.discard)
            case Replace(path, data):
                self._files.replace(path, data)
            case Send():
                raise AssertionError("performed by the caller")

    def _close_idle(self) -> None:
        for link in self.links.idle_links():
            self._notify_core(link.close_idle)
        self._idle_timer = self._loop.call_later(self._idle_scan_s, self._close_idle)

    async def _dial(self, called: Dial) -> None:
        peer, host, port = called.peer, called.host, called.port
        try:
            async with asyncio.timeout(DIAL_S):
                link = self._tls_link(called)
                if link is None:
                    await dial(lambda: PeerLink(self, peer, called.wire), host, port)
                    return
                await dial(lambda: link, host, port)
                link.begin_handshake()
        except (OSError, TimeoutError) as error:
            _log.debug("%s: no connection to %s:%d: %s", self._name, host, port, error)
            core = self.core
            if isinstance(error, ConnectionRefusedError) and isinstance(core, DiallingCore):
                self._notify_core(lambda: core.dial_refused(peer, self._clock.now_ms()))
            self.dial_failed(peer)
        except Exception:  # noqa: BLE001 - one address; logged, tried again as one that is away
            _log.exception("%s: %s:%d cannot be dialled", self._name, host, port)
            self.dial_failed(peer)

    def _tls_link(self, called: Dial) -> TlsLink | None:
        """Make the link for a TLS connection that the core opens; None for a plain one."""
        members = self._options.members if called.wire is Wire.GROUP else None
        if members is not None:
            context = members.next_context()
            if context is None:
                return None
            return TlsLink(
                self,
                called.peer,
                TlsSession(context, is_server=False),
                wires=(called.wire,),
                handshake_s=members.handshake_s,
                explain=members.explain,
            )
        # RocketMQ's replication protocol has no TLS.
        if self._options.dials_tls is None or called.wire in (Wire.HA, Wire.GROUP):
            return None
        session = TlsSession(self._options.dials_tls, is_server=False, host=called.host)
        return TlsLink(self, called.peer, session)

    def _schedule_reload(self) -> None:
        policies = [each for each in (self._options.tls, self._options.members) if each is not None]
        if policies:
            look_s = min(policy.poll_interval_s for policy in policies)
            self._look_timer = self._loop.call_later(look_s, self._reload_certificates, policies)

    def _reload_certificates(self, policies: list[TlsPolicy]) -> None:
        for policy in policies:
            self._notify_core(policy.certificates.reload_if_changed)
        self._schedule_reload()

    # -- files, off the loop -----------------------------------------------------------------

    def _start_sync(self, files: tuple[File, ...], log_offset: int) -> None:
        begun_s = steady_s()

        def sync_done(failure: str) -> None:
            now_ms = self._clock.now_ms()
            self.syncs.record(steady_s() - begun_s)
            if failure:
                self._notify_core(lambda: self.core.sync_failed(failure, now_ms))
            else:
                self._notify_core(lambda: self.core.sync_finished(log_offset, now_ms))
            self.perform_effects()

        self._files.sync(files, sync_done)
