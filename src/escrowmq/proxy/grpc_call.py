"""One call of a client, as the service's methods see it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from google.protobuf.message import Message

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.guests import RequestByValue
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE
from escrowmq.errors import UsageError
from escrowmq.http2.grpc_connection import GrpcConnection
from escrowmq.http2.grpc_metadata import NO_DEADLINE, GrpcStatus
from escrowmq.proxy.backend import Backend
from escrowmq.proxy.call_metadata import CallCredential
from escrowmq.proxy.clients import FrontClient
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import CallFault, reply_fault

_log = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)
OnReply = Callable[[Answer | Refusal], None]


class ServiceMethod(msgspec.Struct, frozen=True):
    """One method of the gRPC service."""

    request: type[Message]
    serve: Callable[..., None]
    """Serves a call; the answer may come later. Raises a Fault to refuse the call."""

    refuse: Callable[..., None]
    """Refuses a call because of a Fault, in the form of this method's response."""

    is_stream: bool = False
    """Whether the client sends a stream of messages, which go to `Call.on_message` one by one."""

    is_read: bool = False
    """Whether the method reads stored data, so that its answers may be large."""

    is_open_to_all: bool = False
    """Whether the method needs no authentication."""


class CallDialogue(Protocol):
    """What a call needs of its connection."""

    backend: Backend
    calls: GrpcConnection

    def run_guarded(self, call: GrpcCall[Any], work: Callable[[], None]) -> None:
        """Run a part of a call; if it raises, the call is refused."""

    def remove_call(self, call: GrpcCall[Any]) -> None:
        """Remove a call that is complete."""

    def add_cost(self, units: int) -> None:
        """Count work of a call beyond the usual, in units of some 20 us. The connection's turn then
        ends sooner."""

    def schedule_flush(self) -> None:
        """Schedule a flush, because an answer waits to be written."""


class _OpenRequest:
    """A request that a call has made to the broker and that is not answered yet."""

    __slots__ = ("_call", "_on_reply", "is_needed", "number", "reply")

    def __init__(self, call: GrpcCall[Any], on_reply: OnReply, *, is_needed: bool) -> None:
        self._call = call
        self._on_reply = on_reply
        self.is_needed = is_needed
        """Whether `on_reply` must be called even if the call is over."""
        self.number = 0
        """The request's number for `Backend.forget_request`; 0 while the request is being made."""
        self.reply: Answer | Refusal | None = None
        """The answer, if it came while the request was still being made."""

    def on_answer(self, reply: Answer | Refusal) -> None:
        """Pass the broker's answer to `on_reply`, unless the call is over."""
        call = self._call
        if not self.number:
            self.reply = reply
            return
        call.waiting.discard(self.number)
        if call.is_open or self.is_needed:
            call.dialogue.run_guarded(call, lambda: self._on_reply(reply))


class GrpcCall(Generic[R]):
    """A call: the client that makes it, its request, and its answer."""

    __slots__ = (
        "client",
        "credential",
        "dialogue",
        "due_ms",
        "metadata",
        "method",
        "now_ms",
        "number",
        "on_end",
        "on_message",
        "request",
        "signed_ms",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        dialogue: CallDialogue,
        number: int,
        method: ServiceMethod,
        metadata: dict[str, str],
        *,
        due_ms: int,
        now_ms: int,
    ) -> None:
        self.dialogue = dialogue
        self.number = number
        self.method = method
        self.metadata = metadata
        self.due_ms = due_ms
        self.now_ms = self.signed_ms = now_ms
        """When the call's latest message arrived. The signature is checked by the time of the first
        one."""
        self.client: FrontClient
        self.credential: CallCredential | None = None
        self.request: R
        self.waiting: set[int] = set()
        """The unanswered requests that the call has made to the broker."""
        self.on_message: Callable[[Message, int], None] | None = None
        """Callback of a stream, for each further message of the client and its time."""
        self.on_end: Callable[[], None] | None = None
        """Callback for the end of the stream."""

    # -- to the broker ---------------------------------------------------------------------------

    def make_request(
        self,
        code: int,
        ext: dict[str, str],
        on_reply: OnReply,
        body: bytes = b"",
        *,
        is_needed: bool = False,
    ) -> None:
        """Make a request in the client's name. If the call is over when the answer comes,
        `on_reply` is called only with `is_needed`: when another request must follow."""
        wait = _OpenRequest(self, on_reply, is_needed=is_needed)
        backend = self.dialogue.backend
        wish = self._to_request(code, ext, body)
        number = backend.make_request(self.client.guest, wish, wait.on_answer, self.now_ms)
        if wait.reply is None:
            wait.number = number
            if not is_needed:
                self.waiting.add(number)
        elif self.is_open or is_needed:  # answered at once; the caller is guarded already
            on_reply(wait.reply)

    def require_permission(self, code: int, ext: dict[str, str]) -> None:
        """Raise a Fault if the broker would refuse such a request. Call it before any work is done,
        and before the answer reveals stored data."""
        backend = self.dialogue.backend
        if backend.requires_authentication:
            refusal = backend.refusal(
                self.client.guest, self._to_request(code, ext, b""), self.now_ms
            )
            if refusal is not None:
                raise reply_fault(refusal)

    def make_one_way_request(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        """Make a request without waiting for its answer."""
        backend = self.dialogue.backend
        backend.make_request(
            self.client.guest, self._to_request(code, ext, body), None, self.now_ms
        )

    def _to_request(self, code: int, ext: dict[str, str], body: bytes) -> RequestByValue:
        found = self.credential
        if found is None:
            return RequestByValue(code, ext, body)
        ext[ACCESS_KEY], ext[SIGNATURE] = found.key, found.signature
        return RequestByValue(code, ext, body, found.content, self.signed_ms)

    # -- to the client ---------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the client still waits for the answer."""
        return self.dialogue.calls.is_open(self.number)

    @property
    def time_left_ms(self) -> int | None:
        """Return the time left until the call's deadline; None if it has none."""
        return None if self.due_ms == NO_DEADLINE else max(0, self.due_ms - self.now_ms)

    def send_answer(self, message: Message) -> None:
        """Send the only answer of a call."""
        self.send_answer_bytes(message.SerializeToString())

    def send_answer_bytes(self, data: bytes) -> None:
        """Send the only answer of a call, already encoded."""
        self.dialogue.calls.send_answer(self.number, data)
        self.dialogue.remove_call(self)

    def send_part(self, message: Message) -> None:
        """Send one of several answers of a call."""
        # Nothing waits for space: what a client leaves unread is bounded, and too much of it ends
        # the call (http2/outgoing_streams).
        self.dialogue.calls.send_message(self.number, message.SerializeToString())
        self.dialogue.schedule_flush()

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the answers of a call, with a gRPC status."""
        self.dialogue.calls.end_call(self.number, status, text)
        self.dialogue.remove_call(self)

    def refuse_for_error(self, error: Exception) -> None:
        """Refuse the call because of an error."""
        if isinstance(error, CallFault):
            fault = error
        elif isinstance(error, UsageError):
            fault = CallFault(v2.BAD_REQUEST, str(error))
        else:
            _log.error("%s failed", self.method.request.DESCRIPTOR.name, exc_info=error)
            fault = CallFault(v2.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        self.method.refuse(self, fault)
