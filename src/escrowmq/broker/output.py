"""What leaves the core at the end of an input."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.effects import Effect, Send


class Output:
    """Frames by peer, each peer's to be written at once, and whatever else is to be done."""

    def __init__(self) -> None:
        self.frames: dict[int, list[bytes]] = {}
        self._effects: list[Effect] = []
        self._say: Callable[[int, list[bytes]], None] | None = None

    def leave_by(self, say: Callable[[int, list[bytes]], None]) -> None:
        """By this a peer is told at once what need not wait for the end of the input."""
        self._say = say

    def say_at_once(self, peer: int, chunks: list[bytes]) -> None:
        """Bytes for a peer, which leave now, unless something waits that was said before."""
        if self._say is not None and not self.frames and not self._effects:
            self._say(peer, chunks)
        else:
            self.send(peer, *chunks)

    def send(self, peer: int, *chunks: bytes) -> None:
        """Bytes for a peer."""
        frames = self.frames.get(peer)
        if frames is None:
            self.frames[peer] = list(chunks)
        else:
            frames.extend(chunks)

    def add(self, effect: Effect) -> None:
        """Something to be done besides."""
        self._effects.append(effect)

    def lost(self, peer: int) -> None:
        """A peer is gone: nothing can be said to it."""
        self.frames.pop(peer, None)

    def take(self) -> list[Effect]:
        """Hand all of it over."""
        effects = self._effects
        if self.frames:
            # In front of a Close of the same input: who broke the protocol gets the answers to what
            # he asked before.
            effects = [*map(Send, self.frames.keys(), self.frames.values()), *effects]
            self.frames = {}
        if effects:
            self._effects = []
        return effects
