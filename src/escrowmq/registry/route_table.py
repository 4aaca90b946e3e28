"""The topics of brokers, and their routes (RocketMQ's RouteInfoManager)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.codec.routes import (
    BrokerData,
    ClusterInfo,
    DepartedBroker,
    QueueData,
    RegisteredTopic,
    RegistrationBody,
    TableVersion,
    TopicRoute,
)
from escrowmq.errors import UsageError
from escrowmq.registry.gone_brokers import GoneBrokers
from escrowmq.registry.live_brokers import Address, LiveBrokers, RegisteringBroker

MASTER_ID: Final = 0
BROKERS_MAX: Final = 20_000
ALL_TOPICS_MAX: Final = 500_000
BROKER_TOPICS_MAX: Final = 100_000
"""Limit of the topics of one broker name, so that no broker fills the table. A registration with
more would not fit into a frame anyway."""

_WRITE: Final = 2
_READ_WRITE: Final = 6
_UNIT: Final = 1
_UNIT_SUB: Final = 2
_SYNC_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class TableSizes(msgspec.Struct, frozen=True):
    """The numbers of clusters, brokers, topics and routes in the tables."""

    clusters: int
    brokers: int
    topics: int
    routes: int


class RegistrationResult(msgspec.Struct, frozen=True):
    """The answer to a broker that registers: its master, if it is a slave and has one."""

    ha_address: str | None = None
    master_address: str | None = None


class RouteTable:
    """The registered brokers and topics. Every change is complete before the next request."""

    def __init__(self, settings: NameServerSettings) -> None:
        self._settings = settings
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._topics_counts: Counter[str] = Counter()
        """Number of topics of each broker name."""
        self.live = LiveBrokers()
        self.gone = GoneBrokers()
        self._filter_servers: dict[Address, list[str]] = {}
        self._mappings: dict[str, dict[str, dict[str, Any]]] = {}
        self.changes_count = 0
        """A number that grows with each change that may affect a route."""

    def sizes(self) -> TableSizes:
        """Return the numbers of entries."""
        return TableSizes(
            clusters=len(self._clusters),
            brokers=len(self.live),
            topics=len(self._topics),
            routes=sum(map(len, self._topics.values())),
        )

    def count_change(self) -> None:
        """Count a change made outside this table that may affect a route."""
        self.changes_count += 1

    # -- registration ----------------------------------------------------------------------------

    def register(
        self, broker: RegisteringBroker, body: RegistrationBody, *, peer: int, now_ms: int
    ) -> RegistrationResult | None:
        """Register a broker, and return its master. Return None if it is the first registration and
        has only a single topic, because that is refused."""
        self._check_limits(broker, body)
        self.changes_count += 1
        self._unregister_former_name(broker, now_ms)
        data = self._brokers.get(broker.name)
        if data is None:
            data = BrokerData({}, broker.name, broker.cluster)
            self._brokers[broker.name] = data
        if data.cluster != broker.cluster:
            self._remove_from_cluster(data)
            data.cluster = broker.cluster
        self._clusters.setdefault(broker.cluster, set()).add(broker.name)
        data.enable_acting_master = bool(broker.has_acting_master)
        data.zone_name = broker.zone
        addresses = data.broker_addrs
        for broker_id in [i for i, a in addresses.items() if a == broker.address]:
            if broker_id != broker.broker_id:  # a slave has become master, or the reverse
                del addresses[broker_id]
        if self._is_outdated(broker, body.version, addresses.get(broker.broker_id)):
            # As in RocketMQ: the older registration gets no error, and is ignored.
            self.live.remove(broker.cluster, broker.address)
            return RegistrationResult()
        is_first = broker.broker_id not in addresses
        # As in RocketMQ: a broker reports only a changed topic. Here that would be its whole route;
        # a broker that is refused registers again with everything.
        if is_first and len(body.topics) == 1:
            return None
        addresses[broker.broker_id] = broker.address
        self.gone.note_return(broker.cluster, broker.name, broker.broker_id)
        self._store_topics(broker, body, data, is_first)
        self.live.add(broker, body.version, peer=peer, now_ms=now_ms)
        self._store_filter_servers(broker, body.filter_servers)
        return self._registration_result(broker, addresses)

    def _unregister_former_name(self, broker: RegisteringBroker, now_ms: int) -> None:
        """Unregister the former name of a broker that was restarted with another name at the same
        address. RocketMQ keeps the former name in the routes."""
        former = self.live.get(broker.cluster, broker.address)
        if former is not None and former.name != broker.name:
            self.unregister(broker.cluster, broker.address, former.name, now_ms=now_ms)

    def _remove_from_cluster(self, data: BrokerData) -> None:
        """Remove a broker name from its cluster."""
        names = self._clusters.get(data.cluster or "", set())
        names.discard(data.broker_name)
        if not names:
            self._clusters.pop(data.cluster or "", None)

    def _check_limits(self, broker: RegisteringBroker, body: RegistrationBody) -> None:
        if broker.name not in self._brokers and len(self._brokers) >= BROKERS_MAX:
            raise UsageError(f"{BROKERS_MAX} broker names are registered; no more are accepted")
        if self._topics_counts[broker.name] + len(body.topics) > BROKER_TOPICS_MAX:
            new_count = sum(
                broker.name not in self._topics.get(name, ()) for name in body.topic_names()
            )
            own_count = self._topics_counts[broker.name] + new_count
            if own_count > BROKER_TOPICS_MAX:
                raise UsageError(
                    f"{own_count} topics of one broker; {BROKER_TOPICS_MAX} are allowed"
                )
        if len(self._topics) + len(body.topics) > ALL_TOPICS_MAX:
            all_count = len(self._topics) + sum(
                name not in self._topics for name in body.topic_names()
            )
            if all_count > ALL_TOPICS_MAX:
                raise UsageError(f"{all_count} topics; {ALL_TOPICS_MAX} are allowed")

    def _is_outdated(
        self, broker: RegisteringBroker, version: TableVersion, holder_address: str | None
    ) -> bool:
        if holder_address is None or holder_address == broker.address:
            return False
        holder = self.live.get(broker.cluster, holder_address)
        return holder is not None and holder.version.state_version > version.state_version

    def _store_topics(
        self, broker: RegisteringBroker, body: RegistrationBody, data: BrokerData, is_first: bool
    ) -> None:
        is_master = broker.broker_id == MASTER_ID
        is_prime_slave = (
            not is_master
            and broker.has_acting_master is not None
            and broker.broker_id == min(data.broker_addrs)
        )
        if not (is_master or is_prime_slave):
            return
        is_whole = not broker.is_partial and not body.mappings
        if self._settings.deletes_topics_on_register and is_whole:
            self._drop_topics_except(broker.name, set(body.topics))
        known = self.live.get(broker.cluster, broker.address)
        is_changed = is_first or known is None or known.version != body.version
        kept_perm = ~_WRITE if is_prime_slave and data.enable_acting_master else ~0
        for key, topic in body.topics.items():
            queues = self._topics.setdefault(topic.topic_name or key, {})
            # Changed queues with an unchanged version are ignored, as in RocketMQ.
            is_new = broker.name not in queues
            self._topics_counts[broker.name] += is_new
            if is_changed or is_new:
                queues[broker.name] = _queue_data(broker.name, topic, kept_perm)
        if is_changed:
            for name, mapping in body.mappings.items():
                by_broker = self._mappings.setdefault(name, {})
                by_broker[str(mapping.get("bname", broker.name))] = mapping

    def _drop_topics_except(self, broker_name: str, kept: set[str]) -> None:
        for topic in [t for t, q in self._topics.items() if broker_name in q and t not in kept]:
            self._drop_queues(topic, broker_name)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics.get(topic, {})
        if queues.pop(broker_name, None) is not None:
            self._uncount_topic(broker_name)
        if not queues:
            self._topics.pop(topic, None)

    def _uncount_topic(self, broker_name: str) -> None:
        self._topics_counts[broker_name] -= 1
        assert self._topics_counts[broker_name] >= 0, broker_name
        if not self._topics_counts[broker_name]:
            del self._topics_counts[broker_name]

    def _store_filter_servers(self, broker: RegisteringBroker, found: list[str] | None) -> None:
        address = (broker.cluster, broker.address)
        if found:
            self._filter_servers[address] = found
        elif found is not None:
            self._filter_servers.pop(address, None)

    def _registration_result(
        self, broker: RegisteringBroker, addresses: dict[int, str]
    ) -> RegistrationResult:
        master_address = addresses.get(MASTER_ID)
        if broker.broker_id == MASTER_ID or master_address is None:
            return RegistrationResult()
        master = self.live.get(broker.cluster, master_address)
        return (
            RegistrationResult()
            if master is None
            else RegistrationResult(master.ha_address, master_address)
        )

    # -- leaving ---------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[int]:
        """Remove brokers that were silent for too long; return the peers to close."""
        self.gone.forget_old(now_ms)
        gone = self.live.timed_out(now_ms)
        for address, _ in gone:
            self._remove_broker(address, now_ms)
        # Remove names left by refused registrations. RocketMQ keeps them, but here their number is
        # limited.
        for data in [data for data in self._brokers.values() if not data.broker_addrs]:
            self.unregister(data.cluster, "", data.broker_name, now_ms=now_ms)
        return [peer for _, peer in gone]

    def remove_connection(self, peer: int, now_ms: int) -> int:
        """Remove the brokers of a lost connection; return their number. RocketMQ
        (RouteInfoManager.onChannelDestroy) removes only one of them, and waits for the timeouts of
        the others."""
        gone = self.live.brokers_on_connection(peer)
        for address in gone:
            self._remove_broker(address, now_ms)
        return len(gone)

    def _remove_broker(self, address: Address, now_ms: int) -> None:
        live = self.live.get(*address)
        if live is not None:
            self.unregister(*address, live.name, now_ms=now_ms)

    def unregister(
        self,
        cluster: str | None,
        address: str,
        name: str,
        *,
        now_ms: int,
        has_said_so: bool = False,
    ) -> None:
        """Remove a broker. If it was the last one with its name, remove the topics of that name
        too."""
        self.changes_count += 1
        self.live.remove(cluster, address)
        self._filter_servers.pop((cluster or "", address), None)
        data = self._brokers.get(name)
        if data is None:
            return
        for broker_id in [i for i, a in data.broker_addrs.items() if a == address]:
            del data.broker_addrs[broker_id]
            self.gone.note_departure(
                DepartedBroker(
                    name=name,
                    cluster=data.cluster or "",
                    id=broker_id,
                    address=address,
                    since_ms=now_ms,
                    has_said_so=has_said_so,
                )
            )
        if data.broker_addrs:
            # A slave replaces the master that left: it serves reads, and must get no messages.
            if data.enable_acting_master and min(data.broker_addrs) > MASTER_ID:
                self._set_perm(name, lambda perm: perm & ~_WRITE)
            return
        del self._brokers[name]
        self._remove_from_cluster(data)
        self._drop_topics_except(name, set())

    # -- topics ----------------------------------------------------------------------------------

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Add or replace a topic's queues, up to the first one of an unknown broker. A new topic
        with a queue of an unknown broker is ignored."""
        known: dict[str, QueueData] = {}
        for queue in queues:
            if queue.broker_name not in self._brokers:
                if topic not in self._topics:
                    return  # RouteInfoManager.registerTopic: a new topic comes whole or not at all
                break
            known[queue.broker_name] = queue
        if known and (topic in self._topics or len(self._topics) < ALL_TOPICS_MAX):
            self.changes_count += 1
            held = self._topics.setdefault(topic, {})
            self._topics_counts.update(name for name in known if name not in held)
            held.update(known)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove a topic, only from the brokers of one cluster if it is named."""
        self.changes_count += 1
        if not cluster:
            for name in self._topics.pop(topic, {}):
                self._uncount_topic(name)
            return
        for name in self._clusters.get(cluster, ()):
            self._drop_queues(topic, name)

    def remove_write_permission(self, broker_name: str) -> int:
        """Remove the write permission from a broker's topics; return how many there are."""
        return self._set_perm(broker_name, lambda perm: perm & ~_WRITE)

    def restore_write_permission(self, broker_name: str) -> int:
        """Restore the write permission of a broker's topics; their other bits are lost, as in
        RocketMQ."""
        return self._set_perm(broker_name, lambda _: _READ_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        self.changes_count += 1
        queues = [q[broker_name] for q in self._topics.values() if broker_name in q]
        for queue in queues:
            queue.perm = change(queue.perm)
        return len(queues)

    # -- answers ---------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute | None:
        """Return a topic's route; None if the topic is unknown. Brokers are sorted by name."""
        queues = self._topics.get(topic)
        names = sorted(queues or ())
        brokers = [_copy_broker(self._brokers[name]) for name in names if name in self._brokers]
        if not queues or not brokers:
            return None
        route = TopicRoute(
            brokers,
            self._filter_servers_of(brokers),
            queue_datas=[queues[name] for name in names],
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )
        if self._settings.has_acting_master and not topic.startswith(_SYNC_MEMBER_PREFIX):
            for broker in brokers:
                _present_acting_master(broker, queues[broker.broker_name])
        return route

    def _filter_servers_of(self, brokers: list[BrokerData]) -> dict[str, list[str] | None]:
        if not self._filter_servers:
            return {}
        return {
            address: self._filter_servers.get((broker.cluster or "", address))
            for broker in brokers
            for address in broker.broker_addrs.values()
        }

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        clusters = {cluster: sorted(names) for cluster, names in self._clusters.items()}
        return ClusterInfo(self._brokers, clusters)

    def broker_addresses(self, name: str) -> dict[int, str]:
        """Return the addresses under a broker name."""
        data = self._brokers.get(name)
        return {} if data is None else data.broker_addrs

    def topics(self) -> list[str]:
        """Return all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str | None) -> list[str]:
        """Return the topics of a cluster's brokers; none for an unknown cluster."""
        names = self._clusters.get(cluster or "", set())
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, each of which is a system topic, and the
        address of some broker."""
        found = dict.fromkeys(self._system_names())
        for data in self._brokers.values():
            for _, address in sorted(data.broker_addrs.items()):
                return list(found), address
        return list(found), None

    def _system_names(self) -> Iterator[str]:
        for cluster, names in self._clusters.items():
            yield cluster
            yield from sorted(names)

    def unit_topics(self, *, is_unit: bool | None, is_subscribed: bool | None) -> list[str]:
        """Return the topics with these bits in their system flag; None matches either value."""
        return [
            topic
            for topic, queues in self._topics.items()
            if queues
            and (is_unit is None or _has_topic_flag(queues, _UNIT) is is_unit)
            and (is_subscribed is None or _has_topic_flag(queues, _UNIT_SUB) is is_subscribed)
        ]


def _has_topic_flag(queues: dict[str, QueueData], bit: int) -> bool:
    first = next(iter(queues.values()))
    return bool(first.topic_sys_flag & bit)


def _queue_data(broker_name: str, topic: RegisteredTopic, kept_perm: int) -> QueueData:
    return QueueData(
        broker_name,
        topic.perm & kept_perm,
        topic.read_queue_nums,
        topic.topic_sys_flag,
        topic.write_queue_nums,
    )


def _copy_broker(broker: BrokerData) -> BrokerData:
    return msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs))


def _present_acting_master(broker: BrokerData, queue: QueueData) -> None:
    """Make the broker with the smallest id appear as master, if a broker name has no master. This
    is done only for topics without write permission."""
    addresses = broker.broker_addrs
    if not addresses or MASTER_ID in addresses or not broker.enable_acting_master:
        return
    if not queue.perm & _WRITE:
        addresses[MASTER_ID] = addresses.pop(min(addresses))
