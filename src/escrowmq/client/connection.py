"""One connection to a name server or a broker: sends requests, matches replies, receives
requests."""

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
from escrowmq.errors import RequestTimeout, TransportError, response_error

_log = logging.getLogger(__name__)

_HIGH_WATER: Final = 4 * 1024 * 1024
"""Above this many unsent bytes, one-way requests wait. Others are limited by their answers."""

_ROUND_MAX: Final = 256
"""So many frames may wait for the end of one round of the event loop before one-way requests let it
end."""

_CLOSED: Final = "the peer closed it"
_SWEEP_LATE_S: Final = 0.001
"""Extra delay of the timeout timer. Timers may fire slightly early; with the delay, every due
request is overdue by then."""


class ConnectionCallbacks(msgspec.Struct, kw_only=True):
    """The functions with which a connection calls its owner."""

    decorate: Decorate
    """Adds what every request carries: namespace, signature."""
    sign_own: SignOwn | None = None
    """Signs the decorated request for a broker that requires more than RocketMQ's signature; None
    without an account."""
    serve: Callable[[Connection, Command], None]
    """Serves a request that the peer has sent."""
    lost: Callable[[Connection], None]
    """Callback for the loss of the connection."""


class Connection(asyncio.Protocol):
    """A connection to a server. Call `request` and await its future; the caller must check the
    reply's code."""

    def __init__(self, owner: ConnectionCallbacks, address: str) -> None:
        self.address = address
        self.is_lost = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._dialogue = Dialogue(
            address,
            write=self._write,
            serve=self._pass_request,
            decorate=owner.decorate,
            sign_own=owner.sign_own,
        )
        self._transport: asyncio.Transport | None = None
        self._sweep_at = math.inf
        self._sweeper: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._reason = _CLOSED
        self._is_tls = False
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_usable(self) -> bool:
        """Whether new requests can be made on this connection."""
        return not (self.is_lost or self._dialogue.is_peer_stopping)

    @property
    def loss_reason(self) -> str:
        """The reason for which the connection was lost."""
        return self._reason

    @property
    def waiting_count(self) -> int:
        """Number of requests that are not answered yet."""
        return self._dialogue.waiting_count

    @property
    def language(self) -> str | int | None:
        """The peer's implementation language, known after its first reply."""
        return self._dialogue.language

    # -- asking ------------------------------------------------------------------------------

    def request(
        self, code: int, fields: Fields | None = None, body: bytes = b"", *, timeout_s: float
    ) -> asyncio.Future[Command]:
        """Return the future of the reply, whatever its code. It fails with RequestTimeout or
        ConnectionLost; if the connection is already lost, this raises."""
        future: asyncio.Future[Command] = self._loop.create_future()
        done = functools.partial(_set_result, future)
        self.request_with_callback(code, fields or {}, body, timeout_s=timeout_s, done=done)
        return future

    def request_with_callback(
        self, code: int, fields: Fields, body: bytes, *, timeout_s: float, done: Done
    ) -> None:
        """Like `request`, with a callback instead of a future: it is called as soon as the reply is
        read, without another turn of the event loop."""
        dialogue = self._dialogue
        now = self._loop.time()
        dialogue.ask(code, fields, body, now=now, timeout_s=timeout_s, done=done)
        if dialogue.next_expiry < self._sweep_at:
            self._schedule_expiry(dialogue.next_expiry)

    async def ask(
        self, code: int, fields: Fields | None = None, body: bytes = b"", *, timeout_s: float
    ) -> Command:
        """Send a request and return the reply; raises ResponseError if its code is not success."""
        reply = await self.request(code, fields, body, timeout_s=timeout_s)
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=self.address)
        return reply

    def send_one_way(
        self,
        code: int,
        fields: Fields | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
    ) -> None:
        """Send a one-way request: there is no answer, and a loss goes unnoticed. Await
        `wait_for_room` before, unless such requests are small and few."""
        self._dialogue.send_one_way(code, fields or {}, body, remark=remark)

    async def wait_for_room(self, *, timeout_s: float) -> None:
        """Wait while the peer does not take what was written. Raises RequestTimeout if that lasts
        too long; returns at once if the connection is lost."""
        if len(self._out) >= _ROUND_MAX:
            await asyncio.sleep(0)
        if self._has_room.is_set():
            return
        try:
            async with asyncio.timeout(timeout_s):
                while not self._has_room.is_set():
                    await self._has_room.wait()
        except TimeoutError as error:
            raise RequestTimeout(
                f"{self.address} has taken no data for {timeout_s * 1000:.0f} ms, and much waits "
                "for it already; nothing more was written"
            ) from error

    def reply(
        self,
        request: Command,
        code: int = Response.SUCCESS,
        *,
        fields: Fields | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request of the peer; does nothing if it was one-way, or the connection is
        lost."""
        if not (self.is_lost or request.flag & Flag.ONE_WAY):
            self._write(encode_reply(request, code, ext=fields, body=body, remark=remark))

    def close(self, reason: str = "this client closed it") -> None:
        """Close the connection; requests without an answer fail with ConnectionLost."""
        self._reason = reason
        if self._transport is not None:
            self._flush()
            self._transport.close()
        self._fail_requests()

    def abort(self, reason: str) -> None:
        """Close the connection immediately; unwritten data is dropped."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()
        self._fail_requests()

    # -- the transport's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; asyncio calls this when the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._is_tls = transport.get_extra_info("ssl_object") is not None

    def pause_writing(self) -> None:
        """Let one-way requests wait; asyncio calls this while much is written and not sent."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """Continue to send one-way requests."""
        self._has_room.set()

    def data_received(self, data: bytes) -> None:
        """Pass replies to their callers, and requests to the owner."""
        self._dialogue.receive(data, self._loop.time())
        if self._dialogue.next_expiry < self._sweep_at:  # something was asked again
            self._schedule_expiry(self._dialogue.next_expiry)
        broken = self._dialogue.frame_error(data)
        if broken:
            self.abort(broken)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the unanswered requests; asyncio calls this when the connection is lost."""
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        elif self._reason == _CLOSED and self._dialogue.language is None and not self._is_tls:
            self._reason = (
                f"{_CLOSED} before it said anything; does it speak TLS only, or is this another "
                "server's port (gRPC, a database)?"
            )
        self._fail_requests()
        self._owner.lost(self)

    # -- inside ------------------------------------------------------------------------------

    def _pass_request(self, command: Command) -> None:
        try:
            self._owner.serve(self, command)
        except Exception as error:  # noqa: BLE001 - one request of one peer; logged
            _log.exception("serving request %d of %s failed", command.code, self.address)
            self.reply(command, Response.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _write(self, frame: bytes) -> None:
        # A single caller's request is written immediately. With more in flight, all requests of one
        # round of the event loop are written with one system call.
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

    def _schedule_expiry(self, deadline: float) -> None:
        # One timer serves all requests: it costs nothing to those that are answered in time.
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = deadline
        self._sweeper = self._loop.call_at(deadline + _SWEEP_LATE_S, self._expire_requests)

    def _expire_requests(self) -> None:
        self._sweeper, self._sweep_at = None, math.inf
        self._dialogue.expire_requests(self._loop.time())
        if self._dialogue.next_expiry < math.inf:
            self._schedule_expiry(self._dialogue.next_expiry)

    def _fail_requests(self) -> None:
        self.is_lost = True
        self._has_room.set()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._dialogue.fail_all(self._reason)


def _set_result(
    future: asyncio.Future[Command], reply: Command | None, error: TransportError | None
) -> None:
    if future.done():
        return
    if reply is not None:
        future.set_result(reply)
    elif error is not None:
        future.set_exception(error)
