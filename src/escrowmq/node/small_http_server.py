"""A WSGI server of the standard library that slow clients cannot block: it has few threads, and
limits the time of each."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer

from escrowmq.net.clock import steady_s

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_log = logging.getLogger(__name__)

THREADS_MAX: Final = 8
"""Limit of connections that are served at a time."""

PATIENCE_S: Final = 10.0
"""Limit in seconds for serving one connection."""

Request = socket.socket | tuple[bytes, socket.socket]
"""A connection (or datagram), in socketserver's type."""


class _QuietHandler(WSGIRequestHandler):
    """A request handler that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


class SmallHttpServer(ThreadingWSGIServer):
    """Serves each connection on a thread, like its base class, but with a maximum number and a
    timeout. The port is bound already."""

    def __init__(
        self, listener: socket.socket, app: WSGIApplication, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._since_s: dict[socket.socket, float] = {}
        """The connections in progress, oldest first, with their start times."""
        self._guard = Lock()
        self._patience_s = patience_s
        self.address_family = listener.family
        super().__init__(listener.getsockname()[:2], _QuietHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()
        self.set_app(app)
        self.server_activate()

    def process_request(self, request: Request, client_address: object) -> None:
        """Serve one more connection. Beyond the maximum, close the oldest: metrics are served
        within milliseconds, so it is idle."""
        with self._guard:
            while len(self._since_s) >= THREADS_MAX:
                self._close_connection(next(iter(self._since_s)))
            self._since_s[_socket_of(request)] = steady_s()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that take too long, even if they send or read a byte now and then. The
        base class calls this regularly."""
        with self._guard:
            late_s = steady_s() - self._patience_s
            for request in [each for each, since_s in self._since_s.items() if since_s < late_s]:
                self._close_connection(request)

    def _close_connection(self, request: socket.socket) -> None:
        del self._since_s[request]
        with suppress(OSError):  # it is gone already
            request.shutdown(socket.SHUT_RDWR)  # its thread hears of it, and closes it

    def shutdown_request(self, request: Request) -> None:
        """Forget a finished connection."""
        with self._guard:
            self._since_s.pop(_socket_of(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Request, client_address: object) -> None:
        """Ignore errors of connections that were closed during a write: they are not worth a
        traceback."""
        _log.debug("http: the connection from %s ended early", client_address, exc_info=True)


def _socket_of(request: Request) -> socket.socket:
    """Return the socket of a request object."""
    assert isinstance(request, socket.socket), request
    return request
