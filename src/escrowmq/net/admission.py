"""How many connections there may be, in all and of one address."""

from __future__ import annotations

from collections import Counter

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on connections; 0 is none."""

    connections_max: int = 0
    per_address_max: int = 0


class Admission:
    """Counts who is there. Only peers that came by themselves are counted."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._counts: Counter[str] = Counter()
        self.count = 0

    def admit(self, host: str) -> str:
        """Count one more of an address; why it may not stay, and then it is not counted."""
        limits = self._limits
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
        return ""

    def dismiss(self, host: str) -> None:
        """One of an address is gone."""
        assert self._counts[host] > 0, host
        self.count -= 1
        self._counts[host] -= 1
        if not self._counts[host]:
            del self._counts[host]
