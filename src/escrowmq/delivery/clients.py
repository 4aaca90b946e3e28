"""Connected clients, their groups, and their subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
        self.subscriber = 0
        """The member in whose limits the subscriptions are counted: the last one that sent any."""
        self._has_dropped = False

    def client_ids(self) -> list[str]:
        """Return the client ids of the members."""
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def drop_subscriptions(self) -> None:
        """Drop all subscriptions."""
        self.subscriptions.clear()
        self._has_dropped = True

    def take_dropped(self) -> bool:
        """Whether subscriptions were dropped since the last call: members must send them again."""
        has_dropped, self._has_dropped = self._has_dropped, False
        return has_dropped

    def memory_with(self, subscriptions: Iterable[Subscription]) -> int:
        """Return the memory of a member's subscriptions, in bytes, where newer ones stay."""
        known = self.subscriptions.get
        return sum(
            old.memory_size
            if (old := known(one.topic)) is not None and old.sub_version > one.sub_version
            else one.memory_size
            for one in subscriptions
        )

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

    __slots__ = ("account", "consumers", "producers", "size", "sizes", "topics_count")

    def __init__(self, account: str) -> None:
        self.account = account
        self.producers: set[str] = set()
        self.consumers: dict[str, int] = {}
        """The number of subscribed topics of each group."""
        self.sizes: dict[str, int] = {}
        """The memory that the subscriptions of each group take, in bytes."""
        self.topics_count = self.size = 0
        """The sums of both."""

    def set_subscriptions(self, group: str, count: int, size: int) -> None:
        """Set the number of a group's subscribed topics, and the memory that they take."""
        self.topics_count += count - self.consumers.get(group, 0)
        self.size += size - self.sizes.get(group, 0)
        self.consumers[group], self.sizes[group] = count, size

    def leave_consumers(self, group: str) -> tuple[int, int]:
        """Leave a consumer group. Return the number of its topics, and their memory."""
        count, size = self.consumers.pop(group), self.sizes.pop(group)
        self.topics_count -= count
        self.size -= size
        return count, size

    def has_room(self, count: int, size: int) -> bool:
        """Whether so many more topics, with so much memory, are within the limits."""
        return (
            self.topics_count + count <= CONNECTION_SUBSCRIPTIONS_MAX
            and self.size + size <= CONNECTION_SUBSCRIPTIONS_SIZE_MAX
        )

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
        each group; `sizes`: the memory that these take. A group for which none are named keeps
        those it has. Raises UsageError with the exceeded limit."""
        member = self._members.get(peer) or ConnectionGroups(account)
        known = member.groups_count
        count = len(member.producers | producers) + len(member.consumers.keys() | consumers.keys())
        if count > CONNECTION_GROUPS_MAX:
            raise UsageError(
                f"heartbeat: {count} producer and consumer groups on one connection; "
                f"{CONNECTION_GROUPS_MAX} are allowed; distribute them over several clients"
            )
        topics = member.topics_count + _sum_of_changes(member.consumers, consumers)
        if topics > CONNECTION_SUBSCRIPTIONS_MAX:
            raise UsageError(
                f"heartbeat: {topics} subscriptions on one connection; "
                f"{CONNECTION_SUBSCRIPTIONS_MAX} are allowed; distribute them over several "
                "clients"
            )
        size = member.size + _sum_of_changes(member.sizes, sizes)
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

    def memory_with(self, name: str, subscriptions: Iterable[Subscription]) -> int:
        """Return how much memory the subscriptions of a group will take, in bytes, after a
        heartbeat with these."""
        group = self.consumers.get(name) or ConsumerGroup(name)
        return group.memory_with(subscriptions)

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
            self._count_group(channel).set_subscriptions(name, 0, 0)
        if subscriptions:
            is_changed = group.subscribe(subscriptions) or is_changed
            group.subscriber = channel.peer
            size = sum(one.memory_size for one in group.subscriptions.values())
            self._members[channel.peer].set_subscriptions(name, len(subscriptions), size)
        return group, is_changed

    def remove_consumer(self, name: str, peer: int) -> ConsumerGroup | None:
        """Remove a consumer that has unregistered. Return its group; None if it was no member."""
        group = self.consumers.get(name)
        channel = None if group is None else group.channels.pop(peer, None)
        if group is None or channel is None:
            return None
        self._replace_channel(peer, channel, None)
        count, size = self._members[peer].leave_consumers(name)
        if not group.channels:
            del self.consumers[name]
        elif group.subscriber == peer:
            self._count_for_another(group, count, size)
        self._uncount_group(peer)
        return group

    def _count_for_another(self, group: ConsumerGroup, count: int, size: int) -> None:
        """Count a group's subscriptions for another member, because the one that sent them has
        left. Drop them if they exceed its limits: they do not if it has sent the same, as members
        of a group do."""
        name, group.subscriber = group.name, next(iter(group.channels))
        member = self._members[group.subscriber]
        own_count, own_size = member.consumers[name], member.sizes[name]
        if not member.has_room(count - own_count, size - own_size):
            group.drop_subscriptions()
            count = size = 0
        member.set_subscriptions(name, max(count, own_count), max(size, own_size))

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


def _sum_of_changes(known: Mapping[str, int], new: Mapping[str, int]) -> int:
    """Return by how much the known numbers grow with new ones, of which 0 changes nothing."""
    return sum(number - known.get(name, 0) for name, number in new.items() if number)


def _expired_peers(channels: Mapping[int, Channel], limit_ms: int) -> list[int]:
    return [peer for peer, channel in channels.items() if channel.seen_ms < limit_ms]
