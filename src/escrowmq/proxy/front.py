"""The front for RocketMQ's gRPC protocol: all gRPC connections and clients of one broker."""

from __future__ import annotations

from escrowmq.base.fixed_limits import (
    GRPC_KEPT_SIZE_MAX,
    GRPC_MESSAGE_SIZE_MAX,
    GRPC_PARTIAL_SIZE_MAX,
    LONG_MAX,
    STRANGERS_CALLS_SIZE_MAX,
    STRANGERS_FRAME_SLACK,
    STRANGERS_HALF_FRAMES_SIZE_MAX,
)
from escrowmq.codec.frame import PartialFrames
from escrowmq.http2.limits import STRANGERS_STREAMS_MAX, Http2Limits
from escrowmq.proxy.backend import Backend, FrontConnection
from escrowmq.proxy.clients import FrontClients
from escrowmq.proxy.clock_leaps import ClockLeaps
from escrowmq.proxy.dialogue import GrpcDialogue
from escrowmq.proxy.grpc_call import ServiceMethod
from escrowmq.proxy.open_calls import OpenCallsLimit
from escrowmq.proxy.service import service_methods
from escrowmq.proxy.service_context import FrontOptions, ServiceContext
from escrowmq.proxy.stalled_connections import StallDetector

_GRID_MS = 250
"""Deadlines are rounded to a multiple of this many milliseconds. Otherwise, with ten thousand
connections, one would always be due."""


class GrpcFront:
    """All gRPC connections and clients of a broker (broker.front.Front)."""

    def __init__(self, backend: Backend, options: FrontOptions) -> None:
        self.backend = backend
        self.clients = FrontClients(backend)
        self._leaps = ClockLeaps()
        shared = ServiceContext(backend, options, self.clients, self._leaps)
        self.methods: dict[str, ServiceMethod] = service_methods(shared)
        self.unary_paths = frozenset(
            path for path, method in self.methods.items() if not method.is_stream
        )
        """The methods whose clients send exactly one message."""
        self._options = options
        self._dialogues: dict[int, GrpcDialogue] = {}
        self._calls_at_ms = LONG_MAX
        self._looked_ms = 0
        self._watch = StallDetector()
        self.room = PartialFrames(GRPC_KEPT_SIZE_MAX)
        self.strangers_room = PartialFrames(STRANGERS_HALF_FRAMES_SIZE_MAX)
        self.strangers_calls = OpenCallsLimit(STRANGERS_CALLS_SIZE_MAX)

    def create_dialogue(self, peer: FrontConnection) -> GrpcDialogue:
        """Add a new connection."""
        dialogue = self._dialogues[peer.id] = GrpcDialogue(self, peer)
        return dialogue

    def remove_connection(self, peer: int) -> None:
        """Remove a connection that is lost."""
        self._dialogues.pop(peer, None)

    def limits_of(self, peer: FrontConnection) -> Http2Limits:
        """Return the HTTP/2 limits of a connection; a stranger's may buffer only one message."""
        size = GRPC_MESSAGE_SIZE_MAX
        if peer.is_stranger:
            size = min(size, self._options.body_size_max + STRANGERS_FRAME_SLACK)
            return Http2Limits(
                message_size_max=size, partial_size_max=size, streams_max=STRANGERS_STREAMS_MAX
            )
        return Http2Limits(message_size_max=size, partial_size_max=GRPC_PARTIAL_SIZE_MAX)

    # -- time ------------------------------------------------------------------------------------

    def schedule_wake(self, at_ms: int) -> None:
        """Schedule a wake-up for a call's deadline."""
        self._calls_at_ms = min(self._calls_at_ms, at_ms)

    def wake(self, now_ms: int) -> None:
        """End calls whose deadline has passed, and remove clients that were silent for too long."""
        self.clients.wake(now_ms)
        for peer in self._watch.overdue_connections(self._dialogues.items(), now_ms):
            self._dialogues[peer].drop_input("something was begun and not ended")
        if now_ms < self._wake_calls_at_ms():
            return
        self._looked_ms = now_ms
        self._calls_at_ms = LONG_MAX
        for dialogue in list(self._dialogues.values()):
            if dialogue.calls.wake_at_ms <= now_ms:
                dialogue.wake(now_ms)
            self.schedule_wake(dialogue.calls.wake_at_ms)

    def wake_at_ms(self) -> int:
        """Return when to call `wake` next."""
        at_ms = min(self.clients.wake_at_ms(), self._watch.wake_at_ms())
        return min(at_ms, self._wake_calls_at_ms())

    def _wake_calls_at_ms(self) -> int:
        if self._calls_at_ms == LONG_MAX:
            return LONG_MAX
        return max(self._calls_at_ms, self._looked_ms + _GRID_MS)

    def clock_leapt(self, by_ms: int, now_ms: int) -> None:
        """Shift all deadlines and timers by a forward jump of the clock, so that nothing that
        clients were given expires early (broker.front.TimedFront)."""
        self._leaps.record_leap(by_ms, now_ms)
        self.clients.clock_leapt(by_ms)
        self._watch.clock_leapt(by_ms)
        for dialogue in self._dialogues.values():
            dialogue.clock_leapt(by_ms)

    def drain(self) -> None:
        """Make all clients reconnect, to another broker if possible, and accept no more calls."""
        for client in self.clients.registered_clients():
            if client.stream is not None:
                client.stream.order_reconnect()
        for dialogue in list(self._dialogues.values()):
            dialogue.calls.shut_down()
            dialogue.flush()
