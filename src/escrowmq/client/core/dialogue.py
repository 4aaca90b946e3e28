"""The requests of one connection and their results: request numbers, replies, deadlines,
signatures. It has no socket and no clock: the owner sends what is passed to `write`, passes in what
it reads, and passes the current time. Times are in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import REPLY_HEADER_SIZE_MAX
from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.own_signature import SESSION
from escrowmq.errors import ConnectionLost, RequestTimeout, TransportError, UsageError

REQUESTS_WAITING_MAX: Final = 65_535
"""Limit of unanswered requests on one connection."""

_OPAQUE_MASK: Final = 0x7FFF_FFFF
_FOREIGN_PREFIXES: Final = (
    (b"HTTP/", "HTTP"),
    (b"E\x00\x00", "PostgreSQL"),
    (b"EFATAL:", "PostgreSQL"),
    (b"AMQP", "AMQP"),
    (b"220 ", "SMTP or FTP"),
    (b"-ERR", "Redis"),
    (b"\x15\x03", "TLS"),
    (b"SSH-", "SSH"),
)
"""The first bytes of answers from servers of other protocols, by which these are recognised."""

_NAMES: Final = {value: name for name, value in vars(Request).items() if name.isupper()}
_MYSQL: Final = b"\x00\x0a"
"""Bytes by which a greeting of MySQL or MariaDB is recognised: its sequence number and protocol
version, which follow three bytes of length."""

Fields = dict[str, str]
Done = Callable[["Command | None", "TransportError | None"], None]
"""A callback that gets the reply, or the error if there is none. It must not raise."""

Decorate = Callable[["Fields", bytes], "Fields"]
"""A function that adds what every request carries: namespace, signature."""

SignOwn = Callable[[int, "Fields", bytes, str, int], "Fields"]
"""A function that makes the fields of EscrowMQ's own signature, from code, fields, body, session
and number."""


class _PendingRequest(NamedTuple):
    """A request that is not answered yet."""

    done: Done
    deadline: float
    code: int
    timeout_s: float
    fields: Fields
    body: bytes
    is_own: bool
    """Whether it has EscrowMQ's own signature."""


class Dialogue:
    """The requests of one connection, in both directions."""

    def __init__(
        self,
        address: str,
        *,
        write: Callable[[bytes], object],
        serve: Callable[[Command], object],
        decorate: Decorate,
        sign_own: SignOwn | None = None,
    ) -> None:
        self.address = address
        self.language: str | int | None = None
        """The peer's implementation language, known after its first reply."""
        self.is_peer_stopping = False
        """Whether the peer is shutting down, so that no new request may be made here."""
        self.loss_reason = ""
        """The reason for which no more requests can be made; empty while they can."""
        self.next_expiry = math.inf
        """The time by which `expire_requests` must be called."""
        self._write = write
        self._serve = serve
        self._decorate = decorate
        self._sign_own = sign_own
        self._reader = FrameReader(header_size_max=REPLY_HEADER_SIZE_MAX)
        self._asked: dict[int, _PendingRequest] = {}
        self._opaque = 0
        self._now = 0.0
        self._session = ""
        """The session for EscrowMQ's own signatures, chosen by the broker for this connection."""
        self._signed_count = 0
        self._refused: list[tuple[_PendingRequest, Command]] = []
        """Requests to repeat once there is a session, each with the refusal it got."""

    @property
    def waiting_count(self) -> int:
        """Number of requests that are not answered yet."""
        return len(self._asked)

    # -- what goes out -----------------------------------------------------------------------

    def ask(
        self, code: int, fields: Fields, body: bytes, *, now: float, timeout_s: float, done: Done
    ) -> None:
        """Make a request; `done` is called once, with its result."""
        if self.loss_reason:
            raise self.loss_error()
        if len(self._asked) >= REQUESTS_WAITING_MAX:
            raise UsageError(
                f"{REQUESTS_WAITING_MAX} requests are already waiting for {self.address}; "
                "wait for some of them before making more"
            )
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        ext = self._signed_fields(code, fields, body)
        self._write(encode_request(code, opaque, ext=ext, body=body))
        deadline = now + timeout_s
        is_own = bool(self._session)
        self._asked[opaque] = _PendingRequest(done, deadline, code, timeout_s, fields, body, is_own)
        self.next_expiry = min(self.next_expiry, deadline)

    def send_one_way(
        self, code: int, fields: Fields, body: bytes, *, remark: str | None = None
    ) -> None:
        """Send a one-way request: there is no answer, and a loss goes unnoticed."""
        if self.loss_reason:
            raise self.loss_error()
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        ext = self._signed_fields(code, fields, body)
        self._write(
            encode_request(code, opaque, ext=ext, body=body, is_one_way=True, remark=remark)
        )

    def _signed_fields(self, code: int, fields: Fields, body: bytes) -> Fields:
        ext = self._decorate(fields, body)
        if not self._session:
            return ext
        assert self._sign_own is not None, "only an account has a session"
        self._signed_count += 1
        return self._sign_own(code, ext, body, self._session, self._signed_count)

    # -- input ---------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Pass replies to their callers, and the peer's requests to the owner. If `frame_error` is
        set afterwards, end the connection."""
        self._now = now
        for command in self._reader.read_commands(data):
            if not command.flag & Flag.REPLY:
                self._serve(command)
                continue
            waiting = self._asked.pop(command.opaque, None)
            if command.code == Response.GO_AWAY:
                self.is_peer_stopping = True
            if waiting is not None:
                if command.code == Response.ESCROW_SIGNATURE_WANTED:
                    self._repeat_signed(waiting, command)
                else:
                    waiting.done(command, None)
            self.language = command.language

    def frame_error(self, data: bytes) -> str:
        """Return why the bytes read so far are not a valid frame; empty if they are valid. `data`
        is the last part of them."""
        error = self._reader.broken
        if error is None:
            return ""
        if self.language is None and (foreign := recognize_protocol(data)):
            return wrong_protocol_text(foreign)
        return f"it sent something that is not a frame: {error}"

    # -- signing -----------------------------------------------------------------------------

    def _repeat_signed(self, waiting: _PendingRequest, refusal: Command) -> None:
        """Repeat a refused request with EscrowMQ's own signature, because the broker requires it.
        The session for these signatures is requested only now: other brokers do not know such
        sessions."""
        if waiting.is_own or self._sign_own is None:
            waiting.done(refusal, None)
            return
        is_first = not self._refused
        self._refused.append((waiting, refusal))
        if self._session:
            self._repeat_refused()
        elif is_first:
            limit_s = waiting.timeout_s
            self.ask(
                Request.ESCROW_SESSION, {}, b"",
                now=self._now, timeout_s=limit_s, done=self._on_session,
            )  # fmt: skip

    def _on_session(self, reply: Command | None, error: TransportError | None) -> None:
        if reply is not None:
            self._session = (reply.ext or {}).get(SESSION, "")
        self._repeat_refused()

    def _repeat_refused(self) -> None:
        refused, self._refused = self._refused, []
        for waiting, refusal in refused:
            left_s = waiting.deadline - self._now
            is_full = len(self._asked) >= REQUESTS_WAITING_MAX
            if not self._session or self.loss_reason or is_full or left_s <= 0:
                waiting.done(refusal, None)
                continue
            self.ask(
                waiting.code, waiting.fields, waiting.body,
                now=self._now, timeout_s=left_s, done=waiting.done,
            )  # fmt: skip

    # -- time and ends -----------------------------------------------------------------------

    def expire_requests(self, now: float) -> None:
        """Fail requests that were not answered in time."""
        self._now = now
        late = [opaque for opaque, waiting in self._asked.items() if waiting.deadline <= now]
        for opaque in late:
            waiting = self._asked.pop(opaque)
            text = (
                f"no answer of {self.address} to {_code_text(waiting.code)} within "
                f"{waiting.timeout_s * 1000:.0f} ms"
            )
            waiting.done(None, RequestTimeout(text))
        self.next_expiry = min((each.deadline for each in self._asked.values()), default=math.inf)

    def fail_all(self, reason: str) -> None:
        """Fail all requests, because the connection is lost."""
        # Mark it lost first: a caller may make its next request immediately, which must not wait
        # here.
        self.loss_reason = reason
        asked, self._asked = self._asked, {}
        for waiting in asked.values():
            waiting.done(None, self.loss_error())

    def loss_error(self) -> ConnectionLost:
        """Make the error with which every request fails once the connection is lost."""
        return ConnectionLost(f"the connection to {self.address} is gone: {self.loss_reason}")


def recognize_protocol(data: bytes) -> str:
    """Return the name of the protocol with which an answer begins, if it is another than
    RocketMQ's; empty if unknown."""
    if data[3:5] == _MYSQL:
        return "MySQL"
    return next((name for words, name in _FOREIGN_PREFIXES if data.startswith(words)), "")


def wrong_protocol_text(protocol: str) -> str:
    """Return the error text for a peer that speaks another protocol."""
    return f"it speaks {protocol} and not RocketMQ's remoting, so this is another server's port"


def _code_text(code: int) -> str:
    name = _NAMES.get(code)
    return f"{name} ({code})" if name else f"request {code}"
