"""Live brokers: when each was last heard from, and how long it may be silent."""

from __future__ import annotations

import msgspec

from escrowmq.base.fixed_limits import BROKER_SILENT_MS
from escrowmq.codec.routes import TableVersion

Address = tuple[str, str]
"""The key of a live broker: its cluster and its address."""


class RegisteringBroker(msgspec.Struct, kw_only=True, frozen=True):
    """A broker that is registering."""

    cluster: str
    address: str
    name: str
    broker_id: int
    ha_address: str | None = None
    zone: str | None = None
    timeout_ms: int | None = None
    has_acting_master: bool | None = None
    """Whether acting masters are enabled; None if the broker's release does not know them."""
    is_partial: bool = False
    """Whether it says that it has more topics than it registers now."""


class LiveBroker(msgspec.Struct):
    """What is known about a live broker."""

    name: str
    peer: int
    heard_ms: int
    timeout_ms: int
    version: TableVersion
    ha_address: str | None


class LiveBrokers:
    """Brokers that were heard from and have not timed out."""

    def __init__(self) -> None:
        self._by_address: dict[Address, LiveBroker] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def get(self, cluster: str | None, address: str) -> LiveBroker | None:
        """Return a broker's entry if it is alive; otherwise None."""
        return self._by_address.get((cluster or "", address))

    def version_of(self, cluster: str | None, address: str) -> TableVersion | None:
        """Return the table version of a broker's last registration."""
        live = self.get(cluster, address)
        return None if live is None else live.version

    def add(
        self, broker: RegisteringBroker, version: TableVersion, *, peer: int, now_ms: int
    ) -> None:
        """Add a broker that has registered."""
        timeout_ms = BROKER_SILENT_MS if broker.timeout_ms is None else broker.timeout_ms
        self._by_address[broker.cluster, broker.address] = LiveBroker(
            broker.name, peer, now_ms, timeout_ms, version, broker.ha_address
        )

    def remove(self, cluster: str | None, address: str) -> None:
        """Remove a broker that has unregistered or timed out."""
        self._by_address.pop((cluster or "", address), None)

    def note_heartbeat(self, cluster: str | None, address: str, now_ms: int) -> None:
        """Record a heartbeat. One of an unknown broker is ignored."""
        live = self.get(cluster, address)
        if live is not None:
            live.heard_ms = now_ms

    def timed_out(self, now_ms: int) -> list[tuple[Address, int]]:
        """Return the brokers that have timed out, each with its peer."""
        return [
            (address, live.peer)
            for address, live in self._by_address.items()
            if live.heard_ms + live.timeout_ms < now_ms
        ]

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all timers by a forward jump of the clock, so that no broker is removed because of
        it."""
        for live in self._by_address.values():
            live.heard_ms += by_ms

    def brokers_on_connection(self, peer: int) -> list[Address]:
        """Return the brokers that registered on one connection."""
        return [address for address, live in self._by_address.items() if live.peer == peer]
