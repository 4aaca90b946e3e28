"""Limits on connections, in total and per address."""

from __future__ import annotations

from collections import Counter

import msgspec

from escrowmq.net import descriptors


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on connections; 0 means no limit."""

    connections_max: int = 0
    per_address_max: int = 0


class TotalConnections:
    """The number of connections to all ports of this process together, limited by its file
    descriptors."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self.count = 0

    @property
    def connections_max(self) -> int:
        """The limit. It is computed at the first use, because the process raises its limit of open
        files after it has started."""
        if not self._most:
            self._most = descriptors.connections_max()
        return self._most


class ConnectionCounts:
    """Counts incoming connections, in total and by address. Connections that the broker opens do
    not count."""

    def __init__(self, limits: ConnectionLimits, total: TotalConnections) -> None:
        self._limits = limits
        self._total = total
        self._counts: Counter[str] = Counter()
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the total limit is reached."""
        limits, total = self._limits, self._total
        is_port_full = 0 < limits.connections_max <= self.count
        return is_port_full or total.count >= total.connections_max

    def count_connection(self, host: str) -> str:
        """Count a connection of an address, or return why it is refused."""
        limits, total = self._limits, self._total
        if total.count >= total.connections_max:
            return (
                f"{total.count} connections are open, and the limit of {descriptors.files_limit()} "
                "open files allows no more; close some or raise it (ulimit -n)"
            )
        if limits.connections_max and self.count >= limits.connections_max:
            return (
                f"{self.count} connections are open, escrowConnectionsMax="
                f"{limits.connections_max} allows no more; close some or raise it"
            )
        if limits.per_address_max and self._counts[host] >= limits.per_address_max:
            return (
                f"{self._counts[host]} connections of this address are open, "
                f"escrowConnectionsPerAddress={limits.per_address_max} allows no more; share "
                "connections or raise it"
            )
        self._counts[host] += 1
        self.count += 1
        total.count += 1
        return ""

    def subtract_connection(self, host: str) -> None:
        """Subtract a closed connection of an address."""
        assert self._counts[host] > 0, host
        self.count -= 1
        self._total.count -= 1
        assert self._total.count >= 0, self._total.count
        self._counts[host] -= 1
        assert self._counts[host] >= 0, host
        if not self._counts[host]:
            del self._counts[host]
