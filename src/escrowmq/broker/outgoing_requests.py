"""Requests that the broker sends to others and whose answers it waits for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.command import Command

CLIENT_MS: Final = 10_000
"""The timeout of a request that the broker relays to a client."""

_NEVER_MS: Final = (1 << 62) - 1

OnAnswer = Callable[[Command | None, int], None]
"""Called with the reply and the time; with None if the request timed out or the peer has
disconnected."""


class _OpenRequest(msgspec.Struct):
    peer: int
    on_answer: OnAnswer


class PeerCalls:
    """Requests that wait for their answers, by opaque."""

    def __init__(self) -> None:
        self._opaque = 0
        self._calls: dict[int, _OpenRequest] = {}
        self._deadlines: list[tuple[int, int]] = []

    def next_opaque(self) -> int:
        """Return the next request id."""
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return self._opaque

    def register_request(
        self, opaque: int, peer: int, on_answer: OnAnswer, deadline_ms: int
    ) -> None:
        """Register a sent request, so that `on_answer` is called with its reply or failure."""
        self._calls[opaque] = _OpenRequest(peer, on_answer)
        heapq.heappush(self._deadlines, (deadline_ms, opaque))

    def pass_reply(self, peer: int, reply: Command, now_ms: int) -> None:
        """Pass a reply to its request's callback; drop a reply that nothing waits for."""
        call = self._calls.get(reply.opaque)
        # Numbers are counted across all peers, so a peer could guess another's.
        if call is not None and call.peer == peer:
            del self._calls[reply.opaque]
            call.on_answer(reply, now_ms)

    def fail_requests(self, peer: int, now_ms: int) -> None:
        """Fail the requests to a peer that has disconnected."""
        for opaque in [opaque for opaque, call in self._calls.items() if call.peer == peer]:
            self._calls.pop(opaque).on_answer(None, now_ms)

    def wake(self, now_ms: int) -> None:
        """Fail the requests that have timed out."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, opaque = heapq.heappop(self._deadlines)
            call = self._calls.pop(opaque, None)
            if call is not None:
                call.on_answer(None, now_ms)

    def wake_at_ms(self) -> int:
        """The time at which the next request times out."""
        return self._deadlines[0][0] if self._deadlines else _NEVER_MS
