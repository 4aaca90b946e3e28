"""Detects the protocol of a connection by its first bytes: TLS or none, remoting or gRPC.

asyncio's own TLS handles a connection from its first byte on, and puts a layer between
transport and protocol. Here a connection that turns out to be plain gets its plain link after
the first bytes, and costs no more than without TLS."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from escrowmq.base.wire import Wire
from escrowmq.net.link import LinkOwner, PeerLink
from escrowmq.net.tls import MemberTlsPolicy, TlsLink, TlsPolicy, TlsSession

_HANDSHAKE: Final = 0x16
"""The first byte of a TLS handshake. A remoting frame begins with its length; with this byte it
would be over 352 MiB."""

_PREFACE: Final = ord("P")
"""The first byte of HTTP/2. A remoting frame begins with its length; with this byte it would be
over 1.2 GiB."""


class ProtocolDetector(asyncio.BufferedProtocol):
    """Waits for the first bytes of a connection, and passes it to the link for its protocol."""

    def __init__(
        self,
        shell: LinkOwner,
        peer: int,
        tls: TlsPolicy | None,
        *,
        wires: tuple[Wire, ...],
        patience_s: float,
    ) -> None:
        self._shell = shell
        self._peer = peer
        self._tls = tls
        self._wires = wires
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes of a new connection."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._shell.entrance.admit_connection(self._peer, self._transport):
            return
        if isinstance(self._tls, MemberTlsPolicy):
            self._shell.entrance.count_handshake(
                self._peer, self._transport, limit=self._tls.handshakes_max
            )
        self._timer = asyncio.get_running_loop().call_later(
            self._patience_s, self._detection_timeout
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the first bytes."""
        return self._shell.reads.next_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the connection to the link for its protocol, now that the first bytes have
        arrived."""
        assert self._transport is not None
        self._stop_timer()
        link = self._make_link(self._shell.reads.next_buffer[0])
        if link is None:
            assert self._tls is not None
            self._refuse(self._tls.plain_fault)
            return
        self._continue_with(link)
        # The bytes are in the buffer that all connections share: the link finds them there.
        link.buffer_updated(nbytes)

    def _continue_with(self, link: PeerLink) -> None:
        assert self._transport is not None
        if not isinstance(link, TlsLink):
            self._shell.entrance.end_handshake(self._peer)
        self._transport.set_protocol(link)
        link.connection_made(self._transport)

    def _refuse(self, reason: str) -> None:
        assert self._transport is not None
        self._shell.entrance.log_problem(self._transport, reason)
        if isinstance(self._tls, MemberTlsPolicy):
            self._transport.write(self._tls.refusal)
            self._transport.close()
        else:
            self._transport.abort()

    def _make_link(self, first: int) -> PeerLink | None:
        """Return the link for a connection with this first byte; None if its protocol is not
        served."""
        tls = self._tls
        if tls is not None and first == _HANDSHAKE:
            session = TlsSession(tls.certificates.context, is_server=True)
            return TlsLink(
                self._shell,
                self._peer,
                session,
                wires=self._wires,
                handshake_s=tls.handshake_s,
                explain=tls.explain,
            )
        if tls is not None and tls.mode == "enforcing":
            return None
        is_grpc = first == _PREFACE and Wire.GRPC in self._wires
        return PeerLink(self._shell, self._peer, Wire.GRPC if is_grpc else self._wires[0])

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a peer that disconnected without sending anything."""
        self._stop_timer()
        self._shell.entrance.forget_connection(self._peer)

    def _detection_timeout(self) -> None:
        self._timer = None
        if self._transport is None or self._transport.is_closing():
            return
        tls = self._tls
        if isinstance(tls, MemberTlsPolicy) and tls.mode == "permissive":
            self._continue_with(PeerLink(self._shell, self._peer, self._wires[0]))
        elif isinstance(tls, MemberTlsPolicy):
            self._refuse(tls.plain_fault)
        else:
            self._refuse(f"silent for {self._patience_s:.0f} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
