"""Admission of connections: counts them, refuses those beyond the limits, and logs that a limited
number of times per address and minute."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from escrowmq.base.log_throttle import LogThrottle
from escrowmq.base.ports import Clock
from escrowmq.errors import ConnectFailed
from escrowmq.net.connection_counts import ConnectionCounts

_log = logging.getLogger(__name__)

_CLOSING_MAX: Final = 32
"""The most connections that were cut in favour of new ones and still have their descriptors."""

_COMPLAINTS_MAX: Final = 10
_COMPLAINT_SPAN_MS: Final = 60_000
_LOGGED_ADDRESSES_MAX: Final = 1_000
"""The most lines a minute about refused connections of one address, and the most addresses that are
distinguished."""


def bind_port(host: str, port: int) -> socket.socket:
    """Bind a socket to a port; it does not accept connections yet. Raises ConnectFailed if the
    address is unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConnectFailed(
            f"cannot listen on {host}:{port}: {reason}; choose another port, or 0 for any"
        ) from error
    return listener


class IncomingConnections:
    """The incoming connections of one core, including those whose protocol is not known yet."""

    def __init__(
        self,
        admission: ConnectionCounts,
        clock: Clock,
        *,
        name: str,
        is_stranger: Callable[[int], bool] | None = None,
    ) -> None:
        self._admission = admission
        self._is_stranger = is_stranger
        self._unproved: OrderedDict[int, None] = OrderedDict()
        """Connections that had not proved an account when last checked, oldest first."""
        self._handshakes: OrderedDict[int, asyncio.Transport] = OrderedDict()
        """Connections whose TLS handshake is not complete, on ports that limit their number; oldest
        first."""
        self._leaving: set[int] = set()
        """Connections that were cut in favour of new ones, whose sockets are not closed yet."""
        self._clock = clock
        self._name = name
        self._admitted: dict[int, tuple[str, asyncio.Transport]] = {}
        self._complaints = LogThrottle(
            lines_max=_COMPLAINTS_MAX, span_ms=_COMPLAINT_SPAN_MS, kinds_max=_LOGGED_ADDRESSES_MAX
        )

    def __contains__(self, peer: int) -> bool:
        return peer in self._admitted

    @property
    def count(self) -> int:
        """The number of connections."""
        return self._admission.count

    def admit_connection(self, peer: int, transport: asyncio.Transport) -> bool:
        """Count a connection; if there are too many, cut it and return False."""
        host = remote_host(transport)
        if self._is_stranger is not None and self._admission.is_full:
            self._cut_oldest_stranger(self._is_stranger)
        refusal = self._admission.count_connection(host)
        if refusal:
            self.log_problem(transport, refusal)
            transport.abort()
            return False
        self._admitted[peer] = (host, transport)
        if self._is_stranger is not None:
            self._unproved[peer] = None
        return True

    def _cut_oldest_stranger(self, is_stranger: Callable[[int], bool]) -> None:
        """Cut the oldest connection that has not proved an account, if there is one. The new
        connection may be that of an account: its first request proves it."""
        while self._unproved and len(self._leaving) < _CLOSING_MAX:
            oldest, _ = self._unproved.popitem(last=False)
            if oldest not in self._admitted or not is_stranger(oldest):
                continue
            _, transport = self._admitted[oldest]
            self.forget_connection(oldest)
            self._leaving.add(oldest)
            self.log_problem(transport, "it has not proved an account, and its place is needed")
            transport.abort()
            return

    def count_handshake(self, peer: int, transport: asyncio.Transport, *, limit: int) -> None:
        """Count a handshake; if there are too many, cut the oldest one."""
        self._handshakes[peer] = transport
        if len(self._handshakes) > limit:
            oldest, slow = self._handshakes.popitem(last=False)
            self.forget_connection(oldest)
            self.log_problem(slow, f"more than {limit} handshakes, and its own is the oldest")
            slow.abort()

    def end_handshake(self, peer: int) -> None:
        """Subtract a handshake: the connection now speaks its protocol."""
        self._handshakes.pop(peer, None)

    def forget_connection(self, peer: int) -> None:
        """Forget a closed connection, whether or not it was counted."""
        self._handshakes.pop(peer, None)
        self._leaving.discard(peer)
        self._unproved.pop(peer, None)
        known = self._admitted.pop(peer, None)
        if known is not None:
            self._admission.subtract_connection(known[0])

    def log_problem(
        self, transport: asyncio.Transport, reason: str, *, is_refused: bool = True
    ) -> None:
        """Log a problem with a connection, a limited number of times per address and minute."""
        now_ms = self._clock.now_ms()
        for host, count in self._complaints.take_suppressed(now_ms):
            _log.warning("%s: %d more connections from %s were refused", self._name, count, host)
        host = remote_host(transport)
        if self._complaints.may_write(host, now_ms):
            what = " is refused" if is_refused else ""
            _log.warning("%s: a connection from %s%s: %s", self._name, host, what, reason)

    def close_all(self) -> None:
        """Close all admitted connections."""
        for _, transport in list(self._admitted.values()):
            transport.close()


def remote_host(transport: asyncio.BaseTransport) -> str:
    """The address of the other end."""
    name = transport.get_extra_info("peername") or ("127.0.0.1", 0)
    return str(name[0])
