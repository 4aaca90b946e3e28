"""Refreshes routes periodically, and soon after a connection to a broker was lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final, Protocol

from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.core.routes import RouteBook
from escrowmq.client.heartbeats import Heartbeats
from escrowmq.client.pool import ConnectionPool
from escrowmq.errors import ProtocolError, ResponseError, RouteMissing, TransportError

_log = logging.getLogger(__name__)

_ROUTES_AT_ONCE: Final = 16
"""Limit of watched routes that are refreshed concurrently."""

_LOOK_AGAIN_MS: Final = 250
_LOOK_AGAIN_MAX_MS: Final = 5_000
_SUCCESSION_MS: Final = 15_000
"""For this long after a lost connection, another broker may become the master, and routes are
refreshed more often."""


class RouteOwner(Protocol):
    """A client whose routes are refreshed (client.instance)."""

    options: ClientOptions
    book: RouteBook
    pool: ConnectionPool
    heartbeats: Heartbeats
    wants_all_brokers: bool
    forgets_topics: bool
    watched: dict[str, int]

    def now(self) -> float:
        """Return the event loop's time."""
        ...

    async def refresh_route(self, topic: str) -> None:
        """Fetch a topic's route."""

    async def refresh_brokers(self) -> None:
        """Fetch the cluster's brokers."""


class RouteRefresher:
    """Refreshes the routes of one client instance."""

    def __init__(self, instance: RouteOwner) -> None:
        self._instance = instance
        self._event = asyncio.Event()
        self._lost: set[str] = set()
        """Addresses of brokers whose connection was lost, as long as routes still name them."""
        self._lost_until_s = 0.0

    def on_broker_lost(self, address: str) -> None:
        """Refresh routes soon, because a broker's connection was lost: it restarts, or another one
        becomes the master."""
        self._lost.add(address)
        self._lost_until_s = self._instance.now() + _SUCCESSION_MS / 1000
        self._event.set()

    async def refresh_periodically(self, is_known: bool) -> None:
        """Refresh routes periodically; soon after the name servers failed, or a broker was lost."""
        instance = self._instance
        interval_ms = instance.options.route_interval_ms
        pause_ms = 0 if is_known else _LOOK_AGAIN_MS
        looked_s = 0.0
        while True:
            self._event.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((pause_ms or interval_ms) / 1000):
                    await self._event.wait()
                    pause_ms = 0
            known = set(instance.book.all_addresses(masters_only=False))
            # Connections may be lost repeatedly, and there may be thousands of topics.
            await asyncio.sleep(looked_s + _LOOK_AGAIN_MS / 1000 - instance.now())
            looked_s = instance.now()
            is_known = await self.refresh_all()
            if is_known and not self._is_broker_missing():
                pause_ms = 0
            else:
                pause_ms = min(2 * pause_ms or _LOOK_AGAIN_MS, _LOOK_AGAIN_MAX_MS, interval_ms)
            # A broker whose connection was lost gets a heartbeat when it is redialled, at growing
            # intervals.
            is_other = known != set(instance.book.all_addresses(masters_only=False))
            if (is_other or not self._lost) and instance.heartbeats.has_unconnected_brokers():
                await instance.heartbeats.send_to_all()

    def _is_broker_missing(self) -> bool:
        """Whether routes name a broker whose connection was lost and is not restored."""
        instance = self._instance
        if instance.now() >= self._lost_until_s:
            self._lost.clear()
        named = set(instance.book.all_addresses(masters_only=True))
        self._lost = {at for at in self._lost & named if instance.pool.get_ready(at) is None}
        return bool(self._lost)

    async def refresh_all(self) -> bool:
        """Fetch every needed route; return whether all of them are known now."""
        instance = self._instance
        is_known = True
        try:
            if instance.wants_all_brokers:
                await instance.refresh_brokers()
                is_known = bool(instance.book.broker_names())
            if instance.forgets_topics:
                for topic in instance.book.topics():
                    if topic not in instance.watched:
                        instance.book.drop(topic)
            topics = [*dict.fromkeys([*instance.watched, *instance.book.topics()])]
            for at in range(0, len(topics), _ROUTES_AT_ONCE):
                some = topics[at : at + _ROUTES_AT_ONCE]
                found = await asyncio.gather(
                    *map(instance.refresh_route, some), return_exceptions=True
                )
                for topic, error in zip(some, found, strict=True):
                    if isinstance(error, RouteMissing):
                        is_known = is_known and topic not in instance.watched
                        _log.debug("%s", error)
                    elif error is not None:
                        raise error
        except (TransportError, ResponseError, ProtocolError) as error:
            _log.warning("routes could not be refreshed: %s", error)
            return False
        return is_known
