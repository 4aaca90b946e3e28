"""Which clients are connected, for which groups, and what they subscribe to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from escrowmq.codec.bodies import SubscriptionBody as Subscription

BROADCASTING: Final = "BROADCASTING"
CLUSTERING: Final = "CLUSTERING"


class Channel(msgspec.Struct):
    """One client on one connection."""

    peer: int
    client_id: str
    language: str
    version: int
    address: str
    seen_ms: int


class ConsumerGroup:
    """The live members of one consumer group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.channels: dict[int, Channel] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ""
        self.message_model = ""
        self.consume_from = ""

    def client_ids(self) -> list[str]:
        """Ids of the members."""
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def subscribe(self, subscriptions: list[Subscription]) -> bool:
        """Take over what a member subscribes to; whether the set of topics changed."""
        is_changed = False
        wanted = {subscription.topic for subscription in subscriptions}
        for subscription in subscriptions:
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                is_changed = True
            if known is None or subscription.sub_version >= known.sub_version:
                self.subscriptions[subscription.topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in wanted]:
            del self.subscriptions[topic]
            is_changed = True
        return is_changed


class Clients:
    """All live producers and consumers."""

    def __init__(self) -> None:
        self.producers: dict[str, dict[int, Channel]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._turn = 0

    # -- producers ---------------------------------------------------------------------------

    def produce(self, group: str, channel: Channel) -> bool:
        """A producer showed itself; whether it is new."""
        channels = self.producers.setdefault(group, {})
        is_new = channel.peer not in channels
        channels[channel.peer] = channel
        return is_new

    def stop_producing(self, group: str, peer: int) -> None:
        """A producer said good-bye."""
        channels = self.producers.get(group)
        if channels is not None:
            channels.pop(peer, None)
            if not channels:
                del self.producers[group]

    # -- consumers ---------------------------------------------------------------------------

    def consume(
        self, name: str, channel: Channel, subscriptions: list[Subscription]
    ) -> tuple[ConsumerGroup, bool]:
        """A consumer showed itself; its group, and whether members or topics changed."""
        group = self.consumers.get(name)
        if group is None:
            group = self.consumers[name] = ConsumerGroup(name)
        is_changed = channel.peer not in group.channels
        group.channels[channel.peer] = channel
        if subscriptions:
            is_changed = group.subscribe(subscriptions) or is_changed
        return group, is_changed

    def stop_consuming(self, name: str, peer: int) -> ConsumerGroup | None:
        """A consumer said good-bye; its group when it was a member."""
        group = self.consumers.get(name)
        if group is None or group.channels.pop(peer, None) is None:
            return None
        if not group.channels:
            del self.consumers[name]
        return group

    def find_consumer(self, name: str, client_id: str) -> Channel | None:
        """The member with this client id."""
        group = self.consumers.get(name)
        if group is None:
            return None
        return next((c for c in group.channels.values() if c.client_id == client_id), None)

    def find_client(self, client_id: str) -> Channel | None:
        """Any connection of this client."""
        for channels in self.producers.values():
            for channel in channels.values():
                if channel.client_id == client_id:
                    return channel
        for group in self.consumers.values():
            for channel in group.channels.values():
                if channel.client_id == client_id:
                    return channel
        return None

    def groups_on(self, topic: str) -> list[str]:
        """Groups with a live member that subscribes to a topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    # -- leaving -----------------------------------------------------------------------------

    def lost(self, peer: int) -> list[ConsumerGroup]:
        """A connection is gone; the consumer groups that lost a member."""
        for name in [name for name, channels in self.producers.items() if peer in channels]:
            self.stop_producing(name, peer)
        names = [name for name, group in self.consumers.items() if peer in group.channels]
        return [group for name in names if (group := self.stop_consuming(name, peer)) is not None]

    def silent_since(self, limit_ms: int) -> Iterator[int]:
        """Connections that sent no heartbeat since then."""
        seen: dict[int, int] = {}
        for channels in self.producers.values():
            for peer, channel in channels.items():
                seen[peer] = max(seen.get(peer, 0), channel.seen_ms)
        for group in self.consumers.values():
            for peer, channel in group.channels.items():
                seen[peer] = max(seen.get(peer, 0), channel.seen_ms)
        return (peer for peer, seen_ms in seen.items() if seen_ms < limit_ms)
