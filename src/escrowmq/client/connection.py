"""One connection to a name server or a broker: requests out, replies matched, requests in."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable
from typing import Final, cast

import msgspec

from escrowmq.base.codes import Flag, Response
from escrowmq.base.command import Command
from escrowmq.client.core.dialogue import Decorate, Dialogue, Done, Fields, SignOwn
from escrowmq.codec.command import encode_reply
from escrowmq.errors import TransportError, response_error

_log = logging.getLogger(__name__)

_HIGH_WATER: Final = 4 * 1024 * 1024
_CLOSED: Final = "the peer closed it"
_SWEEP_LATE_S: Final = 0.001
"""A timer may be a little early; what is overdue then is overdue a moment later for certain."""


class ConnectionOwner(msgspec.Struct, kw_only=True):
    """What a connection asks of whoever holds it."""

    decorate: Decorate
    """Adds what every request carries: namespace, signature."""
    sign_own: SignOwn | None = None
    """Signs what is decorated once more, for a broker that wants more than RocketMQ's signature;
    None when there is nobody to sign for."""
    serve: Callable[[Connection, Command], None]
    """Takes a request of the peer."""
    lost: Callable[[Connection], None]
    """Learns that the connection is gone."""


class Connection(asyncio.Protocol):
    """Use `request` and wait for its future; the reply's code is the caller's to judge."""

    def __init__(self, owner: ConnectionOwner, address: str) -> None:
        self.address = address
        self.is_lost = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._dialogue = Dialogue(
            address,
            write=self._write,
            serve=self._serve,
            decorate=owner.decorate,
            sign_own=owner.sign_own,
        )
        self._transport: asyncio.Transport | None = None
        self._sweep_at = math.inf
        self._sweeper: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._reason = _CLOSED
        self._is_tls = False

    @property
    def is_usable(self) -> bool:
        """Whether a request can be made here."""
        return not (self.is_lost or self._dialogue.is_leaving)

    @property
    def reason(self) -> str:
        """Why it was lost."""
        return self._reason

    @property
    def waiting_count(self) -> int:
        """Requests that have no answer yet."""
        return self._dialogue.waiting_count

    @property
    def language(self) -> str | int | None:
        """What the peer says it is written in; known after its first reply."""
        return self._dialogue.language

    # -- asking ------------------------------------------------------------------------------

    def request(
        self, code: int, fields: Fields | None = None, body: bytes = b"", *, timeout_s: float
    ) -> asyncio.Future[Command]:
        """The future of the reply, whatever its code. It fails with RequestTimeout, or with
        ConnectionLost; a lost connection raises at once."""
        future: asyncio.Future[Command] = self._loop.create_future()
        done = functools.partial(_settle, future)
        self.exchange(code, fields or {}, body, timeout_s=timeout_s, done=done)
        return future

    def exchange(
        self, code: int, fields: Fields, body: bytes, *, timeout_s: float, done: Done
    ) -> None:
        """The same, with a function instead of a future: it is called as soon as the reply is
        read, without another turn of the event loop."""
        dialogue = self._dialogue
        now = self._loop.time()
        dialogue.ask(code, fields, body, now=now, timeout_s=timeout_s, done=done)
        if dialogue.wake_at < self._sweep_at:
            self._sweep_by(dialogue.wake_at)

    async def ask(
        self, code: int, fields: Fields | None = None, body: bytes = b"", *, timeout_s: float
    ) -> Command:
        """The reply to a request that is expected to succeed; ResponseError when it did not."""
        reply = await self.request(code, fields, body, timeout_s=timeout_s)
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=self.address)
        return reply

    def tell(
        self,
        code: int,
        fields: Fields | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
    ) -> None:
        """A one-way request: nobody answers, and a loss is not noticed."""
        self._dialogue.tell(code, fields or {}, body, remark=remark)

    def reply(
        self,
        request: Command,
        code: int = Response.SUCCESS,
        *,
        fields: Fields | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request of the peer; nothing happens when it was one-way, or is gone."""
        if not (self.is_lost or request.flag & Flag.ONE_WAY):
            self._write(encode_reply(request, code, ext=fields, body=body, remark=remark))

    def close(self, reason: str = "this client closed it") -> None:
        """End the connection; what waits for an answer fails with ConnectionLost."""
        self._reason = reason
        if self._transport is not None:
            self._flush()
            self._transport.close()
        self._fail_all()

    def abort(self, reason: str) -> None:
        """End it at once; what was not written yet is dropped."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    # -- the transport's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._is_tls = transport.get_extra_info("ssl_object") is not None

    def data_received(self, data: bytes) -> None:
        """Hand replies to whoever waits for them, requests to the owner."""
        self._dialogue.receive(data, self._loop.time())
        if self._dialogue.wake_at < self._sweep_at:  # something was asked again
            self._sweep_by(self._dialogue.wake_at)
        broken = self._dialogue.broken(data)
        if broken:
            self.abort(broken)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        elif self._reason == _CLOSED and self._dialogue.language is None and not self._is_tls:
            self._reason = (
                f"{_CLOSED} before it said anything; does it speak TLS only, or is this another "
                "server's port (gRPC, a database)?"
            )
        self._fail_all()
        self._owner.lost(self)

    # -- inside ------------------------------------------------------------------------------

    def _serve(self, command: Command) -> None:
        try:
            self._owner.serve(self, command)
        except Exception as error:  # noqa: BLE001 - one request of one peer; logged
            _log.exception("request %d of %s failed here", command.code, self.address)
            self.reply(command, Response.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _write(self, frame: bytes) -> None:
        # One caller's request leaves at once. With more under way, whatever is asked in one round
        # of the event loop leaves in one system call.
        if not self._dialogue.waiting_count and not self._out and self._transport is not None:
            self._transport.write(frame)
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _sweep_by(self, deadline: float) -> None:
        # One timer serves all requests: it costs nothing to those that are answered in time.
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = deadline
        self._sweeper = self._loop.call_at(deadline + _SWEEP_LATE_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeper, self._sweep_at = None, math.inf
        self._dialogue.sweep(self._loop.time())
        if self._dialogue.wake_at < math.inf:
            self._sweep_by(self._dialogue.wake_at)

    def _fail_all(self) -> None:
        self.is_lost = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._dialogue.lose(self._reason)


def _settle(
    future: asyncio.Future[Command], reply: Command | None, error: TransportError | None
) -> None:
    if future.done():
        return
    if reply is not None:
        future.set_result(reply)
    elif error is not None:
        future.set_exception(error)
