"""The port for people, load balancers and Prometheus: the console and its API, /healthz, /readyz
and /metrics.

It is bound when the server starts. Its server is loaded at the first connection, so that it costs
nothing until it is used, and then has its own thread and event loop. Without the extra `console`,
/healthz, /readyz and /metrics are served all the same, by the standard library.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from escrowmq.base.probes import HealthReader
    from escrowmq.console.options import ConsoleOptions

_log = logging.getLogger(__name__)

NO_PORT: Final = -1
DEFAULT: Final = 8082
_BACKLOG: Final = 128
_EXTRA: Final = ("starlette", "uvicorn", "jinja2")
_MISSING: Final = (
    "The console and its API are an extra: pip install 'escrowmq[console]', and start this server "
    "again. /healthz, /readyz and /metrics are served here without it.\n"
)


class HttpServer(Protocol):
    """A server for a bound port, which runs in its own thread."""

    def run(self) -> None:
        """Serve until stopped."""

    def stop(self) -> None:
        """Make the server stop soon; callable from other threads."""


def bind_http(host: str, wanted: int | None, *, default: int | None) -> socket.socket | None:
    """Bind the configured port (0: any; -1: none). If a default port is in use, log that, and
    return None."""
    port = default if wanted is None else wanted
    if port is None or port == NO_PORT:
        return None
    try:
        return bind_port(host, port)
    except ConnectFailed as error:
        if wanted is not None:
            raise
        _log.warning(
            "no port for the console, /healthz, /readyz and /metrics: %s; choose another "
                "with --http-port, or none with escrowHttpPort=-1", error,
        )  # fmt: skip
        return None


def has_console() -> bool:
    """Whether the extra `console` is installed; it is not loaded."""
    return all(find_spec(name) is not None for name in _EXTRA)


class HttpPort:
    """A port whose server is created in its own thread, at the first connection."""

    def __init__(
        self, listener: socket.socket, make: Callable[[socket.socket], HttpServer]
    ) -> None:
        self._socket = listener
        self._make = make
        self._guard = Lock()
        self._server: HttpServer | None = None
        self._thread: Thread | None = None
        self._is_closed = False
        self.port = int(listener.getsockname()[1])

    def open(self) -> None:
        """Accept connections; the first one starts the server."""
        self._socket.setblocking(False)
        self._socket.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._socket, self._start_thread)

    def _start_thread(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            server = self._make(self._socket)
            with self._guard:
                if self._is_closed:
                    return
                self._server = server
            server.run()
        except Exception:  # noqa: BLE001 - people look elsewhere then; the broker goes on
            _log.exception("the http port is closed: its server has failed")
            self._socket.close()

    async def close(self) -> None:
        """Stop serving."""
        loop = asyncio.get_running_loop()
        with self._guard:
            self._is_closed = True
            server = self._server
        if self._thread is None:
            if self._socket.fileno() >= 0:
                loop.remove_reader(self._socket)
        else:
            if server is not None:
                await loop.run_in_executor(None, server.stop)
            await loop.run_in_executor(None, self._thread.join)
        self._socket.close()


def server_factory(
    health_reader: Callable[[], HealthReader], options: ConsoleOptions | None
) -> Callable[[socket.socket], HttpServer]:
    """Return a function that creates the port's server: with a console if there are options for
    one."""

    def make_server(listener: socket.socket) -> HttpServer:
        if options is None:
            return _PlainServer(listener, make_plain_app(health_reader()))
        from escrowmq.console.server import ConsoleServer

        return ConsoleServer(listener, options, health_reader())

    return make_server


def make_plain_app(health_reader: HealthReader) -> WSGIApplication:
    """Make the application that is used without the extra `console`: it serves /healthz, /readyz
    and /metrics, and for other paths names the extra."""

    from escrowmq.base.probes import health, readiness

    def serve(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            body, kind = health_reader.metrics_text(environ.get("HTTP_ACCEPT", ""))
            start("200 OK", [("Content-Type", kind)])
            return [body]
        if path in ("/healthz", "/readyz"):
            is_good, said = (health if path == "/healthz" else readiness)(health_reader)
            start("200 OK" if is_good else "503 Service Unavailable", _text_headers())
            return [f"{said}\n".encode()]
        if path.startswith("/api/"):
            start("501 Not Implemented", [("Content-Type", "application/json")])
            return [json.dumps({"code": "not_installed", "message": _MISSING.strip(),
                                "hint": "pip install 'escrowmq[console]'"}).encode()]  # fmt: skip
        start("501 Not Implemented" if path != "/" else "200 OK", _text_headers())
        return [_MISSING.encode()]

    return serve


def _text_headers() -> list[tuple[str, str]]:
    """Return the headers of a plain-text answer: a new list each time, because wsgiref changes
    it."""
    return [("Content-Type", "text/plain; charset=utf-8")]


class _PlainServer:
    def __init__(self, listener: socket.socket, app: WSGIApplication) -> None:
        from escrowmq.node.small_http_server import SmallHttpServer

        listener.setblocking(True)
        self._server = SmallHttpServer(listener, app)

    def run(self) -> None:
        """Serve until stopped."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """Stop serving, and wait until it has stopped."""
        self._server.shutdown()
