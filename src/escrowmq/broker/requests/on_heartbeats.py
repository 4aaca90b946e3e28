"""Serves heartbeats, group membership, and the queue locks of orderly consumers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import (
    CLIENT_ID_SIZE_MAX,
    GROUPS_AT_ONCE_MAX,
    HEARTBEAT_SQL_SIZE_MAX,
    NOTIFIED_AT_ONCE_MAX,
    SUBSCRIPTION_SIZE_MAX,
    TOPIC_SIZE_MAX_LONG,
)
from escrowmq.base.message import Topic
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.part import Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.peers import Peers
from escrowmq.broker.reads.message_selection import SelectorCache, is_tag_expression
from escrowmq.broker.sends.forbidden_to_senders import group_fault
from escrowmq.codec import fastjson
from escrowmq.codec.binary_header import LANGUAGES
from escrowmq.codec.client_bodies import (
    CheckClientBody,
    ConsumerBody,
    HeartbeatBody,
    LockBody,
    SubscriptionBody,
    decode_body,
)
from escrowmq.codec.headers import ConsumerGroupHeader, UnregisterClientHeader
from escrowmq.delivery.clients import BROADCASTING, Channel, Clients, ConsumerGroup
from escrowmq.delivery.existing_queues import ExistingQueues
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.queue_locks import LockOwner, QueueLocks
from escrowmq.delivery.recent_pop_clients import RecentPopClients
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import UsageError
from escrowmq.filter.operands import FilterError

_SCAN_MS: Final = 10_000
_WORD_SIZE_MAX: Final = 64
"""The characters that are kept of how a group consumes. RocketMQ's longest word has 53."""


OnProducer = Callable[[str, Channel, int], None]
"""Called with the group and connection of a new producer that can be sent requests now, and the
time."""


class HeartbeatHandlers(Part):
    """Serves HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38),
    LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42) and CHECK_CLIENT_CONFIG (46)."""

    name = "clients"

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        poppers: RecentPopClients,
        locks: QueueLocks,
        queues: ExistingQueues,
        peers: Peers,
        on_producer: OnProducer,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._poppers = poppers
        self._locks = locks
        self._queues = queues
        self._peers = peers
        self._on_producer = on_producer
        self._fingerprints: dict[int, int] = {}
        self._selectors = SelectorCache()
        self._scan_at_ms = 0
        self._unnotified: dict[str, deque[int]] = {}
        """By changed group: the members still to be notified."""
        self._notified_count = 0
        """The number of members notified since the last wake."""

    # -- membership --------------------------------------------------------------------------

    def heartbeat(self, request: IncomingRequest[None]) -> Reply:
        """Register a client's groups and subscriptions."""
        body = decode_body(HeartbeatBody, request.body)
        self._check_limits(request.peer, body)
        channel = Channel(
            peer=request.peer.id,
            client_id=body.client_id,
            language=language_name(request.command.language),
            version=request.command.version,
            address=request.peer.address,
            seen_ms=request.now_ms,
            account=request.peer.counted_for,
        )
        is_known = (
            body.fingerprint != 0 and self._fingerprints.get(request.peer.id) == body.fingerprint
        )
        self._fingerprints[request.peer.id] = body.fingerprint
        for producer in body.producers or ():
            if self._clients.add_producer(producer.group_name, channel):
                self._on_producer(producer.group_name, channel, request.now_ms)
        new_count = 0
        for consumer in body.consumers or ():
            if self._groups.find(consumer.group_name) is None:
                new_count += 1
                if new_count > GROUPS_AT_ONCE_MAX:
                    continue  # its next heartbeat adds it
            self._register_consumer(consumer, channel, request.now_ms, without_sub=body.without_sub)
        ext = {
            "IS_SUPPORT_HEART_BEAT_V2": "true",
            "IS_SUB_CHANGE": "false" if is_known else "true",
        }
        return Answer(ext=ext)

    def _check_limits(self, peer: Peer, body: HeartbeatBody) -> None:
        """Raise UsageError if a heartbeat exceeds a limit; nothing of it is accepted then."""
        if len(body.client_id) > CLIENT_ID_SIZE_MAX:
            raise UsageError(
                f"heartbeat: a client id of {len(body.client_id)} characters; "
                f"{CLIENT_ID_SIZE_MAX} are allowed; choose a shorter instance or unit name"
            )
        if not body.client_id.isprintable():
            raise UsageError(
                f"heartbeat: the client id {body.client_id[:64]!r} has characters that cannot be "
                "printed; choose another instance or unit name"
            )
        producers = {producer.group_name for producer in body.producers or ()}
        for name in producers:
            fault = group_fault(name)
            if fault:
                raise UsageError(f"heartbeat: {fault}")
        consumers: dict[str, int] = {}
        sizes: dict[str, int] = {}
        sql_size = 0
        for consumer in body.consumers or ():
            subscriptions = consumer.subscription_data_set or ()
            stored = () if body.without_sub else subscriptions
            consumers[consumer.group_name] = len(stored)
            sizes[consumer.group_name] = self._clients.memory_with(consumer.group_name, stored)
            for subscription in subscriptions:
                _check_subscription_size(subscription)
                if not is_tag_expression(subscription.expression_type):
                    sql_size += len(subscription.sub_string or "")
        if sql_size > HEARTBEAT_SQL_SIZE_MAX:
            raise UsageError(
                f"heartbeat: SQL92 expressions of {sql_size} characters together; "
                f"{HEARTBEAT_SQL_SIZE_MAX} are allowed"
            )
        self._clients.check_limits(
            peer.id,
            producers=producers,
            consumers=consumers,
            sizes=sizes,
            account=peer.counted_for,
        )

    def _register_consumer(
        self, consumer: ConsumerBody, channel: Channel, now_ms: int, *, without_sub: bool
    ) -> None:
        config = self._groups.get_or_create(consumer.group_name, now_ms)
        if config is None:
            return  # RocketMQ ignores such a consumer silently
        if config.retry_queue_nums > 0:
            topics = self._topics
            subscriptions = consumer.subscription_data_set or ()
            is_ordered = any(
                (topic := topics.get(s.topic)) is not None and topic.order for s in subscriptions
            )
            topics.get_or_create(
                Topic.RETRY_PREFIX + consumer.group_name,
                queues_count=config.retry_queue_nums,
                is_ordered=is_ordered,
                is_unit=consumer.unit_mode,
                now_ms=now_ms,
            )
        subscriptions_told = [] if without_sub else consumer.subscription_data_set or []
        group, is_changed = self._clients.add_consumer(
            consumer.group_name, channel, subscriptions_told
        )
        group.consume_type = (consumer.consume_type or "")[:_WORD_SIZE_MAX].upper()
        # The Go client writes "Clustering" and "BroadCasting".
        group.message_model = (consumer.message_model or "")[:_WORD_SIZE_MAX].upper()
        group.consume_from = (consumer.consume_from_where or "")[:_WORD_SIZE_MAX].upper()
        if is_changed and config.notify_consumer_ids_changed_enable:
            self._notify_members(group)

    def _notify_members(self, group: ConsumerGroup) -> None:
        """Notify the members of a group that it has changed, so that they divide its queues anew.
        Many members are notified over several turns: if a thousand members of a thousand groups
        disconnect together, they cause a million notifications."""
        if group.message_model == BROADCASTING:
            return
        self._unnotified[group.name] = deque(group.channels)
        self._send_notifications()

    def _send_notifications(self) -> None:
        """Notify members that wait to be notified, up to the limit of this turn."""
        while self._unnotified and self._notified_count < NOTIFIED_AT_ONCE_MAX:
            name = next(iter(self._unnotified))
            members = self._unnotified[name]
            while members and self._notified_count < NOTIFIED_AT_ONCE_MAX:
                self._notified_count += 1
                peer = members.popleft()
                if peer in self._peers.by_id:
                    self._peers.send_one_way(
                        peer, Request.NOTIFY_CONSUMER_IDS_CHANGED, ext={"consumerGroup": name}
                    )
            if not members:
                del self._unnotified[name]

    def _notify_member_left(self, group: ConsumerGroup) -> None:
        if group.take_dropped():
            for peer in group.channels:
                self._fingerprints.pop(peer, None)  # it must name its topics again
        config = self._groups.find(group.name)
        if config is None or config.notify_consumer_ids_changed_enable:
            self._notify_members(group)

    def unregister_client(self, request: IncomingRequest[UnregisterClientHeader]) -> Reply:
        """Remove a client from its groups."""
        header = request.header
        clients = self._clients
        self._fingerprints.pop(request.peer.id, None)
        if header.producer_group:
            clients.remove_producer(header.producer_group, request.peer.id)
        if header.consumer_group:
            group = clients.remove_consumer(header.consumer_group, request.peer.id)
            if group is not None:
                self._notify_member_left(group)
        return DONE

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        """Remove a client whose connection was lost from its groups."""
        self._remove_client(peer.id)

    def _remove_client(self, peer: int) -> None:
        self._fingerprints.pop(peer, None)
        self._poppers.remove_connection(peer)
        for group in self._clients.remove_connection(peer):
            self._notify_member_left(group)

    def wake(self, now_ms: int) -> None:
        """Remove clients that have been silent for too long, and notify waiting members."""
        self._notified_count = 0
        self._send_notifications()
        if now_ms >= self._scan_at_ms:
            self._scan_at_ms = now_ms + _SCAN_MS
            idle_ms = self._settings.channel_idle_ms
            limit_ms = now_ms - idle_ms
            self._poppers.forget_idle(now_ms, channel_idle_ms=idle_ms)
            peers, groups = self._clients.expire(limit_ms)
            for peer in peers:
                self._fingerprints.pop(peer, None)  # if it returns, it must name its topics again
                if self._clients.client_id(peer) is None:
                    self._poppers.remove_connection(peer)
            for group in groups:
                self._notify_member_left(group)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the clients' last-seen times by the clock's jump, so that none is removed for
        it."""
        self._clients.clock_leapt(by_ms)
        self._poppers.clock_leapt(by_ms)

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do."""
        return 0 if self._unnotified else self._scan_at_ms

    def list_consumers(self, request: IncomingRequest[ConsumerGroupHeader]) -> Reply:
        """Answer with the client ids of a group's members."""
        name = request.header.consumer_group
        group = self._clients.consumers.get(name)
        if group is None:
            return Refusal(Response.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = fastjson.encode({"consumerIdList": group.client_ids()})
        return Answer(body=body)

    # -- order -------------------------------------------------------------------------------

    def lock_queues(self, request: IncomingRequest[None]) -> Reply:
        """Lock queues for a client, except those that another client of its group holds. Queues and
        groups that do not exist have no locks. Answer with the locked queues."""
        body = decode_body(LockBody, request.body)
        group, locks = body.consumer_group, self._locks
        owner = LockOwner(body.client_id, request.peer.counted_for)
        locked = [
            queue
            for queue in body.mq_set
            if len(queue.topic) <= TOPIC_SIZE_MAX_LONG
            and (queue.topic, queue.queue_id) in self._queues
            and self._may_lock(group, owner, request.now_ms)
            and locks.lock(group, owner, queue.topic, queue.queue_id, request.now_ms)
        ]
        return Answer(body=fastjson.encode({"lockOKMQSet": locked}))

    def _may_lock(self, group: str, owner: LockOwner, now_ms: int) -> bool:
        """Whether a client may lock queues for a group; the group is created like by a pull, which
        may come later."""
        if max(len(group), len(owner.client_id)) > CLIENT_ID_SIZE_MAX:
            return False
        return (
            self._settings.places_as_rocketmq
            or self._groups.get_or_create(group, now_ms) is not None
        )

    def unlock_queues(self, request: IncomingRequest[None]) -> Reply:
        """Unlock queues that a client holds."""
        body = decode_body(LockBody, request.body)
        for queue in body.mq_set:
            self._locks.unlock(body.consumer_group, body.client_id, queue.topic, queue.queue_id)
        return DONE

    # -- filters -----------------------------------------------------------------------------

    def check_subscription(self, request: IncomingRequest[None]) -> Reply:
        """Answer whether this broker supports a subscription."""
        if request.body:
            subscription = decode_body(CheckClientBody, request.body).subscription_data
            if subscription is not None and not is_tag_expression(subscription.expression_type):
                if not self._settings.has_property_filter:
                    return Refusal(
                        Response.SYSTEM_ERROR,
                        "The broker does not support consumer to filter message by "
                        f"{subscription.expression_type}",
                    )
                try:
                    self._selectors.selector_of_subscription(subscription)
                except FilterError as error:
                    return Refusal(Response.SUBSCRIPTION_PARSE_FAILED, str(error))
        return DONE


def _check_subscription_size(subscription: SubscriptionBody) -> None:
    size = subscription.letters_count + len(subscription.code_set)
    if size > SUBSCRIPTION_SIZE_MAX:
        raise UsageError(
            f"heartbeat: a subscription of {size} characters, topic, expression and tags together; "
            f"{SUBSCRIPTION_SIZE_MAX} are allowed; select by a property that many messages share"
        )


def language_name(language: str | int | None) -> str:
    """Return RocketMQ's name of a client's language, from its form in either header encoding."""
    if isinstance(language, int):
        return LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return language if language in LANGUAGES else "OTHER"
