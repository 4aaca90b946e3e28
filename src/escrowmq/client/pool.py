"""Connections by address: each is opened once for all users, and again after it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Final, cast

from escrowmq.base.command import Command
from escrowmq.client.closing import await_unless_closed
from escrowmq.client.connection import Connection, ConnectionCallbacks
from escrowmq.client.core.addresses import split_address
from escrowmq.client.core.dialogue import Fields, SignOwn, recognize_protocol, wrong_protocol_text
from escrowmq.errors import ClientClosed, ConnectFailed, EscrowMQError
from escrowmq.net import dialling

_log = logging.getLogger(__name__)

_GOODBYE_S: Final = 2.0
FOREIGN_REMEMBERED_S: Final = 5.0
"""How many seconds an address is remembered as that of a server of another kind."""
SILENT_BEFORE_PROBE_S: Final = 1.0
"""A peer that sends nothing for this many seconds is tested for HTTP."""


class ConnectionPool:
    """One connection per address. `greet` is called with each new one before it is used."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        decorate: Callable[[Fields, bytes], Fields],
        serve: Callable[[Connection, Command], None],
        greet: Callable[[Connection], None],
        lost: Callable[[Connection], None],
        sign_own: SignOwn | None = None,
    ) -> None:
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._greet = greet
        self._told_lost = lost
        self._owner = ConnectionCallbacks(
            decorate=decorate, serve=serve, lost=self._on_connection_lost, sign_own=sign_own
        )
        self._ready: dict[str, Connection] = {}
        self._all: set[Connection] = set()
        self._dials: dict[str, asyncio.Task[Connection]] = {}
        self._wondering: set[asyncio.Task[None]] = set()
        self._foreign: dict[str, tuple[float, str]] = {}
        """Addresses that belong to other kinds of servers, each with the time until which it is
        remembered, and the error."""
        self._emptied = asyncio.Event()
        self._is_closed = False

    def get_ready(self, address: str) -> Connection | None:
        """Return the connection to an address if it can be used immediately; otherwise None."""
        found = self._ready.get(address)
        return found if found is not None and found.is_usable else None

    async def get(self, address: str) -> Connection:
        """Return the connection to an address; open it if there is none. Raises ConnectFailed."""
        found = self.get_ready(address)
        if found is not None:
            return found
        if self._is_closed:
            raise ClientClosed("the client is closed; make a new one")
        self._raise_if_foreign(address)
        dial = self._dials.get(address)
        if dial is None:
            dial = asyncio.get_running_loop().create_task(self._open_connection(address))
            self._dials[address] = dial
            dial.add_done_callback(lambda done: self._on_dial_done(address, done))
        return await await_unless_closed(dial)

    def _raise_if_foreign(self, address: str) -> None:
        """Raise if a server of another kind was found at the address a moment ago: waiting for it
        again would use up a message's time."""
        until, fault = self._foreign.get(address, (0.0, ""))
        if fault and asyncio.get_running_loop().time() < until:
            raise ConnectFailed(f"no connection to {address}: {fault}")
        self._foreign.pop(address, None)

    def usable_connections(self) -> list[Connection]:
        """Return all usable connections."""
        return [each for each in self._ready.values() if each.is_usable]

    async def close(self) -> None:
        """Close all connections, including those being opened."""
        self._is_closed = True
        dials = [*self._dials.values(), *self._wondering]
        for dial in dials:
            dial.cancel()
        for connection in list(self._all):
            connection.close()
        if dials:
            await asyncio.wait(dials)
        if self._tls is not None and self._all:
            await self._await_tls_closing()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Close all connections immediately, including those being opened, and make no new ones."""
        self._is_closed = True
        for dial in self._dials.values():
            dial.cancel()
        for connection in list(self._all):
            connection.abort("this client was killed")

    async def _await_tls_closing(self) -> None:
        """Wait for the closing handshakes of TLS, which follow the last written data."""
        self._emptied.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self._emptied.wait()
        for connection in list(self._all):
            connection.abort("this client closed it")

    async def _open_connection(self, address: str) -> Connection:
        host, port = split_address(address)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await dialling.dial(
                    lambda: Connection(self._owner, address), host, port, tls=self._tls
                )
        except TimeoutError as error:
            raise ConnectFailed(
                f"no connection to {address} within {self._connect_timeout_s:.1f} s; "
                "is the address right, and does a firewall let it through?"
            ) from error
        except ssl.SSLError as error:
            raise ConnectFailed(
                f"no TLS connection to {address}: {_tls_error_text(error)}; does TLS run there, "
                "with a certificate of that address whose root `tls` trusts?"
            ) from error
        except OSError as error:
            raise ConnectFailed(
                f"no connection to {address}: {_error_text(error)}; is it running "
                f"there{' and using TLS' if self._tls is not None else ''}?"
            ) from error
        if self._is_closed:
            connection.abort("this client closed it")
            raise ClientClosed("the client was closed meanwhile; make a new one")
        if (
            connection.is_lost
        ):  # `_on_connection_lost` was called already, and would not remove it again
            raise ConnectFailed(f"no connection to {address}: {connection.loss_reason}")
        self._all.add(connection)
        try:
            self._greet(connection)
        except EscrowMQError:
            connection.abort("it could not be greeted")
            raise
        self._ready[address] = connection
        if self._tls is None:
            asyncio.get_running_loop().call_later(
                SILENT_BEFORE_PROBE_S, self._probe_silent_peer, connection
            )
        return connection

    def _probe_silent_peer(self, connection: Connection) -> None:
        """Test for HTTP if the peer has sent nothing since it was connected, although a request
        waits: an HTTP server would wait like this for the end of a line."""
        is_silent = connection.language is None and connection.waiting_count
        if is_silent and connection.is_usable and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._probe_http(connection))
            self._wondering.add(task)
            task.add_done_callback(self._wondering.discard)

    async def _probe_http(self, connection: Connection) -> None:
        """Send an HTTP request on a separate connection; if the answer is HTTP, fail the pending
        requests."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(SILENT_BEFORE_PROBE_S):
                asking = await dialling.dial(_HttpProbe, *split_address(connection.address))
                try:
                    found = await asking.answer
                finally:
                    asking.close()
            if protocol := recognize_protocol(found):
                fault = wrong_protocol_text(protocol)
                self._foreign[connection.address] = (
                    asyncio.get_running_loop().time() + FOREIGN_REMEMBERED_S,
                    fault,
                )
                connection.abort(fault)

    def _on_dial_done(self, address: str, dial: asyncio.Task[Connection]) -> None:
        self._dials.pop(address, None)
        if not dial.cancelled() and dial.exception() is not None:
            _log.debug("%s", dial.exception())

    def _on_connection_lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if not self._all:
            self._emptied.set()
        if self._ready.get(connection.address) is connection:
            del self._ready[connection.address]
        if not self._is_closed:
            self._told_lost(connection)


class _HttpProbe(asyncio.Protocol):
    """Sends an HTTP request; `answer` is the beginning of the answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(b"GET / HTTP/1.0\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        """Store the answer, or its first part."""
        if not self.answer.done():
            self.answer.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End without an answer."""
        if not self.answer.done():
            self.answer.set_result(b"")

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()


def _error_text(error: OSError) -> str:
    return error.strerror or str(error) or "the peer closed it at once"


def _tls_error_text(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    return error.reason or str(error)
