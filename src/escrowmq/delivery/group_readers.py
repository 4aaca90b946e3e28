"""Finds the members of a group, whether they pull or pop."""

from __future__ import annotations

from escrowmq.codec.client_bodies import SubscriptionBody
from escrowmq.delivery.clients import Clients, ConsumerGroup
from escrowmq.delivery.recent_pop_clients import RecentPopClients


class GroupReaders:
    """Finds members of groups, from heartbeats and from pops."""

    def __init__(self, clients: Clients, poppers: RecentPopClients) -> None:
        self._clients = clients
        self._poppers = poppers

    def live_members(self, group: str) -> ConsumerGroup | None:
        """Return the live members of a group: those with heartbeats, otherwise those that pop."""
        return self._clients.consumers.get(group) or self._poppers.find(group)

    def subscription(self, group: str, topic: str) -> SubscriptionBody | None:
        """Return a live group's subscription to a topic; None if there is none."""
        for known in (self._clients.consumers.get(group), self._poppers.find(group)):
            if known is not None and topic in known.subscriptions:
                return known.subscriptions[topic]
        return None
