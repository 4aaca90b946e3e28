"""Members of groups that pop. They may send no heartbeats, but operators want to see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from escrowmq.base.fixed_limits import POPPED_SIZE_MAX, POPPED_TOPICS_MAX, POPPERS_MAX
from escrowmq.codec.client_bodies import SubscriptionBody as Subscription
from escrowmq.delivery.clients import CLUSTERING, Channel, ConsumerGroup

POP: Final = "CONSUME_POP"

TOPIC_IDLE_MS: Final = 600_000
"""The time without a pop after which a group's topic is forgotten (RocketMQ's
subscriptionExpiredTimeout)."""

_FRESH_MS: Final = 1_000


class RecentPopClients:
    """Clients that popped recently, with their topics. They are only shown, so clients beyond the
    limits are not recorded."""

    def __init__(
        self,
        *,
        topics_max: int = POPPED_TOPICS_MAX,
        size_max: int = POPPED_SIZE_MAX,
        channels_max: int = POPPERS_MAX,
    ) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._by_peer: dict[int, set[str]] = {}
        self._topics_max = topics_max
        self._size_max = size_max
        self._channels_max = channels_max
        self._topics_count = self._size = 0
        self._channels_count = 0

    def find(self, group: str) -> ConsumerGroup | None:
        """Return the recorded members of a group that pops; None if there are none."""
        return self._groups.get(group)

    def was_just_noted(
        self, name: str, peer: int, topic: str, expression: str, now_ms: int
    ) -> bool:
        """Whether the same pop was recorded within the last second."""
        group = self._groups.get(name)
        if group is None:
            return False
        channel, subscription = group.channels.get(peer), group.subscriptions.get(topic)
        return (
            channel is not None
            and subscription is not None
            and subscription.sub_string == expression
            and now_ms - min(channel.seen_ms, subscription.sub_version) < _FRESH_MS
        )

    def groups_on(self, topic: str) -> list[str]:
        """Return the groups that pop from a topic."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def note_pop(self, name: str, channel: Channel, subscriptions: Iterable[Subscription]) -> None:
        """Record a pop of a client. A subscription's version is the time of the pop, by which it
        expires."""
        group = self._groups.get(name)
        if group is None:
            group = ConsumerGroup(name)
            group.consume_type = POP
            group.message_model = CLUSTERING
        for subscription in subscriptions:
            known = group.subscriptions.get(subscription.topic)
            size = self._size + subscription.memory_size
            if known is not None:
                size -= known.memory_size
            elif self._topics_count >= self._topics_max:
                continue
            if size > max(self._size, self._size_max):
                continue
            self._topics_count += known is None
            self._size = size
            group.subscriptions[subscription.topic] = subscription
        if group.subscriptions:
            self._groups[name] = group
            self._note_channel(group, channel)

    def _note_channel(self, group: ConsumerGroup, channel: Channel) -> None:
        known = group.channels.get(channel.peer)
        if known is not None:
            known.seen_ms = channel.seen_ms
        elif self._channels_count < self._channels_max:
            self._channels_count += 1
            group.channels[channel.peer] = channel
            self._by_peer.setdefault(channel.peer, set()).add(group.name)

    def remove_connection(self, peer: int) -> None:
        """Remove a lost connection. Its groups are remembered for a while."""
        for name in self._by_peer.pop(peer, ()):
            del self._groups[name].channels[peer]
            self._channels_count -= 1
            assert self._channels_count >= 0, self._channels_count

    def forget_idle(self, now_ms: int, *, channel_idle_ms: int) -> None:
        """Forget clients, and topics of groups, without a pop for too long."""
        for group in list(self._groups.values()):
            for peer, channel in list(group.channels.items()):
                if channel.seen_ms < now_ms - channel_idle_ms:
                    self._drop_channel(group, peer)
            for topic, subscription in list(group.subscriptions.items()):
                if subscription.sub_version < now_ms - TOPIC_IDLE_MS:
                    del group.subscriptions[topic]
                    self._topics_count -= 1
                    self._size -= subscription.memory_size
                    assert self._topics_count >= 0 <= self._size, (self._topics_count, self._size)
            if not group.subscriptions:
                for peer in list(group.channels):
                    self._drop_channel(group, peer)
                del self._groups[group.name]

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the times of pops by the clock's jump, so that nothing is forgotten early."""
        for group in self._groups.values():
            for channel in group.channels.values():
                channel.seen_ms += by_ms
            for subscription in group.subscriptions.values():
                subscription.sub_version += by_ms

    def _drop_channel(self, group: ConsumerGroup, peer: int) -> None:
        del group.channels[peer]
        self._channels_count -= 1
        assert self._channels_count >= 0, self._channels_count
        names = self._by_peer[peer]
        names.discard(group.name)
        if not names:
            del self._by_peer[peer]
