"""A blocking connection for Spark's driver and executors. Their processes are forked, and so cannot
use an event loop of their parent. Requests are sent by `post`, and replies are taken by the
request's number."""

from __future__ import annotations

import math
import socket
from collections import deque
from functools import partial
from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.client.core.addresses import split_address
from escrowmq.client.core.dialogue import Dialogue, Fields
from escrowmq.client.core.signing import Signer
from escrowmq.errors import (
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
    response_error,
)
from escrowmq.pipeline.brokers.options import ClusterAccess

_READ_SIZE: Final = 1 << 20

BUSY: Final = frozenset({Response.SYSTEM_BUSY, Response.FLOW_CONTROL})
"""Response codes of a busy broker: the request may be retried after a moment."""


class BrokerLink:
    """One connection to a name server or a broker. Errors raise TransportError, after which the
    link cannot be used."""

    def __init__(self, address: str, access: ClusterAccess, *, timeout_ms: int) -> None:
        self.address = address
        who = access.credentials()
        signer = Signer(who)
        self._timeout_ms = timeout_ms
        self._posted = 0
        self._waiting: set[int] = set()
        self._replies: dict[int, Command] = {}
        self._out: deque[bytes] = deque()
        self._dialogue = Dialogue(
            address,
            write=self._out.append,
            serve=_ignore_request,
            decorate=signer.add_common_fields,
            sign_own=None if who is None else signer.add_own_signature,
        )
        host, port = split_address(address)
        try:
            plain = socket.create_connection((host, port), timeout=timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = access.tls()
            self._socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        except OSError as error:
            raise ConnectFailed(
                f"no connection to {address}: {error.strerror or error}; is it running there?"
            ) from error

    def post(self, code: int, fields: Fields, body: bytes = b"") -> int:
        """Queue a request for the next `flush` or `take_reply`; return its number."""
        self._posted = number = self._posted + 1
        # The socket's own timeout ends a wait.
        self._dialogue.ask(
            code, fields, body, now=0.0, timeout_s=math.inf, done=partial(self._on_reply, number)
        )
        self._waiting.add(number)
        return number

    def _on_reply(self, number: int, reply: Command | None, _: TransportError | None) -> None:
        if reply is not None and number in self._waiting:
            self._waiting.discard(number)
            self._replies[number] = reply

    def flush(self) -> None:
        """Send the queued requests."""
        if not self._out:
            return
        data = b"".join(self._out)
        self._out.clear()
        try:
            self._socket.sendall(data)
        except TimeoutError as error:
            raise RequestTimeout(f"{self.address} accepts no data") from error
        except OSError as error:
            raise self._connection_lost(error) from error

    def take_reply(self, number: int) -> Command:
        """Wait for the reply to a request and return it, whatever its code."""
        self.flush()
        while number not in self._replies:
            self._receive()
            self.flush()  # a refused signature is retried
        return self._replies.pop(number)

    def ignore_reply(self, number: int) -> None:
        """Ignore the reply to this request."""
        self._waiting.discard(number)
        self._replies.pop(number, None)

    def ask(self, code: int, fields: Fields, body: bytes = b"") -> Command:
        """Make a request and return the reply; raises ResponseError if its code is not success."""
        return self.require_success(self.take_reply(self.post(code, fields, body)))

    def require_success(self, reply: Command) -> Command:
        """Return the reply if it is a success; raise ResponseError otherwise."""
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=self.address)
        return reply

    @property
    def has_open_requests(self) -> bool:
        """Whether an answer is still expected."""
        return bool(self._waiting)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ_SIZE)
        except TimeoutError as error:
            raise RequestTimeout(
                f"no answer of {self.address} within {self._timeout_ms} ms"
            ) from error
        except OSError as error:
            raise self._connection_lost(error) from error
        if not data:
            raise ConnectionLost(f"{self.address} closed the connection")
        self._dialogue.receive(data, 0.0)
        broken = self._dialogue.frame_error(data)
        if broken:
            raise RemoteProtocolError(f"{self.address}: {broken}")

    def _connection_lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(
            f"the connection to {self.address} is gone: {error.strerror or error}"
        )


def _ignore_request(request: Command) -> None:
    """Ignore a broker's request: this client is a member of no group."""
