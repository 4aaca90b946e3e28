"""TLS over a link, and the choice between TLS and plain bytes on one port.

asyncio's own TLS takes a connection from its first byte on and puts a layer between transport and
protocol. Here a connection that turns out to be plain has its plain link after the first bytes, and
costs from then on what it cost without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from escrowmq.net.admission import ConnectionLimits, Total
from escrowmq.net.certificates import Certificates, Mode
from escrowmq.net.identity import Identities
from escrowmq.net.link import READ_SIZE, Link
from escrowmq.net.unsent import Unsent

if TYPE_CHECKING:
    from escrowmq.net.shell import Shell

_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection. A remoting frame begins with its length, which would be
over 352 MiB."""

_HANDSHAKE_S: Final = 10.0
_RECORD_SIZE: Final = 16_384


class TlsDoor(msgspec.Struct, kw_only=True):
    """How a port speaks."""

    mode: Mode
    certificates: Certificates
    handshake_s: float = _HANDSHAKE_S
    """A handshake that takes longer is given up."""
    look_s: float = 1.0
    """Between looks at the files of certificates."""


class Doors(msgspec.Struct, kw_only=True):
    """On what terms peers come in, and how others are called on."""

    limits: ConnectionLimits = ConnectionLimits()
    total: Total = msgspec.field(default_factory=Total)
    """Shared by all shells that have these doors."""
    unsent: Unsent = msgspec.field(default_factory=Unsent)
    """The same of what waits to be read."""
    tls: TlsDoor | None = None
    """None refuses TLS."""
    identities: Identities | None = None
    """Which accounts clients' certificates stand for; None: for none."""
    dials_tls: ssl.SSLContext | None = None
    """For connections that the core asks for; None makes plain ones."""


class Session:
    """TLS between two streams of bytes, without a socket."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, host: str = "") -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=is_server, server_hostname=host or None
        )
        self.is_open = False
        """Whether the handshake is done."""
        self.has_ended = False
        """Whether the peer has said that it sends no more."""

    def receive(self, data: bytes) -> bytes:
        """What the peer's bytes mean; ssl.SSLError when they are no good. Ask `pending` next."""
        self._in.write(data)
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

    def send(self, data: bytes) -> bytes:
        """Bytes for the peer, encrypted."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:_RECORD_SIZE]) :]
        return self._out.read()

    def certificate(self) -> dict[str, Any] | None:
        """The peer's, which was verified; None when it has shown none, or none was asked for."""
        return self._tls.getpeercert()

    def pending(self) -> bytes:
        """What TLS itself has to say: handshake, alerts, tickets."""
        return self._out.read()

    def end(self) -> bytes:
        """The word that nothing more is sent."""
        # The peer may not have said so itself yet, or there never was a handshake.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        return self._out.read()


class TlsLink(Link):
    """A link whose bytes are encrypted. The core learns of the peer after the handshake."""

    __slots__ = ("_handshake", "_handshake_s", "_is_dialled", "_session")

    def __init__(
        self, shell: Shell, peer: int, session: Session, *, handshake_s: float = _HANDSHAKE_S
    ) -> None:
        super().__init__(shell, peer)
        self._session = session
        self._is_dialled = False
        self._handshake_s = handshake_s
        self._handshake: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer is there; the handshake begins."""
        self._attach(transport)
        self._handshake = asyncio.get_running_loop().call_later(self._handshake_s, self._give_up)

    def begin(self) -> None:
        """Speak first, as who has dialled does."""
        self._is_dialled = True
        self._decrypt(b"")

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt, feed the core, and perform what it decided."""
        data = self._decrypt(bytes(self._shell.buffer[:nbytes]))
        if data and nbytes < READ_SIZE:
            self._shell.links.behind.discard(self.peer)
            self._shell.receive(self, data)
        elif data:
            self._feed_turn(data)
        if self._session.has_ended:
            self.close(flush_s=self._handshake_s)

    def _decrypt(self, data: bytes) -> bytes:
        session = self._session
        was_open = session.is_open
        try:
            found = session.receive(data)
        except ssl.SSLError as error:
            self._say(session.pending())
            self._refuse(error.reason or str(error))
            return b""
        self._say(session.pending())
        if session.is_open and not was_open:
            self._stop_timer()
            self._shell.connected(self)
            if not self._is_dialled:
                self._shell.identify(self, session.certificate())
        return found

    def _say(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _refuse(self, reason: str) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self._shell.entrance.complain(self.transport, f"TLS: {reason}")
            self.transport.close()

    def _give_up(self) -> None:
        self._handshake = None
        if self.transport is not None and not self.transport.is_closing():
            self._shell.entrance.complain(
                self.transport, f"TLS: no handshake within {self._handshake_s:.0f} s"
            )
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._stop_timer()
        super().connection_lost(exc)
        if self._is_dialled and not self._session.is_open:
            self._shell.unreached(self.peer)

    def write(self, chunks: list[bytes]) -> bool:
        """Write in one go, encrypted; False, and the connection is cut, when too much waits."""
        if self._session.has_ended or self.transport is None or self.transport.is_closing():
            return True
        return super().write([self._session.send(b"".join(chunks))])

    def close(self, *, flush_s: float) -> None:
        """Close after what was written has left."""
        self._say(self._session.end())
        super().close(flush_s=flush_s)


class Greeter(asyncio.BufferedProtocol):
    """Waits for the first bytes of a connection, and hands it to the link that they ask for."""

    def __init__(self, shell: Shell, peer: int, door: TlsDoor, *, patience_s: float) -> None:
        self._shell = shell
        self._peer = peer
        self._door = door
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there who has said nothing yet."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._shell.entrance.admit(self._peer, self._transport):
            return
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._give_up)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the first bytes go."""
        return self._shell.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The first bytes: another protocol goes on with them."""
        assert self._transport is not None
        self._stop_timer()
        link: Link
        if self._shell.buffer[0] == _HANDSHAKE:
            context = self._door.certificates.context
            session = Session(context, is_server=True)
            link = TlsLink(self._shell, self._peer, session, handshake_s=self._door.handshake_s)
        elif self._door.mode == "enforcing":
            self._shell.entrance.complain(
                self._transport, "plain bytes, and tls.server.mode=enforcing"
            )
            self._transport.abort()
            return
        else:
            link = Link(self._shell, self._peer)
        self._transport.set_protocol(link)
        link.connection_made(self._transport)
        link.buffer_updated(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """It left without a word."""
        self._stop_timer()
        self._shell.entrance.dismiss(self._peer)

    def _give_up(self) -> None:
        self._timer = None
        if self._transport is not None and not self._transport.is_closing():
            self._shell.entrance.complain(self._transport, f"silent for {self._patience_s:.0f} s")
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
