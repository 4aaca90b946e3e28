"""Remembers brokers that left recently, so that clients can tell that a list of brokers is
incomplete."""

from __future__ import annotations

from typing import Final

from escrowmq.codec.routes import DepartedBroker

KEPT_MS: Final = 3_600_000
"""A broker is remembered for this many ms after it left, even if it was removed for good."""

GONE_MAX: Final = 1_000
"""Limit of the remembered brokers; beyond it, the one that left first is forgotten."""


class GoneBrokers:
    """Brokers that left, by cluster, name and id, in the order in which they left."""

    def __init__(self) -> None:
        self._gone: dict[tuple[str, str, int], DepartedBroker] = {}

    def __len__(self) -> int:
        return len(self._gone)

    def note_departure(self, broker: DepartedBroker) -> None:
        """Remember a broker that is no longer registered."""
        key = (broker.cluster, broker.name, broker.id)
        self._gone.pop(key, None)
        while len(self._gone) >= GONE_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[key] = broker

    def note_return(self, cluster: str, name: str, broker_id: int) -> None:
        """Forget a broker that is back, or whose name and id now belong to another broker."""
        self._gone.pop((cluster, name, broker_id), None)

    def recent(self, now_ms: int) -> list[DepartedBroker]:
        """Return the brokers that left within the last hour, in order."""
        self.forget_old(now_ms)
        return list(self._gone.values())

    def forget_old(self, now_ms: int) -> None:
        """Forget the brokers that left longer than an hour ago."""
        for key, one in list(self._gone.items()):
            if one.since_ms + KEPT_MS < now_ms:
                del self._gone[key]
