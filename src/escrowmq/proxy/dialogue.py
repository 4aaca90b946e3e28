"""One connection of gRPC clients: takes bytes, serves the calls in them, and writes the answers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import READS_AT_ONCE_MAX
from escrowmq.codec.frame import PartialFrames
from escrowmq.http2.grpc_connection import (
    CallCancelled,
    CallEvent,
    CallMessage,
    CallStarted,
    ClientDone,
    GrpcConnection,
    WholeCall,
)
from escrowmq.http2.grpc_metadata import NO_DEADLINE, GrpcStatus
from escrowmq.http2.limits import Http2Limits
from escrowmq.proxy import call_metadata as meta
from escrowmq.proxy.backend import Backend, FrontConnection
from escrowmq.proxy.clients import ClientKey, FrontClient, FrontClients
from escrowmq.proxy.grpc_call import GrpcCall, ServiceMethod
from escrowmq.proxy.open_calls import OpenCallsLimit
from escrowmq.proxy.result_codes import CallFault

_log = logging.getLogger(__name__)

_LOOK_EVERY: Final = 8
"""After this many units of work, the turn's limits are checked."""

_WORK_AT_ONCE_MAX: Final = 600
"""The units of work, of some 20 us each, after which a connection's turn ends. They suffice for
some two hundred calls, or fewer that cost more (`add_cost`)."""


class DialogueFront(Protocol):
    """What a connection needs of its front."""

    backend: Backend
    clients: FrontClients
    methods: dict[str, ServiceMethod]
    unary_paths: frozenset[str]
    room: PartialFrames
    strangers_room: PartialFrames
    strangers_calls: OpenCallsLimit

    def limits_of(self, peer: FrontConnection) -> Http2Limits:
        """Return the HTTP/2 limits of a connection."""

    def remove_connection(self, peer: int) -> None:
        """Remove a connection that is lost."""

    def schedule_wake(self, at_ms: int) -> None:
        """Schedule a wake-up for a call's deadline."""


class GrpcDialogue:
    """One gRPC connection (broker.dialogue.Dialogue)."""

    def __init__(self, front: DialogueFront, peer: FrontConnection) -> None:
        self.front = front
        self.backend = front.backend
        self.peer = peer
        self.calls = GrpcConnection(front.limits_of(peer), unary_paths=front.unary_paths)
        self._is_stranger = peer.is_stranger
        self._open: dict[int, GrpcCall[Any]] = {}
        self._events: deque[CallEvent] = deque()
        self._clients: dict[tuple[str, str], FrontClient] = {}
        self._last_metadata: dict[str, str] = {}
        """The header fields of the last call. Consecutive calls with equal fields share this
        object; they come from one client."""
        self._last_client: FrontClient | None = None
        self._port = int(peer.address.rpartition(":")[2] or 0)
        self._is_busy = False
        self._is_given_up = False
        self._kept_size = self._calls_size = 0
        self._work = 0
        """Units of work in this turn beyond those that each event counts."""

    # -- in --------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: int) -> None:
        """Serve the calls in these bytes; those beyond one turn are kept for the next."""
        if self._is_given_up:
            return
        if data or (self.calls.has_more_events and not self._events):
            self._events.extend(self.calls.receive(data, now_ms))
        self._is_busy = True
        try:
            self._serve_turn(now_ms)
        finally:
            self._is_busy = False
            self.flush()
        if self.calls.is_over:
            self._cancel_all()
            self.backend.close(self.peer.id, self.calls.end_reason)
        elif self._events:
            self.backend.pause_reading(self.peer.id)
        self.front.schedule_wake(self.calls.wake_at_ms)

    def _serve_turn(self, now_ms: int) -> None:
        self.backend.begin_turn()
        try:
            self._serve_until_limit(now_ms)
        finally:
            self.backend.end_turn(now_ms)

    def _serve_until_limit(self, now_ms: int) -> None:
        events = self._events
        reads_count = nth = self._work = 0
        while events:
            event = events.popleft()
            reads_count += self._handle_event(event, now_ms)
            nth += 3 if type(event) is WholeCall else 1
            if reads_count >= READS_AT_ONCE_MAX or nth + self._work >= _WORK_AT_ONCE_MAX:
                break
            if nth % _LOOK_EVERY == 0 and self.backend.has_used_up_turn():
                break

    def add_cost(self, units: int) -> None:
        """Count work of a call beyond the usual, in units of some 20 us."""
        self._work += units

    def _handle_event(self, event: CallEvent, now_ms: int) -> bool:
        """Handle an event; return whether it was a call that receives messages."""
        if type(event) is WholeCall:
            return self._serve_whole_call(event, now_ms)
        if type(event) is CallStarted:
            self._make_call(event, now_ms)
        elif type(event) is CallMessage:
            call = self._open.get(event.call)
            return call is not None and self._handle_message(call, event.data, now_ms)
        elif type(event) is ClientDone:
            self._end_client_stream(event)
        elif type(event) is CallCancelled:
            self._cancel_call(event.call)
        return False

    def _serve_whole_call(self, event: WholeCall, now_ms: int) -> bool:
        call = self._make_call(event, now_ms)
        if call is None:
            return False
        is_read = self._handle_message(call, event.data, now_ms)
        if call.method.is_stream:
            self._end_client_stream(event)
        return is_read

    def _make_call(self, event: CallStarted | WholeCall, now_ms: int) -> GrpcCall[Any] | None:
        if not self.calls.is_open(event.call):
            return None
        method = self.front.methods.get(event.path)
        if method is None:
            text = f"Method {event.path.lstrip('/')} is unimplemented"
            self.calls.end_call(event.call, GrpcStatus.UNIMPLEMENTED, text)
            return None
        call: GrpcCall[Any] = GrpcCall(
            self, event.call, method, event.metadata, due_ms=event.due_ms, now_ms=now_ms
        )
        self._open[event.call] = call
        return call

    def _handle_message(self, call: GrpcCall[Any], data: bytes, now_ms: int) -> bool:
        """Handle a message of a call; return whether the call receives messages."""
        method = call.method
        try:
            request = method.request.FromString(data)
        except DecodeError as error:
            call.finish(GrpcStatus.INTERNAL, f"{method.request.DESCRIPTOR.name}: {error}")
            return False
        call.now_ms = now_ms
        if call.on_message is not None:
            hear = call.on_message
            self.run_guarded(call, lambda: hear(request, now_ms))
            return False
        call.request, call.signed_ms = request, now_ms
        try:
            self._serve_call(call)
        except Exception as error:  # noqa: BLE001 - one call, as in `run_guarded`
            self._refuse_call(call, error)
        return method.is_read

    def _serve_call(self, call: GrpcCall[Any]) -> None:
        if call.method.is_open_to_all:
            call.method.serve(call)
            return
        call.client, call.credential = self._find_client(call.metadata, call.now_ms)
        if not self._is_stranger:
            call.method.serve(call)
            return
        # Count for this call, not for its client: a stranger may name a client whose account others
        # have proved.
        guest = call.client.guest
        passed_count = self.backend.proved_requests_count(guest)
        try:
            call.method.serve(call)
        finally:
            if self.backend.proved_requests_count(guest) > passed_count:
                self._mark_authenticated()

    def _mark_authenticated(self) -> None:
        """Stop treating the connection as a stranger's, because a call on it was authenticated."""
        self.front.strangers_room.release_space(self)
        self.front.strangers_calls.remove_connection(self)
        self._kept_size = 0
        self._is_stranger = self.peer.is_stranger = False
        self.calls.set_limits(self.front.limits_of(self.peer))

    def _end_client_stream(self, event: ClientDone | WholeCall) -> None:
        call = self._open.get(event.call)
        if call is None:
            return
        if call.method.is_stream and call.on_end is not None:
            call.finish()
        elif not hasattr(call, "request"):
            call.finish(GrpcStatus.INTERNAL, "the call ended without a message")

    # -- who -------------------------------------------------------------------------------------

    def _find_client(
        self, metadata: dict[str, str], now_ms: int
    ) -> tuple[FrontClient, meta.CallCredential | None]:
        is_judged = self.backend.requires_authentication
        if metadata is self._last_metadata and not is_judged:
            client = self._last_client
            if client is not None:
                client.seen_ms = now_ms
                return client, None
        name = meta.read_client_id(metadata)
        credential = meta.read_credential(metadata) if is_judged else None
        place = (name, credential.key if credential is not None else "")
        client = self._clients.get(place)
        if client is None:
            peer = self.peer
            client = self._clients[place] = self.front.clients.find_or_add(
                ClientKey(*place, peer.host, peer.identity),
                language=meta.read_language(metadata),
                connection=self,
                port=self._port,
                known=len(self._clients),
                is_stranger=self._is_stranger,
            )
        client.seen_ms = now_ms
        self._last_metadata, self._last_client = metadata, client
        return client, credential

    def forget_client(self, client: FrontClient) -> None:
        """Forget a client that has left; a later client of that name is a new one."""
        self._clients.pop((client.key.id, client.key.account), None)
        if self._last_client is client:
            self._last_client = None

    # -- out -------------------------------------------------------------------------------------

    def run_guarded(self, call: GrpcCall[Any], serve: Callable[[], None]) -> None:
        """Run a part of a call. An error in it ends only this call."""
        try:
            serve()
        except Exception as error:  # noqa: BLE001 - one call; it is refused, the others go on
            self._refuse_call(call, error)
        self.schedule_flush()

    def _refuse_call(self, call: GrpcCall[Any], error: Exception) -> None:
        if self.calls.is_open(call.number):
            call.refuse_for_error(error)
        elif not isinstance(error, CallFault):
            _log.error("a call of %s failed", self.peer.address, exc_info=error)

    def remove_call(self, call: GrpcCall[Any]) -> None:
        """Remove a call that was answered."""
        self._end_call(call)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """Schedule a flush: immediately, or at the end of the current input."""
        if not self._is_busy and not self._is_given_up:
            self.flush()

    def flush(self) -> None:
        """Pass everything that is ready to be written on to the shell."""
        chunks = self.calls.take_bytes()
        if chunks:
            self.backend.send(self.peer.id, *chunks)
        if self.calls.has_more_events and not self._is_given_up:
            self.backend.pause_reading(self.peer.id)
        size = self.calls.buffered_size
        if size != self._kept_size:
            self._kept_size = size
            room = self.front.strangers_room if self._is_stranger else self.front.room
            if size:
                room.set_size(self, size)
            else:
                room.release_space(self)
        if self._is_stranger and not self._is_given_up:
            size = self.calls.calls_size
            if size != self._calls_size:
                self._calls_size = size
                self.front.strangers_calls.set_size(self, size)

    def incomplete_items(self) -> list[tuple[int, int]]:
        """Return a pair for each incomplete frame or message, which changes once it is complete.
        For strangers, calls without a message count too."""
        return self.calls.incomplete_items(with_unasked=self._is_stranger)

    def drop_input(self, reason: str) -> None:
        """Close the connection: it uses too much memory, or something on it has been incomplete for
        too long."""
        if not self._is_given_up:
            self._is_given_up = True
            self.calls.end_all()
            self._cancel_all()
            self._release_memory()
            self.backend.close(self.peer.id, reason)

    def _release_memory(self) -> None:
        self.front.room.release_space(self)
        self.front.strangers_room.release_space(self)
        self.front.strangers_calls.remove_connection(self)

    # -- ends ------------------------------------------------------------------------------------

    def _cancel_call(self, number: int) -> None:
        call = self._open.get(number)
        if call is not None:
            self._end_call(call)

    def _end_call(self, call: GrpcCall[Any]) -> None:
        if self._open.pop(call.number, None) is None:
            return
        for number in call.waiting:
            self.backend.forget_request(call.client.guest, number)
        call.waiting.clear()
        if call.on_end is not None:
            call.on_end()

    def _cancel_all(self) -> None:
        for call in list(self._open.values()):
            self._end_call(call)
        self._events.clear()

    def wake(self, now_ms: int) -> None:
        """End the calls whose deadline has passed."""
        for event in self.calls.wake(now_ms):
            self._handle_event(event, now_ms)
        self.flush()

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the deadlines of all calls by a forward jump of the clock."""
        self.calls.clock_leapt(by_ms)
        for call in self._open.values():
            if call.due_ms != NO_DEADLINE:
                call.due_ms += by_ms

    def disconnected(self, now_ms: int) -> None:
        """End all calls, because the connection is lost."""
        self._is_given_up = True
        self.calls.end_all()
        self._cancel_all()
        self._release_memory()
        for client in self._clients.values():
            self.front.clients.remove_connection(client, self, now_ms)
        self.front.remove_connection(self.peer.id)

    # -- the rest of a dialogue ------------------------------------------------------------------

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Never called: requests to the broker come from clients, not from connections."""
        raise AssertionError("an answer to a connection")

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Never called: the broker sends requests to clients, not to connections."""
        raise AssertionError("a question to a connection")

    def lift_stranger_limits(self) -> None:
        """Stop treating the connection as a stranger's, because one of its clients has proved its
        account."""
