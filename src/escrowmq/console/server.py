"""Serves the console on a listening socket, in the calling thread, by uvicorn on its own event
loop."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final

import uvicorn
import uvloop
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from escrowmq.base.extras import require_extra
from escrowmq.base.probes import HealthReader
from escrowmq.console.app import build_app
from escrowmq.console.options import ConsoleOptions
from escrowmq.net.clock import steady_s

require_extra("console", "starlette", "uvicorn", "jinja2")

CONNECTIONS_MAX: Final = 128
"""The most open connections. Beyond it, one that does not read its answers is closed, or else the
one that was idle longest."""

PATIENCE_S: Final = 20.0
"""The seconds after which a connection is closed that has not completed a request, or not read its
answers."""

_STALLED_S: Final = 1.0
"""If there are too many connections, one that has not read its answers for this many seconds is
closed before any idle one."""

_KEEP_ALIVE_S: Final = 15
_DRAIN_S: Final = 3
_CHECK_S: Final = 1.0


class ConsoleServer:
    """The console's server; it serves until `stop` is called."""

    def __init__(
        self, listening_socket: socket.socket, options: ConsoleOptions, vitals: HealthReader | None
    ) -> None:
        self._socket = listening_socket
        self._waiting = WaitingConnections(patience_s=PATIENCE_S)
        port = int(listening_socket.getsockname()[1])
        app = build_app(
            options, vitals, now_s=steady_s, port=port, is_ending=lambda: self._server.should_exit
        )
        config = uvicorn.Config(
            app,
            http=self._waiting.protocol_class(),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(options.proxies),
            forwarded_allow_ips=list(options.proxies),
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until stopped."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        cutting = asyncio.ensure_future(self._waiting.close_late_repeatedly())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            cutting.cancel()
            with suppress(asyncio.CancelledError):
                await cutting

    def stop(self) -> None:
        """Make the server stop soon; callable from any thread."""
        self._server.should_exit = True


class WaitingConnections:
    """The connections that the server waits for. Idle ones have no complete request: none was sent
    yet, or the last was answered. Stalled ones do not read their answers."""

    def __init__(self, *, count_max: int = CONNECTIONS_MAX, patience_s: float = PATIENCE_S) -> None:
        self._idle_s: OrderedDict[asyncio.Transport, float] = OrderedDict()
        """The idle connections, oldest first, each with the time since which it is idle."""
        self._stalled_s: OrderedDict[asyncio.Transport, float] = OrderedDict()
        """The stalled connections, oldest first, each with the time since which it is stalled."""
        self._open_count = 0
        self._count_max = count_max
        self._patience_s = patience_s

    def protocol_class(self) -> type[asyncio.Protocol]:
        """Return uvicorn's protocol class, extended to report its connections here."""
        waiting = self

        class _ReportingProtocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                waiting.connection_opened(transport)

            def handle_events(self) -> None:
                super().handle_events()
                cycle: RequestResponseCycle | None = self.cycle
                if cycle is not None and not cycle.response_complete:
                    waiting.request_received(self.transport)

            def on_response_complete(self) -> None:
                super().on_response_complete()  # begins to serve the next request, if it is here
                cycle: RequestResponseCycle | None = self.cycle
                if cycle is None or cycle.response_complete:
                    waiting.response_sent(self.transport)

            def pause_writing(self) -> None:
                super().pause_writing()
                waiting.writing_stalled(self.transport)

            def resume_writing(self) -> None:
                super().resume_writing()
                waiting.writing_resumed(self.transport)

            def connection_lost(self, exc: Exception | None) -> None:
                waiting.connection_closed(self.transport)
                super().connection_lost(exc)

        return _ReportingProtocol

    def connection_opened(self, transport: Any) -> None:  # noqa: ANN401 - uvloop's are no asyncio.Transport
        """Add a connection that was opened; above the limit, close one that is stalled or idle."""
        self._open_count += 1
        self._idle_s[transport] = steady_s()
        if self._open_count > self._count_max:
            self._close_connection(self._connection_to_close())

    def _connection_to_close(self) -> asyncio.Transport:
        """Return the connection to close if there are too many."""
        stalled = next(iter(self._stalled_s), None)
        if stalled is not None:
            for_s = steady_s() - self._stalled_s[stalled]
            if for_s > _STALLED_S or len(self._idle_s) == 1:
                return stalled
        return next(iter(self._idle_s))

    def writing_stalled(self, transport: Any) -> None:  # noqa: ANN401
        """Record that a connection's answers wait until the client reads."""
        self._stalled_s[transport] = steady_s()

    def writing_resumed(self, transport: Any) -> None:  # noqa: ANN401
        """Record that the client reads again."""
        self._stalled_s.pop(transport, None)

    def request_received(self, transport: Any) -> None:  # noqa: ANN401
        """Stop the timer of a connection whose request is complete."""
        self._idle_s.pop(transport, None)

    def response_sent(self, transport: Any) -> None:  # noqa: ANN401
        """Start the timer of a connection whose answer was sent."""
        if not transport.is_closing():
            self._idle_s[transport] = steady_s()

    def connection_closed(self, transport: Any) -> None:  # noqa: ANN401
        """Forget a connection that was closed."""
        self._idle_s.pop(transport, None)
        self._stalled_s.pop(transport, None)
        self._open_count = max(0, self._open_count - 1)

    async def close_late_repeatedly(self) -> None:
        """Close connections that take too long to send a request or to read their answers, again
        and again until the server ends."""
        while True:
            await asyncio.sleep(_CHECK_S)
            late_s = steady_s() - self._patience_s
            waiting = [*self._idle_s.items(), *self._stalled_s.items()]
            for transport, since_s in waiting:
                if since_s < late_s:
                    self._close_connection(transport)

    def _close_connection(self, transport: asyncio.Transport) -> None:
        self._idle_s.pop(transport, None)
        self._stalled_s.pop(transport, None)
        transport.abort()
