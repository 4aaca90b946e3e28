"""Consumer groups: list, describe, create, change and delete them; their progress."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import INT_MAX, TOPIC_QUEUES_MAX
from escrowmq.base.message import Topic
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.redelivery import ATTEMPTS_DEFAULT
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.core.validation import check_group
from escrowmq.codec.client_bodies import SubscriptionBody, decode_queue_table
from escrowmq.codec.large_answers import ACCEPTS_ZLIB
from escrowmq.errors import ConsumerOffline, GroupNotFound, UsageError

if TYPE_CHECKING:
    from escrowmq.client.admin.dead_letters import DeadLetter

_SYSTEM_PREFIXES: Final = ("CID_RMQ_SYS_", "CID_ONS")
_SYSTEM_GROUPS: Final = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"})


class GroupInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """A consumer group, as one broker has it."""

    group: str
    broker: str
    attempts_max: int
    retry_queues: int
    is_enabled: bool
    may_broadcast: bool
    is_ordered: bool


class ConnectedConsumer(msgspec.Struct, kw_only=True, rename="camel"):
    """A connected consumer."""

    client_id: str
    address: str
    language: str
    version: int


class GroupMembers(msgspec.Struct, kw_only=True, rename="camel"):
    """The connected members of a group, and their subscriptions."""

    members: list[ConnectedConsumer] = []
    model: str = ""
    """`CLUSTERING` or `BROADCASTING`; empty without members."""
    kind: str = ""
    """`CONSUME_PASSIVELY` (push), `CONSUME_ACTIVELY` (pull) or `CONSUME_POP`."""
    consume_from: str = ""
    topics: dict[str, str] = {}
    """Topics, and which of their messages the members subscribe to."""


class _GroupOffsets(msgspec.Struct, rename="camel"):
    """A group's offsets in one queue, in a broker's answer (RocketMQ's OffsetWrapper)."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_timestamp: int = 0


class Lag(msgspec.Struct, kw_only=True, rename="camel"):
    """A group's progress in one queue."""

    queue: MessageQueue
    end: int
    """The end of the queue: the offset that the next stored message will get."""
    committed: int
    inflight: int
    """Messages that were fetched and not acknowledged yet."""
    consumed_ms: int
    """The store time of the last acknowledged message; 0 if there is none."""

    @property
    def count(self) -> int:
        """Messages that are not acknowledged yet."""
        return max(0, self.end - self.committed)


class GroupDescription(msgspec.Struct, kw_only=True, rename="camel"):
    """A group's configuration, members and progress."""

    group: str
    brokers: list[GroupInfo]
    online: GroupMembers
    lags: list[Lag]
    missing: list[str] = []
    """Brokers that left within the last hour; what they know about the group is not included."""

    @property
    def lag(self) -> int:
        """Messages that are not acknowledged yet, in all queues."""
        return sum(one.count for one in self.lags)


class _GroupConfig(msgspec.Struct, rename="camel", kw_only=True):
    group_name: str
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_max_times: int = ATTEMPTS_DEFAULT
    retry_queue_nums: int = 1


class _GroupTable(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, dict[str, Any]] = {}


class _ConsumerConnection(msgspec.Struct, rename="camel"):
    client_id: str
    client_addr: str = ""
    language: str | int = ""
    version: int = 0


class _ConsumerConnections(msgspec.Struct, rename="camel"):
    connection_set: list[_ConsumerConnection] = []
    consume_from_where: str = ""
    consume_type: str = ""
    message_model: str = ""
    subscription_table: dict[str, SubscriptionBody] = {}


class Groups:
    """Consumer groups: `Admin.groups`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def names(self, *, with_system: bool = False) -> list[str]:
        """Return the names of consumer groups, sorted; `with_system` adds the brokers' own."""
        found: set[str] = set()
        for address in (await self._cluster.all_read_addresses()).values():
            found |= (await self._config_table(address)).keys()
        if not with_system:
            found -= _SYSTEM_GROUPS
            found = {name for name in found if not name.startswith(_SYSTEM_PREFIXES)}
        return sorted(self._cluster.without_namespace(name) for name in found)

    async def describe(self, group: str) -> GroupDescription:
        """Return a group's configuration on each broker, its members and its progress. Raises
        GroupNotFound if there is none."""
        infos: list[GroupInfo] = []
        for name, address in (await self._cluster.all_read_addresses()).items():
            config = (await self._config_table(address)).get(self._cluster.with_namespace(group))
            if config is not None:
                with convert_parse_errors(address, Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
                    infos.append(
                        _group_info(
                            group, name, msgspec.convert(config, _GroupConfig, strict=False)
                        )
                    )
        if not infos:
            raise GroupNotFound(f"there is no consumer group {group!r}")
        return GroupDescription(
            group=group,
            brokers=infos,
            online=await self.members(group),
            lags=await self.lag(group),
            missing=await self._cluster.missing_names(),
        )

    async def create(
        self,
        group: str,
        *,
        attempts_max: int | None = None,
        retry_queues: int | None = None,
        is_enabled: bool | None = None,
        may_broadcast: bool | None = None,
        is_ordered: bool | None = None,
    ) -> None:
        """Create a group on all brokers, by default with 16 attempts and one retry queue, enabled.
        If the group exists, the given fields are changed and nothing else."""
        check_group(group)
        name = self._cluster.with_namespace(group)
        changes = _changed_fields(attempts_max, retry_queues, is_enabled, may_broadcast, is_ordered)
        for address in (await self._cluster.masters()).values():
            config = (await self._config_table(address)).get(name)
            known = (
                config if config is not None else msgspec.to_builtins(_GroupConfig(group_name=name))
            )
            await self._send_config(address, {**known, **changes})

    async def update(
        self,
        group: str,
        *,
        attempts_max: int | None = None,
        retry_queues: int | None = None,
        is_enabled: bool | None = None,
        may_broadcast: bool | None = None,
        is_ordered: bool | None = None,
    ) -> None:
        """Change the given fields wherever the group exists. Raises GroupNotFound if there is
        none."""
        changes = _changed_fields(attempts_max, retry_queues, is_enabled, may_broadcast, is_ordered)
        is_known = False
        for address in (await self._cluster.masters()).values():
            config = (await self._config_table(address)).get(self._cluster.with_namespace(group))
            if config is not None:
                is_known = True
                await self._send_config(address, {**config, **changes})
        if not is_known:
            raise GroupNotFound(f"there is no consumer group {group!r}; create it first")

    async def delete(self, group: str) -> None:
        """Delete a group with its offsets, retries and dead letters. Raises GroupNotFound if there
        is none."""
        wire_group = self._cluster.with_namespace(group)
        masters = await self._cluster.masters()
        known = [wire_group in await self._config_table(address) for address in masters.values()]
        if not any(known):
            raise GroupNotFound(f"there is no consumer group {group!r}")
        fields = {"groupName": wire_group, "cleanOffset": "true"}
        for address in masters.values():
            await self._cluster.ask(address, Request.DELETE_SUBSCRIPTIONGROUP, fields)
        for prefix in (Topic.RETRY_PREFIX, Topic.DLQ_PREFIX):
            topic = {"topic": prefix + wire_group}
            for address in masters.values():
                await self._cluster.ask(address, Request.DELETE_TOPIC_IN_BROKER, topic)
            for address in self._cluster.instance.options.name_servers:
                await self._cluster.ask(address, Request.DELETE_TOPIC_IN_NAMESRV, topic)

    async def redeliver_dead(
        self,
        group: str,
        *,
        topic: str = "",
        limit: int | None = None,
        dry_run: bool = False,
        only: Sequence[tuple[str, int, int]] | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Redeliver a group's dead letters to it, the oldest first. No other group sees the copies,
        and their attempts are counted from zero. `topic` selects those that failed there, `limit`
        sets a maximum, `dry_run` only lists them. `only` selects single ones, each by broker, queue
        and queue offset, as a dry run lists them.

        Each dead letter is redelivered once, however often this is called, even after a crash in
        between: one that was redelivered before is listed as `done`. A copy that fails again
        becomes another dead letter. For EscrowMQ's brokers; RocketMQ's raise NotSupported.

        >>> with escrowmq.Admin(nameserver) as admin:
        ...     [letter.status for letter in admin.groups.redeliver_dead("mailer", dry_run=True)]
        []
        """
        from escrowmq.client.admin.dead_letters import redeliver

        async for letter in redeliver(
            self._cluster, group, topic=topic, limit=limit, dry_run=dry_run, only=only
        ):
            yield letter

    async def members(self, group: str) -> GroupMembers:
        """Return the connected members; having none is not an error."""
        fields = {"consumerGroup": self._cluster.with_namespace(group)}
        found = GroupMembers()
        seen: dict[str, ConnectedConsumer] = {}
        for address in (await self._cluster.all_read_addresses()).values():
            try:
                online = await self._cluster.ask_decoded(
                    address,
                    Request.GET_CONSUMER_CONNECTION_LIST,
                    _ConsumerConnections,
                    fields=fields,
                )
            except ConsumerOffline:
                continue
            for one in online.connection_set:
                seen[one.client_id] = ConnectedConsumer(
                    client_id=one.client_id,
                    address=one.client_addr,
                    language=str(one.language),
                    version=one.version,
                )
            found.model, found.kind = online.message_model, online.consume_type
            found.consume_from = online.consume_from_where
            for topic, wanted in online.subscription_table.items():
                found.topics[self._cluster.without_namespace(topic)] = wanted.sub_string or "*"
        found.members = [seen[name] for name in sorted(seen)]
        return found

    async def lag(self, group: str, *, topic: str = "") -> list[Lag]:
        """Return the group's progress by queue, in all topics that it reads or in one."""
        fields = {"consumerGroup": self._cluster.with_namespace(group)}
        if topic:
            fields["topic"] = self._cluster.with_namespace(topic)
        found: list[Lag] = []
        for address in (await self._cluster.all_read_addresses()).values():
            reply = await self._cluster.ask(address, Request.GET_CONSUME_STATS, fields)
            with convert_parse_errors(address, Request.GET_CONSUME_STATS):
                found += self._parse_lags(reply.body)
        return sorted(found, key=lambda one: one.queue)

    # -- inside ------------------------------------------------------------------------------

    async def _config_table(self, address: str) -> dict[str, dict[str, Any]]:
        code = Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        found = await self._cluster.ask_decoded(address, code, _GroupTable, fields=ACCEPTS_ZLIB)
        return found.subscription_group_table

    async def _send_config(self, address: str, config: dict[str, Any]) -> None:
        body = msgspec.json.encode(config)
        await self._cluster.ask(address, Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)

    def _parse_lags(self, body: bytes) -> list[Lag]:
        return [
            Lag(
                queue=MessageQueue(
                    self._cluster.without_namespace(queue.topic), queue.broker_name, queue.queue_id
                ),
                end=status.broker_offset,
                committed=status.consumer_offset,
                inflight=max(0, status.pull_offset - status.consumer_offset),
                consumed_ms=status.last_timestamp,
            )
            for queue, status in decode_queue_table(_GroupOffsets, body).items()
        ]


_COUNTS_MAX: Final = {"attempts_max": INT_MAX, "retry_queues": TOPIC_QUEUES_MAX}


def check_group_counts(**given: object) -> None:
    """Raise UsageError if a number is not allowed for a group."""
    for name, most in _COUNTS_MAX.items():
        count = given.get(name)
        if isinstance(count, int) and not 0 <= count <= most:
            raise UsageError(f"{name}={count}; 0 to {most} are allowed")


def _changed_fields(
    attempts_max: int | None,
    retry_queues: int | None,
    is_enabled: bool | None,
    may_broadcast: bool | None,
    is_ordered: bool | None,
) -> dict[str, Any]:
    """Return those fields that are not None, under RocketMQ's names."""
    check_group_counts(attempts_max=attempts_max, retry_queues=retry_queues)
    given = {
        "retryMaxTimes": attempts_max,
        "retryQueueNums": retry_queues,
        "consumeEnable": is_enabled,
        "consumeBroadcastEnable": may_broadcast,
        "consumeMessageOrderly": is_ordered,
    }
    return {name: value for name, value in given.items() if value is not None}


def _group_info(group: str, broker: str, config: _GroupConfig) -> GroupInfo:
    return GroupInfo(
        group=group,
        broker=broker,
        attempts_max=config.retry_max_times,
        retry_queues=config.retry_queue_nums,
        is_enabled=config.consume_enable,
        may_broadcast=config.consume_broadcast_enable,
        is_ordered=config.consume_message_orderly,
    )
