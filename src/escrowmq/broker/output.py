"""The effects of an input, which leave the core at its end."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.effects import Effect, Send


class Output:
    """Frames by peer, each peer's to be written together, and other effects."""

    def __init__(self) -> None:
        self.frames: dict[int, list[bytes]] = {}
        self._effects: list[Effect] = []
        self._say: Callable[[int, list[bytes]], None] | None = None

    def set_writer(self, write: Callable[[int, list[bytes]], None]) -> None:
        """Use this function to write bytes that need not wait for the end of the input."""
        self._say = write

    def write_now(self, peer: int, chunks: list[bytes]) -> None:
        """Write bytes to a peer now, unless earlier ones still wait."""
        if self._say is not None and not self.frames and not self._effects:
            self._say(peer, chunks)
        else:
            self.send(peer, *chunks)

    def send(self, peer: int, *chunks: bytes) -> None:
        """Add bytes for a peer."""
        frames = self.frames.get(peer)
        if frames is None:
            self.frames[peer] = list(chunks)
        else:
            frames.extend(chunks)

    def add(self, effect: Effect) -> None:
        """Add another effect."""
        self._effects.append(effect)

    def lost(self, peer: int) -> None:
        """A peer has disconnected: drop its bytes."""
        self.frames.pop(peer, None)

    def take(self) -> list[Effect]:
        """Return, and forget, all effects."""
        effects = self._effects
        if self.frames:
            # Before a Close of the same input: a peer that broke the protocol still gets the
            # answers to its earlier requests.
            effects = [*map(Send, self.frames.keys(), self.frames.values()), *effects]
            self.frames = {}
        if effects:
            self._effects = []
        return effects
