"""Connected clients, their groups, and their subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import (
    CONNECTION_GROUPS_MAX,
    CONNECTION_SUBSCRIPTIONS_MAX,
    CONNECTION_SUBSCRIPTIONS_SIZE_MAX,
    MEMBERSHIPS_MAX,
    PUBLISHED_TOPICS_MAX,
)
from escrowmq.codec.client_bodies import SubscriptionBody as Subscription
from escrowmq.errors import UsageError

_NONE: Final[Mapping[str, int]] = MappingProxyType({})

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
    account: str = ""
    """The account in whose limit its groups are counted; empty without access control."""
    published: set[str] = msgspec.field(default_factory=set)
    """The topics of transactional messages that this producer has sent."""


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
        """Return the client ids of the members."""
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def subscribe(self, subscriptions: list[Subscription]) -> bool:
        """Store a member's subscriptions. Return whether the set of topics changed."""
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


class ConnectionGroups:
    """The groups in which one connection is a member."""

    __slots__ = ("account", "consumers", "producers", "sizes")

    def __init__(self, account: str) -> None:
        self.account = account
        self.producers: set[str] = set()
        self.consumers: dict[str, int] = {}
        """The number of subscribed topics of each group."""
        self.sizes: dict[str, int] = {}
        """The memory that the subscriptions of each group take, in bytes."""

    @property
    def groups_count(self) -> int:
        """The number of groups in which it is a member."""
        return len(self.producers) + len(self.consumers)


class Clients:
    """All live producers and consumers, with their groups."""

    def __init__(self, *, memberships_max: int = MEMBERSHIPS_MAX, of_account_max: int = 0) -> None:
        self.producers: dict[str, dict[int, Channel]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._members: dict[int, ConnectionGroups] = {}
        self._count = 0
        self._count_max = memberships_max
        self._of_account_max = of_account_max
        self._counts: Counter[str] = Counter()
        self._by_client: dict[str, Counter[int]] = {}
        """By client id: the connections with it, in the order in which they joined, each with the
        number of its memberships with this id."""

    def check_limits(
        self,
        peer: int,
        *,
        producers: set[str],
        consumers: Mapping[str, int],
        sizes: Mapping[str, int] = _NONE,
        account: str = "",
    ) -> None:
        """Check that a connection may join these groups too; `consumers`: the number of topics of
        each group; `sizes`: the memory that these take. Raises UsageError with the exceeded
        limit."""
        member = self._members.get(peer) or ConnectionGroups(account)
        known = member.groups_count
        count = len(member.producers | producers) + len(member.consumers.keys() | consumers.keys())
        if count > CONNECTION_GROUPS_MAX:
            raise UsageError(
                f"heartbeat: {count} producer and consumer groups on one connection; "
                f"{CONNECTION_GROUPS_MAX} are allowed; distribute them over several clients"
            )
        topics = sum({**member.consumers, **consumers}.values())
        if topics > CONNECTION_SUBSCRIPTIONS_MAX:
            raise UsageError(
                f"heartbeat: {topics} subscriptions on one connection; "
                f"{CONNECTION_SUBSCRIPTIONS_MAX} are allowed; distribute them over several "
                "clients"
            )
        size = sum({**member.sizes, **sizes}.values())
        if size > CONNECTION_SUBSCRIPTIONS_SIZE_MAX:
            raise UsageError(
                f"heartbeat: subscriptions that take {size} bytes on one connection; "
                f"{CONNECTION_SUBSCRIPTIONS_SIZE_MAX} are allowed; select by fewer tags, or "
                "distribute them over several clients"
            )
        if count > known and self._count + count - known > self._count_max:
            raise UsageError(
                f"heartbeat: the clients of this broker are already in {self._count} groups, "
                f"counted once per connection; {self._count_max} are allowed; stop clients "
                "that are not needed, or add a broker"
            )
        most, own = self._of_account_max, self._counts[member.account]
        if member.account and count > known and 0 < most < own + count - known:
            raise UsageError(
                f"heartbeat: the clients of account {member.account} are already in {own} "
                f"groups, counted once per connection; escrowAccountMemberships={most} "
                "allows no more"
            )

    def _count_group(self, channel: Channel) -> ConnectionGroups:
        """Count one more group of a connection. Return the connection's groups."""
        member = self._members.get(channel.peer)
        if member is None:
            member = self._members[channel.peer] = ConnectionGroups(channel.account)
        self._count += 1
        self._counts[member.account] += 1
        return member

    def _uncount_group(self, peer: int) -> None:
        """Uncount a group of a connection."""
        member = self._members[peer]
        self._count -= 1
        self._counts[member.account] -= 1
        assert self._counts[member.account] >= 0, member.account
        if not self._counts[member.account]:
            del self._counts[member.account]
        if not member.groups_count:
            del self._members[peer]

    def _replace_channel(self, peer: int, old: Channel | None, new: Channel | None) -> None:
        """Note that a membership of a connection has a new channel, or none any more."""
        if old is not None and new is not None and old.client_id == new.client_id:
            return
        if new is not None:
            self._by_client.setdefault(new.client_id, Counter())[peer] += 1
        if old is not None:
            peers = self._by_client[old.client_id]
            peers[peer] -= 1
            assert peers[peer] >= 0, (old.client_id, peer)
            if not peers[peer]:
                del peers[peer]
            if not peers:
                del self._by_client[old.client_id]

    # -- producers ---------------------------------------------------------------------------

    def add_producer(self, group: str, channel: Channel) -> bool:
        """Add or renew a producer after a heartbeat. Return whether it is new."""
        channels = self.producers.setdefault(group, {})
        known = channels.get(channel.peer)
        published = set() if known is None else known.published
        # Each group has topics of its own: the same heartbeat may name several groups.
        channels[channel.peer] = msgspec.structs.replace(channel, published=published)
        self._replace_channel(channel.peer, known, channel)
        if known is None:
            self._count_group(channel).producers.add(group)
        return known is None

    def remove_producer(self, group: str, peer: int) -> None:
        """Remove a producer that has unregistered."""
        channels = self.producers.get(group)
        channel = None if channels is None else channels.pop(peer, None)
        if channels is None or channel is None:
            return
        self._replace_channel(peer, channel, None)
        if not channels:
            del self.producers[group]
        self._members[peer].producers.discard(group)
        self._uncount_group(peer)

    # -- consumers ---------------------------------------------------------------------------

    def add_consumer(
        self, name: str, channel: Channel, subscriptions: list[Subscription]
    ) -> tuple[ConsumerGroup, bool]:
        """Add or renew a consumer after a heartbeat. Return its group, and whether members or
        topics changed."""
        group = self.consumers.get(name)
        if group is None:
            group = self.consumers[name] = ConsumerGroup(name)
        known = group.channels.get(channel.peer)
        is_changed = known is None
        group.channels[channel.peer] = channel
        self._replace_channel(channel.peer, known, channel)
        if is_changed:
            self._count_group(channel).consumers[name] = 0
        if subscriptions:
            member = self._members[channel.peer]
            member.consumers[name] = len(subscriptions)
            member.sizes[name] = sum(one.memory_size for one in subscriptions)
            is_changed = group.subscribe(subscriptions) or is_changed
        return group, is_changed

    def remove_consumer(self, name: str, peer: int) -> ConsumerGroup | None:
        """Remove a consumer that has unregistered. Return its group; None if it was no member."""
        group = self.consumers.get(name)
        channel = None if group is None else group.channels.pop(peer, None)
        if group is None or channel is None:
            return None
        self._replace_channel(peer, channel, None)
        if not group.channels:
            del self.consumers[name]
        member = self._members[peer]
        del member.consumers[name]
        member.sizes.pop(name, None)
        self._uncount_group(peer)
        return group

    def find_consumer(self, name: str, client_id: str) -> Channel | None:
        """Return a group's member with this client id; None if there is none."""
        group = self.consumers.get(name)
        if group is None:
            return None
        return next((c for c in group.channels.values() if c.client_id == client_id), None)

    def find_connections(self, client_id: str) -> list[int]:
        """Return the connections with this client id, the newest first: a client that has lost its
        connection may have a new one before the broker notices."""
        return list(reversed(self._by_client.get(client_id, {})))

    def client_id(self, peer: int) -> str | None:
        """Return the client id in a connection's heartbeats; None if it sent none."""
        member = self._members.get(peer)
        if member is None:
            return None
        for name in member.producers:
            return self.producers[name][peer].client_id
        return next(self.consumers[name].channels[peer].client_id for name in member.consumers)

    def groups_on(self, topic: str) -> list[str]:
        """Return the groups with a live member that subscribes to a topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    # -- leaving -----------------------------------------------------------------------------

    def remove_connection(self, peer: int) -> list[ConsumerGroup]:
        """Remove the producers and consumers on a lost connection. Return the consumer groups that
        lost a member."""
        member = self._members.get(peer)
        if member is None:
            return []
        for name in list(member.producers):
            self.remove_producer(name, peer)
        names = list(member.consumers)
        return [group for name in names if (group := self.remove_consumer(name, peer)) is not None]

    def note_published(self, group: str, peer: int, topic: str) -> str:
        """Record a topic to which a producer of the group publishes. Return its client id; empty if
        it is no member."""
        channel = self.producers.get(group, {}).get(peer)
        if channel is None:
            return ""
        if len(channel.published) < PUBLISHED_TOPICS_MAX:
            channel.published.add(topic)
        return channel.client_id

    def last_heartbeat_ms(self, peer: int) -> int:
        """Return the time of the last heartbeat of producers on a connection; -1 if there was
        none."""
        member = self._members.get(peer)
        names = member.producers if member is not None else ()
        return max((self.producers[name][peer].seen_ms for name in names), default=-1)

    def expire(self, limit_ms: int) -> tuple[set[int], list[ConsumerGroup]]:
        """Remove members without a heartbeat since `limit_ms`. Return their connections, and the
        consumer groups that lost a member. Other clients on the same connection may remain."""
        peers: set[int] = set()
        groups: list[ConsumerGroup] = []
        for name, channels in list(self.producers.items()):
            for peer in _expired_peers(channels, limit_ms):
                self.remove_producer(name, peer)
                peers.add(peer)
        for name, group in list(self.consumers.items()):
            silent = _expired_peers(group.channels, limit_ms)
            for peer in silent:
                self.remove_consumer(name, peer)
            peers.update(silent)
            if silent:
                groups.append(group)
        return peers, groups

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the times of heartbeats by the clock's jump, so that no client expires early."""
        all_channels = [*self.producers.values(), *(g.channels for g in self.consumers.values())]
        # One heartbeat makes one channel for all of its groups.
        different = {id(one): one for channels in all_channels for one in channels.values()}
        for channel in different.values():
            channel.seen_ms += by_ms


def _expired_peers(channels: Mapping[int, Channel], limit_ms: int) -> list[int]:
    return [peer for peer, channel in channels.items() if channel.seen_ms < limit_ms]
