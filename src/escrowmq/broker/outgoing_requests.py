"""Requests of the broker to others, and the answers that it waits for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.command import Command

CLIENT_MS: Final = 10_000
"""The time that a client has to answer a request that the broker relays."""

_NEVER_MS: Final = (1 << 62) - 1

OnAnswer = Callable[[Command | None, int], None]
"""Called with the reply, or None when none arrived in time or the peer has disconnected; and the
time."""


class _Call(msgspec.Struct):
    peer: int
    on_answer: OnAnswer


class PeerCalls:
    """Outstanding calls, by opaque."""

    def __init__(self) -> None:
        self._opaque = 0
        self._calls: dict[int, _Call] = {}
        self._deadlines: list[tuple[int, int]] = []

    def next_opaque(self) -> int:
        """A request id that is not in use."""
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return self._opaque

    def expect(self, opaque: int, peer: int, on_answer: OnAnswer, deadline_ms: int) -> None:
        """Wait for the answer to a request that was sent."""
        self._calls[opaque] = _Call(peer, on_answer)
        heapq.heappush(self._deadlines, (deadline_ms, opaque))

    def answered(self, peer: int, reply: Command, now_ms: int) -> None:
        """A reply has arrived; an unexpected one is dropped."""
        call = self._calls.get(reply.opaque)
        # Numbers are counted across all peers, so a peer could guess another's.
        if call is not None and call.peer == peer:
            del self._calls[reply.opaque]
            call.on_answer(reply, now_ms)

    def lost(self, peer: int, now_ms: int) -> None:
        """A peer has disconnected and will not answer."""
        for opaque in [opaque for opaque, call in self._calls.items() if call.peer == peer]:
            self._calls.pop(opaque).on_answer(None, now_ms)

    def wake(self, now_ms: int) -> None:
        """Give up on the calls that have timed out."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, opaque = heapq.heappop(self._deadlines)
            call = self._calls.pop(opaque, None)
            if call is not None:
                call.on_answer(None, now_ms)

    def wake_at_ms(self) -> int:
        """When the next call times out."""
        return self._deadlines[0][0] if self._deadlines else _NEVER_MS
