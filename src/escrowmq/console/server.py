"""The console on a door, in the thread that calls it: uvicorn on an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final

import uvicorn
import uvloop
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from escrowmq.base.extras import require
from escrowmq.base.probes import Vitals
from escrowmq.console.app import build_app
from escrowmq.console.options import ConsoleOptions
from escrowmq.net.clock import steady_s

require("console", "starlette", "uvicorn", "jinja2")

CONNECTIONS_MAX: Final = 128
"""Connections at a time; of more, the one that has asked nothing for longest is cut."""

PATIENCE_S: Final = 20.0
"""A connection that has not asked anything whole for so long is cut."""

_KEEP_ALIVE_S: Final = 15
_DRAIN_S: Final = 3
_CHECK_S: Final = 1.0


class ConsoleServer:
    """Serves until it is stopped."""

    def __init__(self, door: socket.socket, options: ConsoleOptions, vitals: Vitals | None) -> None:
        self._door = door
        self._waiting = Waiting()
        port = int(door.getsockname()[1])
        app = build_app(
            options, vitals, now_s=steady_s, port=port, is_ending=lambda: self._server.should_exit
        )
        config = uvicorn.Config(
            app,
            http=self._waiting.protocol(),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        cutting = asyncio.ensure_future(self._waiting.cut_late())
        try:
            await self._server.serve(sockets=[self._door])
        finally:
            cutting.cancel()
            with suppress(asyncio.CancelledError):
                await cutting

    def stop(self) -> None:
        """From another thread: end soon."""
        self._server.should_exit = True


class Waiting:
    """Connections of which nothing whole has come yet, or no more."""

    def __init__(self, *, count_max: int = CONNECTIONS_MAX, patience_s: float = PATIENCE_S) -> None:
        self._since_s: OrderedDict[asyncio.Transport, float] = OrderedDict()
        self._open_count = 0
        self._count_max = count_max
        self._patience_s = patience_s

    def protocol(self) -> type[asyncio.Protocol]:
        """uvicorn's, which tells this one of its connections."""
        waiting = self

        class _Patient(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                waiting.begins(transport)

            def handle_events(self) -> None:
                super().handle_events()
                cycle: RequestResponseCycle | None = self.cycle
                if cycle is not None and not cycle.response_complete:
                    waiting.asks(self.transport)

            def on_response_complete(self) -> None:
                super().on_response_complete()
                waiting.idles(self.transport)

            def connection_lost(self, exc: Exception | None) -> None:
                waiting.ends(self.transport)
                super().connection_lost(exc)

        return _Patient

    def begins(self, transport: Any) -> None:  # noqa: ANN401 - uvloop's are no asyncio.Transport
        """A connection is there."""
        self._open_count += 1
        self._since_s[transport] = steady_s()
        if self._open_count > self._count_max:
            oldest, _ = self._since_s.popitem(last=False)
            oldest.abort()

    def asks(self, transport: Any) -> None:  # noqa: ANN401
        """It has asked, and is served."""
        self._since_s.pop(transport, None)

    def idles(self, transport: Any) -> None:  # noqa: ANN401
        """It has its answer."""
        if not transport.is_closing():
            self._since_s[transport] = steady_s()

    def ends(self, transport: Any) -> None:  # noqa: ANN401
        """It is gone."""
        self._since_s.pop(transport, None)
        self._open_count = max(0, self._open_count - 1)

    async def cut_late(self) -> None:
        """For ever: cut those that take too long to ask."""
        while True:
            await asyncio.sleep(_CHECK_S)
            late_s = steady_s() - self._patience_s
            for transport in [one for one, since_s in self._since_s.items() if since_s < late_s]:
                self._since_s.pop(transport, None)
                transport.abort()
