"""The port for load balancers and Prometheus: /healthz, /readyz and /metrics.

It is bound when the server starts, and what serves it is loaded when somebody calls for the first
time: a server that nobody looks at pays nothing for it. Then it has a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.errors import ConnectFailed
from escrowmq.net.admission import bind

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from escrowmq.base.probes import Vitals

_log = logging.getLogger(__name__)

NO_PORT: Final = -1
DEFAULT: Final = 8082
_BACKLOG: Final = 128
_MISSING: Final = "Here are /healthz, /readyz and /metrics.\n"


class Server(Protocol):
    """What serves a door, in a thread of its own."""

    def run(self) -> None:
        """Serve until it is stopped."""

    def stop(self) -> None:
        """From another thread: end soon."""


def bind_http(host: str, wanted: int | None, *, default: int | None) -> socket.socket | None:
    """The port that was wanted (0: any; -1: none). A default one may be another's: then there is
    none, and it is said."""
    port = default if wanted is None else wanted
    if port is None or port == NO_PORT:
        return None
    try:
        return bind(host, port)
    except ConnectFailed as error:
        if wanted is not None:
            raise
        _log.warning(
            "no console, /healthz, /readyz and /metrics: %s; choose another by --http-port, or "
            "none by escrowHttpPort=-1", error,
        )  # fmt: skip
        return None


class HttpPort:
    """A door whose server is made on its own thread, when the first connection waits there."""

    def __init__(self, door: socket.socket, make: Callable[[socket.socket], Server]) -> None:
        self._door = door
        self._make = make
        self._guard = Lock()
        self._server: Server | None = None
        self._thread: Thread | None = None
        self._is_closed = False
        self.port = int(door.getsockname()[1])

    def open(self) -> None:
        """Let callers in; the first one starts the server."""
        self._door.setblocking(False)
        self._door.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._door, self._begin)

    def _begin(self) -> None:
        asyncio.get_running_loop().remove_reader(self._door)
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            server = self._make(self._door)
            with self._guard:
                if self._is_closed:
                    return
                self._server = server
            server.run()
        except Exception:  # noqa: BLE001 - people look elsewhere then; the broker goes on
            _log.exception("the http port is closed: what serves it has failed")
            self._door.close()

    async def close(self) -> None:
        """Serve no more."""
        loop = asyncio.get_running_loop()
        with self._guard:
            self._is_closed = True
            server = self._server
        if self._thread is None:
            if self._door.fileno() >= 0:
                loop.remove_reader(self._door)
        else:
            if server is not None:
                await loop.run_in_executor(None, server.stop)
            await loop.run_in_executor(None, self._thread.join)
        self._door.close()


def serving(vitals: Callable[[], Vitals]) -> Callable[[socket.socket], Server]:
    """What makes the server of a door."""
    return lambda door: _PlainServer(door, plain_pages(vitals()))


def plain_pages(vitals: Vitals) -> WSGIApplication:
    """/healthz, /readyz and /metrics, and what to install for the rest."""

    from escrowmq.base.probes import health, readiness

    def serve(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            body, kind = vitals.figures(environ.get("HTTP_ACCEPT", ""))
            start("200 OK", [("Content-Type", kind)])
            return [body]
        if path in ("/healthz", "/readyz"):
            is_good, said = (health if path == "/healthz" else readiness)(vitals)
            start("200 OK" if is_good else "503 Service Unavailable", _text())
            return [f"{said}\n".encode()]
        start("404 Not Found" if path != "/" else "200 OK", _text())
        return [_MISSING.encode()]

    return serve


def _text() -> list[tuple[str, str]]:
    """Headers of a text. A new list each time: wsgiref adds the length to the one it is given."""
    return [("Content-Type", "text/plain; charset=utf-8")]


class _PlainServer:
    def __init__(self, door: socket.socket, app: WSGIApplication) -> None:
        from escrowmq.node.few_threads import FewThreads

        door.setblocking(True)
        self._server = FewThreads(door, app)

    def run(self) -> None:
        """Serve until it is stopped."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """Wait until it serves no more."""
        self._server.shutdown()
