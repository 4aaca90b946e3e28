"""TLS on a connection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final

import msgspec

from escrowmq.base.wire import Wire
from escrowmq.net.certificate_accounts import CertificateAccounts
from escrowmq.net.certificates import HTTP2, Mode, ReloadedCertificates
from escrowmq.net.connection_counts import ConnectionLimits, TotalConnections
from escrowmq.net.link import LinkOwner, PeerLink
from escrowmq.net.read_buffer import READ_SIZE
from escrowmq.net.timeouts import HANDSHAKE_S
from escrowmq.net.unsent_bytes import UnsentBytes

_RECORD_SIZE: Final = 16_384
_RECORD_TYPES: Final = range(0x14, 0x18)
"""The first byte of each record of TLS."""

NOT_TLS: Final = "NOT_TLS"
"""The failure reason if a server answers with bytes that are not TLS. All other reasons are
OpenSSL's."""


def _openssl_reason(reason: str) -> str:
    return f"TLS: {reason}"


class TlsPolicy(msgspec.Struct, kw_only=True):
    """The TLS policy of a port."""

    mode: Mode
    certificates: ReloadedCertificates
    handshake_s: float = HANDSHAKE_S
    poll_interval_s: float = 1.0
    """Interval in seconds between polls of the certificate files."""
    explain: Callable[[str], str] = _openssl_reason
    """Returns the text for the log about a handshake that failed for this reason."""
    plain_fault: str = "plain bytes, and tls.server.mode=enforcing"
    """The text for the log about a plain connection that is refused."""


class MemberTlsPolicy(TlsPolicy, kw_only=True):
    """The TLS policy between members of a group, for both ends. Without TLS the master sends first;
    so a new connection that stays silent is taken for a plain one after `silent_s`."""

    refusal: bytes
    """The bytes that a plain peer gets before it is cut: the reason, in the protocol without
    TLS."""
    silent_s: float
    """A peer that sends nothing for this many seconds is taken for a plain one."""
    handshakes_max: int = 64
    """Limit of connections whose handshake is not complete; beyond it the oldest is cut."""
    is_next_plain: bool = False
    """Whether the next connection is opened without TLS, because one with TLS has failed and plain
    ones are allowed."""

    def next_context(self) -> ssl.SSLContext | None:
        """Return the context for the next connection; None for a plain one."""
        is_plain, self.is_next_plain = self.is_next_plain, False
        return None if is_plain else self.certificates.dialling

    def note_tls_failure(self) -> None:
        """Note that a connection with TLS could not be opened."""
        self.is_next_plain = self.mode == "permissive"


class PortOptions(msgspec.Struct, kw_only=True):
    """The policy for incoming connections, and for those that the core opens."""

    limits: ConnectionLimits = ConnectionLimits()
    total: TotalConnections = msgspec.field(default_factory=TotalConnections)
    """The count of connections, shared by all ports of this process."""
    unsent: UnsentBytes = msgspec.field(default_factory=UnsentBytes)
    """The count of unsent bytes, shared by all ports of this process."""
    tls: TlsPolicy | None = None
    """The TLS policy for incoming connections; None refuses TLS."""
    identities: CertificateAccounts | None = None
    """Maps clients' certificates to accounts; None if certificates stand for none."""
    dials_tls: ssl.SSLContext | None = None
    """The context for connections that the core opens; None makes plain ones."""
    members: MemberTlsPolicy | None = None
    """The TLS policy for replication in a group: for the master's port, and for connections to it.
    None for no TLS."""


class TlsSession:
    """The TLS state of one connection: converts between plain and encrypted bytes, without a
    socket."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, host: str = "") -> None:
        self.is_server = is_server
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=is_server, server_hostname=host or None
        )
        self.is_open = False
        """Whether the handshake is complete."""
        self.has_ended = False
        """Whether the peer has closed its side."""
        self._first = -1

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt the peer's bytes. Raises ssl.SSLError if they are invalid. Send the bytes of
        `pending_bytes` after each call."""
        self._in.write(data)
        if self._first < 0 and data:
            self._first = data[0]
        if not self.is_open:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.is_open = True
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(READ_SIZE):
                pieces.append(piece)
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        return b"".join(pieces)

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt bytes for the peer."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:_RECORD_SIZE]) :]
        return self._out.read()

    def failure_reason(self, error: ssl.SSLError) -> str:
        """Return why `decrypt` has failed."""
        if self._first >= 0 and self._first not in _RECORD_TYPES:
            return NOT_TLS
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{error.reason}: {error.verify_message}"
        return error.reason or str(error)

    @property
    def negotiated_protocol(self) -> str:
        """The negotiated protocol (ALPN); empty if the peer names none."""
        return self._tls.selected_alpn_protocol() or ""

    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's verified certificate; None if it has none, or was not asked."""
        return self._tls.getpeercert()

    def pending_bytes(self) -> bytes:
        """Return bytes of TLS itself that must be sent: handshake, alerts, tickets."""
        return self._out.read()

    def closing_alert(self) -> bytes:
        """Return the closing alert."""
        # The peer may not have sent its own closing alert, or there never was a handshake.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        return self._out.read()


class TlsLink(PeerLink):
    """A link whose bytes are encrypted. The core is informed of the peer after the handshake."""

    __slots__ = ("_explain", "_handshake", "_handshake_s", "_is_dialled", "_session", "_wires")

    def __init__(
        self,
        shell: LinkOwner,
        peer: int,
        session: TlsSession,
        *,
        wires: tuple[Wire, ...] = (Wire.REMOTING,),
        handshake_s: float = HANDSHAKE_S,
        explain: Callable[[str], str] = _openssl_reason,
    ) -> None:
        super().__init__(shell, peer, wires[0])
        self._explain = explain
        self._wires = wires
        self._session = session
        # Set here and not in `begin_handshake`: the other end may send before the handshake begins.
        self._is_dialled = not session.is_server
        self._handshake_s = handshake_s
        self._handshake: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake with a newly connected peer."""
        self._set_transport(transport)
        self._handshake = asyncio.get_running_loop().call_later(
            self._handshake_s, self._handshake_timeout
        )

    def begin_handshake(self) -> None:
        """Start the handshake as the connecting side."""
        self._decrypt(b"")

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt bytes, pass them to the core, and perform its effects."""
        reads = self._shell.reads
        is_all = nbytes < len(reads.next_buffer)
        data = self._decrypt(reads.next_buffer[:nbytes].tobytes())
        if data and is_all:
            reads.end_backlog(self.peer)
            self._shell.receive(self, data)
        elif data:
            self._process_turn(data)
        if self._session.has_ended:
            self.close(flush_s=self._handshake_s)

    def _decrypt(self, data: bytes) -> bytes:
        session = self._session
        was_open = session.is_open
        try:
            found = session.decrypt(data)
        except ssl.SSLError as error:
            self._write(session.pending_bytes())
            self._refuse(session.failure_reason(error))
            return b""
        self._write(session.pending_bytes())
        if session.is_open and not was_open:
            self._stop_timer()
            if session.negotiated_protocol == HTTP2 and Wire.GRPC in self._wires:
                self.wire = Wire.GRPC
            self._shell.entrance.end_handshake(self.peer)
            self._shell.link_connected(self)
            if not self._is_dialled and self.wire is not Wire.GROUP:
                self._shell.report_certificate(self, session.peer_certificate())
        return found

    def _write(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _refuse(self, reason: str) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self._report_tls_fault(self._explain(reason))
            self.transport.close()

    def _report_tls_fault(self, fault: str) -> None:
        assert self.transport is not None
        if self._is_dialled and self.wire is Wire.GROUP:
            self._shell.dial_tls_failed(self.peer, fault)
        else:
            self._shell.entrance.log_problem(self.transport, fault)

    def _handshake_timeout(self) -> None:
        self._handshake = None
        if self.transport is not None and not self.transport.is_closing():
            self._report_tls_fault(f"TLS: no handshake within {self._handshake_s:.0f} s")
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost peer to the core."""
        self._stop_timer()
        super().connection_lost(exc)
        if self._is_dialled and not self._session.is_open:
            self._shell.dial_failed(self.peer)

    def write(self, chunks: list[bytes]) -> bool:
        """Encrypt and write immediately; if too much is unsent, cut the connection and return
        False."""
        if self._session.has_ended or self.transport is None or self.transport.is_closing():
            return True
        return super().write([self._session.encrypt(b"".join(chunks))])

    def close(self, *, flush_s: float) -> None:
        """Close after the written bytes are sent."""
        self._write(self._session.closing_alert())
        super().close(flush_s=flush_s)
