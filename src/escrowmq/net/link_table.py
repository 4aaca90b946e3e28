"""The connections of one core, by their numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from escrowmq.base.ports import Clock
from escrowmq.net.link import Link
from escrowmq.net.read_buffers import Reads
from escrowmq.net.unsent_bytes import Unsent

_log = logging.getLogger(__name__)


class Links:
    """Writes to them, closes them, and ends those that are idle."""

    def __init__(
        self, clock: Clock, unsent: Unsent, *, name: str, idle_ms: int, flush_s: float
    ) -> None:
        self._clock = clock
        self._unsent = unsent
        self._name = name
        self._idle_ms = idle_ms
        self._flush_s = flush_s
        self.by_peer: dict[int, Link] = {}
        """Whoever is not there is gone: what was for him is dropped."""
        self.reads = Reads()

    def values(self) -> list[Link]:
        """All of them."""
        return list(self.by_peer.values())

    def add(self, link: Link, now_ms: int) -> None:
        """One more."""
        link.last_active_ms = now_ms
        self.by_peer[link.peer] = link

    def remove(self, link: Link) -> bool:
        """One is gone; whether it was there."""
        self._unsent.forget(link)
        self.reads.catch_up(link.peer)
        return self.by_peer.pop(link.peer, None) is not None

    def note_cut(self, peer: int) -> None:
        """One had too much to read, and is gone."""
        _log.warning("%s: peer %d does not read; cut", self._name, peer)

    def close(self, peer: int, reason: str) -> None:
        """Close one after what was written to it."""
        link = self.by_peer.get(peer)
        if link is not None:
            _log.info("%s: peer %d closed: %s", self._name, peer, reason)
            link.close(flush_s=self._flush_s)

    def hold(self, peer: int) -> None:
        """Read nothing from one until it has read its answers."""
        link = self.by_peer.get(peer)
        if link is not None:
            link.hold()

    def stop_reading(self) -> None:
        """Take nothing more in from anybody."""
        for link in self.by_peer.values():
            link.stop_reading()

    def close_all(self) -> None:
        """Let written bytes leave, and close."""
        for link in self.values():
            link.close(flush_s=self._flush_s)

    def idle(self) -> Iterator[Link]:
        """Those from which nothing came, and which took nothing, for a long time."""
        now_ms = self._clock.now_ms()
        for link in self.values():
            if link.has_written:  # written to since the last look: not idle
                link.has_written = False
                link.last_active_ms = now_ms
            elif link.last_active_ms < now_ms - self._idle_ms:
                _log.debug("%s: peer %d was idle; closed", self._name, link.peer)
                yield link
