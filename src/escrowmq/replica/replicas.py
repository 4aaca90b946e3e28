"""The slaves of a master: their connections, and how much of the log each one has."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.replica.sending import LogSender, MasterLog, Redeem, SendingLimits

CONNECTIONS_MAX: Final = 32
"""Limit of connections to the replication port. The memory of each is limited by
`sending.AHEAD_MAX`."""


class SlaveProgress(msgspec.Struct, frozen=True):
    """The progress of one slave."""

    address: str
    acknowledged: int
    sent_end: int
    behind_size: int
    is_in_sync: bool
    bytes_per_s: int


class _SlaveLink:
    def __init__(self, sender: LogSender, address: str, now_ms: int) -> None:
        self.sender = sender
        self.address = address
        self.since_ms = now_ms
        self.measured_end = 0
        self.measured_ms = now_ms
        self.bytes_per_s = 0


class Replicas:
    """All connections of slaves."""

    def __init__(self, log: MasterLog, terms: SendingLimits, *, gap_max: int) -> None:
        self._log = log
        self._terms = terms
        self._gap_max = gap_max
        self._by_peer: dict[int, _SlaveLink] = {}
        self.refused_count = 0

    def __len__(self) -> int:
        return len(self._by_peer)

    @property
    def peers(self) -> list[int]:
        """Return the connected slaves, by peer number."""
        return list(self._by_peer)

    def address(self, peer: int) -> str:
        """Return the address of a slave, for log lines."""
        connection = self._by_peer.get(peer)
        return f"peer {peer}" if connection is None else connection.address

    def add(self, peer: int, host: str, port: int, redeem: Redeem, now_ms: int) -> int | None:
        """Add a connection. If there are too many now, return the peer to disconnect: the oldest
        one without a report, otherwise the new one."""
        sender = LogSender(self._log, self._terms, redeem, host=host, now_ms=now_ms)
        self._by_peer[peer] = _SlaveLink(sender, f"{host}:{port}", now_ms)
        if len(self._by_peer) <= CONNECTIONS_MAX:
            return None
        self.refused_count += 1
        others = [(c.since_ms, p) for p, c in self._by_peer.items() if not c.sender.has_begun]
        silent = [p for _, p in sorted(others) if p != peer]
        doomed = silent[0] if silent else peer
        self.remove(doomed)
        return doomed

    def remove(self, peer: int) -> None:
        """Remove a closed connection."""
        self._by_peer.pop(peer, None)

    def receive(self, peer: int, data: bytes, now_ms: int) -> None:
        """Process bytes of a slave. After RemoteProtocolError the caller closes the connection."""
        connection = self._by_peer.get(peer)
        if connection is not None:
            connection.sender.receive(data, now_ms)

    def transfers(self, peer: int, now_ms: int) -> list[bytes]:
        """Return the transfers to write to a slave now. After RemoteProtocolError the caller closes
        the connection."""
        return self._by_peer[peer].sender.transfers(now_ms)

    def keep_alive(self, peer: int, now_ms: int) -> bytes:
        """Return the keep-alive to write to a slave now; empty if none is due. After
        RemoteProtocolError the caller closes the connection."""
        connection = self._by_peer[peer]
        sender = connection.sender
        passed_ms = now_ms - connection.measured_ms
        if passed_ms >= self._terms.heartbeat_ms:
            sent = sender.sent_end - connection.measured_end
            is_first = not connection.measured_end
            connection.bytes_per_s = 0 if is_first else sent * 1000 // passed_ms
            connection.measured_end, connection.measured_ms = sender.sent_end, now_ms
        return sender.keep_alive(now_ms)

    def wake_at_ms(self) -> int:
        """Return when the next keep-alive is due, or the next slave has been silent for too
        long."""
        return min((c.sender.wake_at_ms() for c in self._by_peer.values()), default=(1 << 62) - 1)

    def has_lag(self) -> bool:
        """Whether a part of the log still has to be sent to some slave."""
        end = self._log.end_offset
        return any(c.sender.sent_end < end for c in self._by_peer.values())

    def _slave_ends(self) -> list[int]:
        """Return up to which offset each slave has the log, the largest first. Several connections
        of one slave count once, and so do two slaves without names at one address."""
        ends: dict[str, int] = {}
        for connection in self._by_peer.values():
            sender = connection.sender
            if sender.acknowledged >= 0:
                known = ends.get(sender.identity, -1)
                ends[sender.identity] = max(known, sender.acknowledged)
        return sorted(ends.values(), reverse=True)

    def confirmed_offset(self, copies: int) -> int:
        """Return the offset up to which this many brokers have the log, the master included; -1 if
        there are fewer."""
        if copies <= 1:
            return self._log.end_offset
        ends = self._slave_ends()
        return ends[copies - 2] if len(ends) >= copies - 1 else -1

    @property
    def in_sync_count(self) -> int:
        """Return the number of slaves that lag by less than the allowed gap."""
        return sum(self._log.end_offset - end < self._gap_max for end in self._slave_ends())

    def slaves_progress(self) -> list[SlaveProgress]:
        """Return the progress of all slaves."""
        end = self._log.end_offset
        return [
            SlaveProgress(
                address=connection.address,
                acknowledged=max(connection.sender.acknowledged, 0),
                sent_end=connection.sender.sent_end,
                behind_size=end - max(connection.sender.acknowledged, 0),
                is_in_sync=end - connection.sender.acknowledged < self._gap_max
                and connection.sender.acknowledged >= 0,
                bytes_per_s=connection.bytes_per_s,
            )
            for connection in self._by_peer.values()
        ]
