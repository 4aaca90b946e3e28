"""The connections of one core, by number."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from escrowmq.base.ports import Clock
from escrowmq.net.link import PeerLink
from escrowmq.net.read_buffer import ReadBuffer
from escrowmq.net.unsent_bytes import UnsentBytes

_log = logging.getLogger(__name__)


class LinkTable:
    """The connections of one core, by number: writes to them, closes them, and finds idle ones."""

    def __init__(
        self, clock: Clock, unsent: UnsentBytes, *, name: str, idle_ms: int, flush_s: float
    ) -> None:
        self._clock = clock
        self._unsent = unsent
        self._name = name
        self._idle_ms = idle_ms
        self._flush_s = flush_s
        self.by_peer: dict[int, PeerLink] = {}
        """Connections by peer; writes to a peer that is not connected any more are dropped."""
        self.reads = ReadBuffer()

    def all_links(self) -> list[PeerLink]:
        """All connections."""
        return list(self.by_peer.values())

    def add(self, link: PeerLink, now_ms: int) -> None:
        """Add a connection."""
        link.last_active_ms = now_ms
        self.by_peer[link.peer] = link

    def remove(self, link: PeerLink) -> bool:
        """Remove a connection; return whether it was there."""
        self._unsent.forget_connection(link)
        self.reads.end_backlog(link.peer)
        return self.by_peer.pop(link.peer, None) is not None

    def log_cut(self, peer: int) -> None:
        """Log that a connection with too many unsent bytes was cut."""
        _log.warning("%s: peer %d does not read; cut", self._name, peer)

    def close(self, peer: int, reason: str) -> None:
        """Close a connection after its written bytes are sent."""
        link = self.by_peer.get(peer)
        if link is not None:
            _log.info("%s: peer %d closed: %s", self._name, peer, reason)
            link.close(flush_s=self._flush_s)

    def hold_input(self, peer: int) -> None:
        """Stop reading from a connection until its peer has read the answers."""
        link = self.by_peer.get(peer)
        if link is not None:
            link.hold_input()

    def stop_reading(self) -> None:
        """Stop reading from all connections."""
        for link in self.by_peer.values():
            link.stop_reading()

    def close_all(self) -> None:
        """Close all connections after their written bytes are sent."""
        for link in self.all_links():
            link.close(flush_s=self._flush_s)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the idle timers of all connections by a forward jump of the clock, so that none is
        closed because of it."""
        for link in self.by_peer.values():
            link.last_active_ms += by_ms

    def idle_links(self) -> Iterator[PeerLink]:
        """Return the connections that have neither sent nor read anything for a long time."""
        now_ms = self._clock.now_ms()
        for link in self.all_links():
            if link.has_written:  # written to since the last scan: not idle
                link.has_written = False
                link.last_active_ms = now_ms
            elif link.last_active_ms < now_ms - self._idle_ms:
                _log.debug("%s: peer %d was idle; closed", self._name, link.peer)
                yield link
