"""Collects the effects of an input, to leave the core at its end."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.effects import Effect, Send


class Output:
    """The effects of the current input: bytes for each peer, which are written together, and other
    effects."""

    def __init__(self) -> None:
        self.frames: dict[int, list[bytes]] = {}
        self._effects: list[Effect] = []
        self._say: Callable[[int, list[bytes]], None] | None = None

    def set_writer(self, write: Callable[[int, list[bytes]], None]) -> None:
        """Set the function that writes bytes before the end of the input."""
        self._say = write

    def write_now(self, peer: int, chunks: list[bytes]) -> None:
        """Write bytes to a peer now, or at the end of the input if earlier effects still wait."""
        if self._say is not None and not self.frames and not self._effects:
            self._say(peer, chunks)
        else:
            self.send(peer, *chunks)

    def send(self, peer: int, *chunks: bytes) -> None:
        """Add bytes to be sent to a peer."""
        frames = self.frames.get(peer)
        if frames is None:
            self.frames[peer] = list(chunks)
        else:
            frames.extend(chunks)

    def add_effect(self, effect: Effect) -> None:
        """Add an effect other than bytes."""
        self._effects.append(effect)

    def drop_peer(self, peer: int) -> None:
        """Drop the bytes for a peer that has disconnected."""
        self.frames.pop(peer, None)

    def take_effects(self) -> list[Effect]:
        """Return all effects, and clear them."""
        effects = self._effects
        if self.frames:
            # Before a Close of the same input: a peer that broke the protocol still gets the
            # answers to its earlier requests.
            effects = [*map(Send, self.frames.keys(), self.frames.values()), *effects]
            self.frames = {}
        if effects:
            self._effects = []
        return effects
