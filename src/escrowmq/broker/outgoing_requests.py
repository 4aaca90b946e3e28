"""Requests of the broker to others, and the answers that it waits for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.command import Command

CLIENT_MS: Final = 10_000
"""A client that is asked for somebody else has so long to answer."""

_NEVER_MS: Final = (1 << 62) - 1

OnAnswer = Callable[[Command | None, int], None]
"""Gets the reply, or None when none came in time or the peer is gone; and the time."""


class _Call(msgspec.Struct):
    peer: int
    on_answer: OnAnswer


class PeerCalls:
    """Calls under way, by opaque."""

    def __init__(self) -> None:
        self._opaque = 0
        self._calls: dict[int, _Call] = {}
        self._deadlines: list[tuple[int, int]] = []

    def next_opaque(self) -> int:
        """A request id that is not in use."""
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return self._opaque

    def expect(self, opaque: int, peer: int, on_answer: OnAnswer, deadline_ms: int) -> None:
        """Hear the answer to a request that was sent."""
        self._calls[opaque] = _Call(peer, on_answer)
        heapq.heappush(self._deadlines, (deadline_ms, opaque))

    def answered(self, peer: int, reply: Command, now_ms: int) -> None:
        """A reply came; one that nobody waits for is dropped."""
        call = self._calls.get(reply.opaque)
        # Numbers are counted up over all peers: anybody could guess one of another's.
        if call is not None and call.peer == peer:
            del self._calls[reply.opaque]
            call.on_answer(reply, now_ms)

    def lost(self, peer: int, now_ms: int) -> None:
        """A peer will not answer any more."""
        for opaque in [opaque for opaque, call in self._calls.items() if call.peer == peer]:
            self._calls.pop(opaque).on_answer(None, now_ms)

    def wake(self, now_ms: int) -> None:
        """Give up on the calls whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, opaque = heapq.heappop(self._deadlines)
            call = self._calls.pop(opaque, None)
            if call is not None:
                call.on_answer(None, now_ms)

    def wake_at_ms(self) -> int:
        """When the next call's time is over."""
        return self._deadlines[0][0] if self._deadlines else _NEVER_MS
