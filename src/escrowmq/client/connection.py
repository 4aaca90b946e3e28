"""One connection to a name server or a broker: requests out, replies matched, requests in."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import msgspec

from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.limits import REPLY_HEADER_SIZE_MAX
from escrowmq.codec.command import encode_reply, encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.own_signature import SESSION
from escrowmq.errors import (
    ConnectionLost,
    RequestTimeout,
    TransportError,
    UsageError,
    response_error,
)

_log = logging.getLogger(__name__)

REQUESTS_WAITING_MAX: Final = 65_535
"""Requests of one connection without an answer yet."""

_OPAQUE_MASK: Final = 0x7FFF_FFFF
_HIGH_WATER: Final = 4 * 1024 * 1024
_CLOSED: Final = "the peer closed it"
_FOREIGN: Final = (
    (b"HTTP/", "HTTP"),
    (b"E\x00\x00", "PostgreSQL"),
    (b"-ERR", "Redis"),
    (b"\x15\x03", "TLS"),
    (b"SSH-", "SSH"),
)
"""How the answers of other servers begin."""
_SWEEP_LATE_S: Final = 0.001
"""A timer may be a little early; what is overdue then is overdue a moment later for certain."""

Fields = dict[str, str]
Done = Callable[["Command | None", "TransportError | None"], None]
"""Is given the reply, or why there is none. It must not raise."""


SignOwn = Callable[[int, "Fields", bytes, str, int], "Fields"]
"""Code, fields, body, session and number to fields with the signature of our own."""


class _Asked(NamedTuple):
    """A request without an answer yet."""

    done: Done
    deadline: float
    code: int
    timeout_s: float
    fields: Fields
    body: bytes
    is_own: bool
    """Signed as our own clients do."""


class Owner(msgspec.Struct, kw_only=True):
    """What a connection asks of whoever holds it."""

    decorate: Callable[[Fields, bytes], Fields]
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

    def __init__(self, owner: Owner, address: str) -> None:
        self.address = address
        self.is_lost = False
        self.is_leaving = False
        """The peer shuts down: nothing new is asked here."""
        self.language: str | int | None = None
        """What the peer says it is written in; known after its first reply."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(header_size_max=REPLY_HEADER_SIZE_MAX)
        self._transport: asyncio.Transport | None = None
        self._asked: dict[int, _Asked] = {}
        self._sweep_at = math.inf
        self._sweeper: asyncio.TimerHandle | None = None
        self._opaque = 0
        self._session = ""
        """What a broker that wants our own signatures has chosen for this connection."""
        self._signed_count = 0
        self._refused: list[tuple[_Asked, Command]] = []
        """Requests that are made again once there is a session, and how they were refused."""
        self._out: list[bytes] = []
        self._reason = _CLOSED
        self._is_tls = False

    @property
    def is_usable(self) -> bool:
        """Whether a request can be made here."""
        return not (self.is_lost or self.is_leaving)

    @property
    def waiting_count(self) -> int:
        """Requests that have no answer yet."""
        return len(self._asked)

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
        if self.is_lost:
            raise self._loss()
        if len(self._asked) >= REQUESTS_WAITING_MAX:
            raise UsageError(
                f"{REQUESTS_WAITING_MAX} requests wait for {self.address} already; "
                "wait for some of them before making more"
            )
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        ext = self._decorated(code, fields, body)
        self._write(encode_request(code, opaque, ext=ext, body=body))
        deadline = self._loop.time() + timeout_s
        is_own = bool(self._session)
        self._asked[opaque] = _Asked(done, deadline, code, timeout_s, fields, body, is_own)
        if deadline < self._sweep_at:
            self._sweep_by(deadline)

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
        if self.is_lost:
            raise self._loss()
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        ext = self._decorated(code, fields or {}, body)
        self._write(
            encode_request(code, opaque, ext=ext, body=body, is_one_way=True, remark=remark)
        )

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
        asked = self._asked
        for command in self._reader.feed(data):
            if not command.flag & Flag.REPLY:
                self._serve(command)
                continue
            waiting = asked.pop(command.opaque, None)
            if command.code == Response.GO_AWAY:
                self.is_leaving = True
            if command.code == Response.ESCROW_SIGNATURE_WANTED and waiting is not None:
                self._ask_again(waiting, command)
            elif waiting is not None:
                waiting.done(command, None)
            self.language = command.language
        if self._reader.broken is not None:
            self.abort(f"{self._foreign(data)}it sent what is no frame: {self._reader.broken}")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        elif self._reason == _CLOSED and self.language is None and not self._is_tls:
            self._reason = (
                f"{_CLOSED} before it said anything; does it speak TLS only, or is this another "
                "server's port (gRPC, a database)?"
            )
        self._fail_all()
        self._owner.lost(self)

    # -- signing -----------------------------------------------------------------------------

    def _decorated(self, code: int, fields: Fields, body: bytes) -> Fields:
        ext = self._owner.decorate(fields, body)
        if not self._session or self._owner.sign_own is None:
            return ext
        self._signed_count += 1
        return self._owner.sign_own(code, ext, body, self._session, self._signed_count)

    def _ask_again(self, waiting: _Asked, refusal: Command) -> None:
        """A broker of ours wants another signature of this account; no other broker ever says so,
        and none is asked for a session before."""
        if waiting.is_own or self._owner.sign_own is None:
            waiting.done(refusal, None)
            return
        self._refused.append((waiting, refusal))
        if self._session:
            self._with_session()
        elif len(self._refused) == 1:
            self.exchange(
                Request.ESCROW_SESSION, {}, b"", timeout_s=waiting.timeout_s, done=self._greeted
            )

    def _greeted(self, reply: Command | None, error: TransportError | None) -> None:
        if reply is not None and reply.code == Response.SUCCESS:
            self._session = (reply.ext or {}).get(SESSION, "")
        self._with_session()

    def _with_session(self) -> None:
        refused, self._refused = self._refused, []
        for waiting, refusal in refused:
            left_s = waiting.deadline - self._loop.time()
            is_full = len(self._asked) >= REQUESTS_WAITING_MAX
            if not self._session or self.is_lost or is_full or left_s <= 0:
                waiting.done(refusal, None)
                continue
            self.exchange(
                waiting.code, waiting.fields, waiting.body, timeout_s=left_s, done=waiting.done
            )

    # -- inside ------------------------------------------------------------------------------

    def _foreign(self, data: bytes) -> str:
        """Which other protocol the peer speaks, if its first words tell."""
        if self.language is not None:
            return ""
        name = next((name for words, name in _FOREIGN if data.startswith(words)), "")
        return (
            f"it speaks {name} and not RocketMQ's remoting, so this is another port; "
            if name
            else ""
        )

    def _serve(self, command: Command) -> None:
        try:
            self._owner.serve(self, command)
        except Exception as error:  # noqa: BLE001 - one request of one peer; logged
            _log.exception("request %d of %s failed here", command.code, self.address)
            self.reply(command, Response.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _write(self, frame: bytes) -> None:
        # One caller's request leaves at once. With more under way, whatever is asked in one round
        # of the event loop leaves in one system call.
        if not self._asked and not self._out and self._transport is not None:
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
        now = self._loop.time()
        self._sweeper, self._sweep_at = None, math.inf
        late = [opaque for opaque, waiting in self._asked.items() if waiting.deadline <= now]
        for opaque in late:
            waiting = self._asked.pop(opaque)
            waiting.done(
                None,
                RequestTimeout(
                    f"no answer of {self.address} to {_name(waiting.code)} within "
                    f"{waiting.timeout_s * 1000:.0f} ms"
                ),
            )
        if self._asked:
            self._sweep_by(min(waiting.deadline for waiting in self._asked.values()))

    def _fail_all(self) -> None:
        self.is_lost = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        asked, self._asked = self._asked, {}
        for waiting in asked.values():
            waiting.done(None, self._loss())

    def _loss(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.address} is gone: {self._reason}")


def _settle(
    future: asyncio.Future[Command], reply: Command | None, error: TransportError | None
) -> None:
    if future.done():
        return
    if reply is not None:
        future.set_result(reply)
    elif error is not None:
        future.set_exception(error)


def _name(code: int) -> str:
    for name, value in vars(Request).items():
        if value == code and name.isupper():
            return f"{name} ({code})"
    return f"request {code}"
