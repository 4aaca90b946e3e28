"""Offsets of consumer groups: show, reset and clone them."""

from __future__ import annotations

import datetime as dt
from typing import Final, Literal

from escrowmq.base.codes import Request
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.groups import Groups, Lag
from escrowmq.client.core.routes import MessageQueue, read_queues
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.offsets import BrokerOffsets, QueueBounds
from escrowmq.codec.client_bodies import decode_queue_table
from escrowmq.errors import ConsumerOffline, GroupNotFound, UsageError

ResetPosition = dt.datetime | Literal["first", "last"]
"""Where a group should continue: at the first message stored since a time, at the oldest message,
or at the end."""

_LATEST: Final = -1


class Offsets:
    """Offsets of groups: `Admin.offsets`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster
        self._groups = Groups(cluster)

    async def show(self, group: str, *, topic: str = "") -> list[Lag]:
        """Return a group's progress by queue. Raises GroupNotFound if there is none."""
        found = await self._groups.lag(group, topic=topic)
        # Brokers show a group that they do not know as a new one.
        if not any(lag.committed > 0 for lag in found) and group not in await self._group_names():
            raise GroupNotFound(f"there is no consumer group {group!r}")
        return found

    async def reset(self, group: str, topic: str, to: ResetPosition) -> dict[MessageQueue, int]:
        """Move a group back or forward in all queues of a topic; return the new offsets. Connected
        members follow by themselves. Raises RouteMissing, and changes nothing, while a broker of
        the topic has no master; `set` can set queues on the others."""
        moment_ms = _position_to_ms(to)
        found: dict[MessageQueue, int] = {}
        names = await self._cluster.broker_names_of(topic)
        for name, address in self._cluster.masters_to_change(topic, names).items():
            fields = self._reset_fields(group, topic, moment_ms)
            try:
                reply = await self._cluster.ask(
                    address, Request.INVOKE_BROKER_TO_RESET_OFFSET, fields
                )
            except ConsumerOffline:
                found |= await self._reset_each_queue(group, topic, name, moment_ms)
                continue
            with convert_parse_errors(address, Request.INVOKE_BROKER_TO_RESET_OFFSET):
                table = decode_queue_table(int, reply.body)
            for queue, queue_offset in table.items():
                found[MessageQueue(topic, queue.broker_name, queue.queue_id)] = queue_offset
        return found

    async def preview(self, group: str, topic: str, to: ResetPosition) -> dict[MessageQueue, int]:
        """Return the offsets that `reset` would set now, without setting them."""
        moment_ms = _position_to_ms(to)
        found: dict[MessageQueue, int] = {}
        for name in await self._cluster.broker_names_of(topic):
            found |= await self._offsets_at_time(topic, name, moment_ms)
        return found

    async def set(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Make a group continue at an offset of one queue. Connected members follow by
        themselves."""
        wire = await self.check_set(queue, queue_offset)
        address = self._cluster.instance.address_of(queue.broker_name)
        fields = self._reset_fields(group, queue.topic, _LATEST)
        fields |= {"queueId": str(queue.queue_id), "offset": str(queue_offset)}
        try:
            await self._cluster.ask(address, Request.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        except ConsumerOffline:
            await self._broker_offsets(group).commit(wire, queue_offset)

    async def check_set(self, queue: MessageQueue, queue_offset: int) -> MessageQueue:
        """Raise UsageError if `set` would refuse the queue or the offset; changes nothing. Returns
        the queue as brokers name it."""
        names = await self._cluster.broker_names_of(queue.topic)
        if queue.broker_name not in names:
            raise UsageError(
                f"{queue.topic!r} is not on {queue.broker_name!r}; it is on {', '.join(names)}"
            )
        wire = MessageQueue(
            self._cluster.with_namespace(queue.topic), queue.broker_name, queue.queue_id
        )
        known = read_queues(wire.topic, await self._cluster.instance.route(wire.topic))
        if wire not in known:
            raise UsageError(
                f"{queue.topic!r} has no queue {queue.queue_id} on {queue.broker_name!r}; "
                f"{sum(one.broker_name == wire.broker_name for one in known)} can be read "
                "there, numbered from 0"
            )
        self._cluster.instance.address_of(queue.broker_name)  # raises if it has no master
        bounds = QueueBounds(self._cluster.instance)
        low, end = await bounds.first_offset(wire), await bounds.end_offset(wire)
        if not low <= queue_offset <= end:
            raise UsageError(
                f"{queue.topic!r} has offsets {low} to {end} in queue {queue.queue_id} on "
                f"{queue.broker_name!r}; {queue_offset} is not among them"
            )
        return wire

    async def clone(self, source: str, target: str, *, topic: str = "") -> None:
        """Give one group the offsets of another, in all topics or in one. Raises GroupNotFound if
        the other one does not exist."""
        await self.show(source, topic=topic)
        fields = {
            "srcGroup": self._cluster.with_namespace(source),
            "destGroup": self._cluster.with_namespace(target),
            "offline": "true",
        }
        if topic:
            fields["topic"] = self._cluster.with_namespace(topic)
        for address in (await self._cluster.masters()).values():
            await self._cluster.ask(address, Request.CLONE_GROUP_OFFSET, fields)

    # -- inside ------------------------------------------------------------------------------

    async def _group_names(self) -> list[str]:
        return await self._groups.names(with_system=True)

    def _reset_fields(self, group: str, topic: str, moment_ms: int) -> dict[str, str]:
        return {
            "topic": self._cluster.with_namespace(topic),
            "group": self._cluster.with_namespace(group),
            "timestamp": str(moment_ms),
            "isForce": "true",
            "queueId": "-1",
            "offset": "-1",
        }

    def _broker_offsets(self, group: str) -> BrokerOffsets:
        return BrokerOffsets(self._cluster.instance, self._cluster.with_namespace(group), "last")

    async def _reset_each_queue(
        self, group: str, topic: str, broker_name: str, moment_ms: int
    ) -> dict[MessageQueue, int]:
        """Reset offsets queue by queue, without the broker's help: RocketMQ 4's brokers expect this
        of the admin tool while no member is connected."""
        found = await self._offsets_at_time(topic, broker_name, moment_ms)
        keeper = self._broker_offsets(group)
        for queue, queue_offset in found.items():
            wire = MessageQueue(
                self._cluster.with_namespace(topic), queue.broker_name, queue.queue_id
            )
            await keeper.commit(wire, queue_offset)
        return found

    async def _offsets_at_time(
        self, topic: str, broker_name: str, moment_ms: int
    ) -> dict[MessageQueue, int]:
        """Return, for each queue of a broker, the offset that corresponds to a time."""
        wire_topic = self._cluster.with_namespace(topic)
        route = await self._cluster.instance.route(wire_topic)
        bounds = QueueBounds(self._cluster.instance)
        found: dict[MessageQueue, int] = {}
        for queue in read_queues(wire_topic, route):
            if queue.broker_name == broker_name:
                is_end = moment_ms == _LATEST
                place = await (
                    bounds.end_offset(queue) if is_end else bounds.offset_at_time(queue, moment_ms)
                )
                found[MessageQueue(topic, broker_name, queue.queue_id)] = place
        return found


def _position_to_ms(to: ResetPosition) -> int:
    if isinstance(to, dt.datetime):
        if to.tzinfo is None:
            raise UsageError(f"{to!r} has no time zone; give it one")
        return max(0, int(to.timestamp() * 1000))  # brokers take any number below 0 for the end
    if to not in ("first", "last"):
        raise UsageError(f"to={to!r}; 'first', 'last' or a datetime is expected")
    return 0 if to == "first" else _LATEST
