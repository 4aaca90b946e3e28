"""A blocking connection for driver and executors, whose processes are forked, and so can have no
event loop of their parent's. Requests leave when they are posted; replies are taken by number."""

from __future__ import annotations

import socket
from collections import deque
from typing import Final

from escrowmq.base.codes import Flag, Response
from escrowmq.base.command import Command
from escrowmq.client.core.addresses import split_address
from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign
from escrowmq.errors import (
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    response_error,
)
from escrowmq.pipeline.brokers.options import Access

_READ_SIZE: Final = 1 << 20
_OPAQUE_MASK: Final = 0x7FFF_FFFF
Fields = dict[str, str]


class Link:
    """One connection to a name server or a broker. What goes wrong raises TransportError, and the
    link is of no use then."""

    def __init__(self, address: str, access: Access, *, timeout_ms: int) -> None:
        self.address = address
        self._who = access.credentials()
        self._timeout_ms = timeout_ms
        self._reader = FrameReader()
        self._opaque = 0
        self._waiting: set[int] = set()
        self._replies: dict[int, Command] = {}
        self._out: deque[bytes] = deque()
        host, port = split_address(address)
        try:
            plain = socket.create_connection((host, port), timeout=timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = access.tls()
            self._socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        except OSError as error:
            raise ConnectFailed(
                f"no connection to {address}: {error.strerror or error}; does it run there?"
            ) from error

    def post(self, code: int, fields: Fields, body: bytes = b"") -> int:
        """Hand a request to the network, with the next `flush` or `take`; its number."""
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        self._out.append(encode_request(code, opaque, ext=self._signed(fields, body), body=body))
        self._waiting.add(opaque)
        return opaque

    def flush(self) -> None:
        """Let what was posted leave."""
        if not self._out:
            return
        data = b"".join(self._out)
        self._out.clear()
        try:
            self._socket.sendall(data)
        except TimeoutError as error:
            raise RequestTimeout(f"{self.address} takes no requests") from error
        except OSError as error:
            raise self._lost(error) from error

    def take(self, number: int) -> Command:
        """The reply to a request, whatever its code."""
        self.flush()
        while number not in self._replies:
            self._receive()
        return self._replies.pop(number)

    def drop(self, number: int) -> None:
        """Nobody wants the reply to this request."""
        self._waiting.discard(number)
        self._replies.pop(number, None)

    def ask(self, code: int, fields: Fields, body: bytes = b"") -> Command:
        """The reply to a request that is expected to succeed; ResponseError when it did not."""
        return self.checked(self.take(self.post(code, fields, body)))

    def checked(self, reply: Command) -> Command:
        """The reply, if it is a success."""
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=self.address)
        return reply

    @property
    def has_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def _signed(self, fields: Fields, body: bytes) -> Fields:
        who = self._who
        if who is None:
            return fields
        fields = {**fields, ACCESS_KEY: who.access_key}
        if who.security_token:
            fields[SECURITY_TOKEN] = who.security_token
        fields[SIGNATURE] = sign(fields, body, secret=who.secret_key)
        return fields

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ_SIZE)
        except TimeoutError as error:
            raise RequestTimeout(
                f"no answer of {self.address} within {self._timeout_ms} ms"
            ) from error
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise ConnectionLost(f"{self.address} closed the connection")
        for command in self._reader.feed(data):
            if command.flag & Flag.REPLY and command.opaque in self._waiting:
                self._waiting.discard(command.opaque)
                self._replies[command.opaque] = command
        if self._reader.broken is not None:
            raise RemoteProtocolError(
                f"{self.address} sent what is no frame: {self._reader.broken}"
            )

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(
            f"the connection to {self.address} is gone: {error.strerror or error}"
        )
