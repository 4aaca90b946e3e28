"""Answers to an on-call engineer's questions: what happened to a message, and what is wrong in the
cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Literal

import msgspec

from escrowmq.base.human_format import format_moment, format_span
from escrowmq.base.message import Topic
from escrowmq.client.admin.brokers import Brokers
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.groups import GroupDescription, Groups, Lag
from escrowmq.client.admin.messages import Messages
from escrowmq.client.admin.replicas import Replicas
from escrowmq.client.admin.topics import Topics
from escrowmq.client.admin.transactions import Transactions
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.errors import (
    GroupNotFound,
    NotFound,
    ResponseError,
    RouteMissing,
    TopicNotFound,
    UsageError,
)

GROUPS_MAX: Final = 200
"""At most this many groups are examined for one answer; the others are listed as left out."""

_OLD_MS: Final = 30 * 60_000
_BEHIND: Final = 10_000
_DELAYED: Final = ("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX")
_ENDED: Final = frozenset({"committed", "rolled_back", "expired", "settled"})

State = Literal[
    "not read", "in flight", "consumed", "filtered out", "retried", "dead letter", "stopped"
]


class GroupDelivery(msgspec.Struct, kw_only=True, rename="camel"):
    """How far one consumer group is with one message: whether it has read, acknowledged or failed
    it."""

    group: str
    state: State
    detail: str = ""


class Explanation(msgspec.Struct, kw_only=True, rename="camel"):
    """What happened to a message: where it is, its transaction, and its consumer groups."""

    message_id: str
    state: str
    """`visible`, `delayed`, or the state of its transaction (`waiting`, `parked`, `rolled_back`,
    ...)."""
    topic: str = ""
    facts: list[str] = []
    """Everything known about the message, one sentence each."""
    deliveries: list[GroupDelivery] = []


class Finding(msgspec.Struct, kw_only=True, rename="camel"):
    """A problem, or a possible problem, in the cluster."""

    severity: Literal["problem", "warning"]
    subject: str
    what: str
    hint: str
    """What to do, or which command to run next."""


class Event(msgspec.Struct, kw_only=True, rename="camel"):
    """Something that happened in a cluster."""

    at_ms: int
    subject: str
    what: str
    who: str = ""
    """The account or address that caused the event; empty if it had no such cause."""


class Diagnosis:
    """Explanations of a message's fate and of the cluster's problems: `Admin.diagnosis`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster
        self._brokers, self._groups = Brokers(cluster), Groups(cluster)
        self._messages, self._topics = Messages(cluster), Topics(cluster)
        self._transactions, self._replicas = Transactions(cluster), Replicas(cluster)

    # -- one message -------------------------------------------------------------------------

    async def message(self, message_id: str, *, topic: str = "") -> Explanation:
        """Explain what happened to a message: where it is, the state of its transaction, and how
        far each consumer group is with it. An id that a producer got needs the message's topic.
        Raises NotFound if no broker knows the message.

        >>> async def main():
        ...     async with escrowmq.aio.Admin(nameserver) as admin:
        ...         sent = await admin.messages.send(escrowmq.Message("explained", b"hello"))
        ...         return await admin.diagnosis.message(sent.message_id, topic="explained")
        >>> asyncio.run(main()).state
        'visible'
        """
        found = Explanation(message_id=message_id, state="", topic=topic)
        await self._explain_transaction(message_id, topic, found)
        try:
            stored = await self._messages.get(message_id, topic=topic)
        except NotFound:
            stored = None
        if stored is not None and stored.topic not in _DELAYED:
            await self._explain_visible(stored, found)
        elif not found.state:
            await self._explain_delayed(message_id, found)
        if not found.state:
            hint = "" if topic else "; an id that a producer got needs its topic"
            raise NotFound(
                f"no broker knows a message {message_id}{hint}. It was never stored, or the "
                "log no longer reaches back to it"
            )
        return found

    async def _explain_transaction(self, message_id: str, topic: str, found: Explanation) -> None:
        try:
            halves = await self._transactions.show(message_id, topic=topic)
        except (NotFound, ResponseError, UsageError):
            return  # RocketMQ's brokers cannot say it; and a message may have any id
        half = halves[0]
        found.topic = half.topic
        found.state = half.state
        if half.state in _ENDED:
            by = f" by {half.ended_by} {half.ended_who}".rstrip() if half.ended_by else ""
            found.facts.append(
                f"its transaction is {half.state} since {format_moment(half.ended_ms)}{by}"
            )
        else:
            found.facts.append(
                f"its transaction is pending ({half.state}) for {format_span(half.age_ms)}: group "
                f"{half.group} was asked {half.checks} times, next at "
                f"{format_moment(half.next_check_ms)}"
            )
        if half.state == "parked":
            found.facts.append(f"no producer of group {half.group} is connected to be asked")
        found.facts += [
            f"{format_moment(event.at_ms)} {event.what} {event.who} {event.detail}".rstrip()
            for event in half.events
        ]

    async def _explain_delayed(self, message_id: str, found: Explanation) -> None:
        for name in _DELAYED:
            try:
                stored = await self._messages.get(message_id, topic=name)
            except (NotFound, RouteMissing, ResponseError):
                continue
            found.state = "delayed"
            due_ms = int(stored.system.get("TIMER_OUT_MS") or 0)
            level = stored.system.get("DELAY", "")
            when = f"delivered at {format_moment(due_ms)}" if due_ms else f"on delay level {level}"
            found.facts.append(f"it waits for its time, and is {when}")

    async def _explain_visible(self, message: ReceivedMessage, found: Explanation) -> None:
        found.state, found.topic = "visible", message.topic
        place = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
        found.facts.append(
            f"it is in topic {message.topic} at {place} since {format_moment(message.stored_ms)}"
        )
        try:
            groups = (await self._topics.describe(message.topic)).groups
        except TopicNotFound:
            groups = []
        if not groups:
            found.facts.append("no consumer group has read this topic, and none is connected")
        for group in groups[:GROUPS_MAX]:
            found.deliveries.append(await self._explain_delivery(message, group))
        if len(groups) > GROUPS_MAX:
            found.facts.append(f"{len(groups) - GROUPS_MAX} more groups were not looked at")

    async def _explain_delivery(self, message: ReceivedMessage, group: str) -> GroupDelivery:
        try:
            known = await self._groups.describe(group)
        except GroupNotFound:
            return GroupDelivery(group=group, state="not read", detail="the group is deleted")
        if not any(one.is_enabled for one in known.brokers):
            return GroupDelivery(group=group, state="stopped", detail="the group may not consume")
        lag = _lag_in_queue_of(known, message)
        if lag is None or lag.committed <= message.queue_offset:
            return _unacknowledged_delivery(known, lag, message)
        wanted = known.online.topics.get(message.topic, "")
        if not _may_match_tag(wanted, message.tag):
            detail = f"it wants {wanted}, the tag is {message.tag or 'empty'}"
            return GroupDelivery(group=group, state="filtered out", detail=detail)
        dead = await self._find_copy(f"{Topic.DLQ_PREFIX}{group}", message)
        if dead is not None:
            times = dead.deliveries_before
            detail = f"given up {format_moment(dead.stored_ms)}, after {times} deliveries"
            return GroupDelivery(group=group, state="dead letter", detail=detail)
        for name in (group, f"{group}_{message.topic}", f"{group}+{message.topic}"):
            again = await self._find_copy(f"{Topic.RETRY_PREFIX}{name}", message)
            if again is not None:
                times = again.deliveries_before
                detail = (
                    f"redelivered since {format_moment(again.stored_ms)}, {times} deliveries before"
                )
                return GroupDelivery(group=group, state="retried", detail=detail)
        detail = f"the group is at {lag.committed} of {lag.end}"
        return GroupDelivery(group=group, state="consumed", detail=detail)

    async def _find_copy(self, topic: str, message: ReceivedMessage) -> ReceivedMessage | None:
        try:
            return await self._messages.get(message.message_id, topic=topic)
        except (NotFound, RouteMissing, ResponseError):
            return None

    # -- the cluster -------------------------------------------------------------------------

    async def cluster(self) -> list[Finding]:
        """Return what is wrong in this cluster, or may be; problems come first.

        >>> async def main():
        ...     async with escrowmq.aio.Admin(nameserver) as admin:
        ...         return await admin.diagnosis.cluster()
        >>> [finding.what for finding in asyncio.run(main()) if finding.severity == "problem"]
        []
        """
        found = [one async for one in self._broker_findings()]
        found += [one async for one in self._replica_findings()]
        found += [one async for one in self._transaction_findings()]
        found += [one async for one in self._group_findings()]
        return sorted(found, key=lambda one: one.severity)

    async def events(self) -> list[Event]:
        """Return what happened, the newest first: starts of brokers, brokers that left within the
        last hour, settings that differ from those of the start, and drills. The audit log has all
        changes.

        >>> async def main():
        ...     async with escrowmq.aio.Admin(nameserver) as admin:
        ...         return [event.what for event in await admin.diagnosis.events()]
        >>> "started" in asyncio.run(main())[-1]
        True
        """
        found: list[Event] = []
        for broker in await self._brokers.all():
            subject = f"broker {broker.name}"
            runtime = await self._brokers.runtime(broker.name) if broker.id == 0 else {}
            started_ms = runtime.get("bootTimestamp", "")
            if started_ms.isdecimal():
                build = broker.build or broker.version
                what = f"started, build {build}" if build else "started"
                found.append(Event(at_ms=int(started_ms), subject=subject, what=what))
            if not broker.build or broker.id:  # RocketMQ's do not say what was changed
                continue
            for one in await self._brokers.changes(broker.name):
                what = f"{one.name} set to {one.value or 'empty'} (was {one.before or 'empty'})"
                found.append(Event(at_ms=one.at_ms, subject=subject, what=what, who=one.who))
        for gone in await self._brokers.gone():
            what = "stopped" if gone.was_stopped else "left without signing off"
            found.append(Event(at_ms=gone.gone_ms, subject=f"broker {gone.name}", what=what))
        for member in (await self._replicas.reports()).values():
            for fault in member.faults:
                lasting = f" for {format_span(fault.span_ms)}" if fault.span_ms else ""
                found.append(
                    Event(
                        at_ms=fault.at_ms,
                        subject=f"broker {member.broker}, member {member.member}",
                        what=f"drill {fault.drill}: {fault.fault}{lasting}",
                        who=fault.who,
                    )
                )
        return sorted(found, key=lambda event: -event.at_ms)

    async def _broker_findings(self) -> AsyncIterator[Finding]:
        brokers = await self._brokers.all()
        builds = {broker.build for broker in brokers if broker.build}
        for broker in brokers:
            runtime = await self._brokers.runtime(broker.name) if broker.id == 0 else {}
            if runtime.get("escrowReadOnly"):
                yield Finding(
                    severity="problem", subject=f"broker {broker.name}",
                    what=f"it takes no messages: {runtime['escrowReadOnly']}",
                    hint="remove the cause; it recovers by itself, or says that it needs a restart",
                )  # fmt: skip
            ratio = _parse_ratio(runtime.get("commitLogDiskRatio", ""))
            if ratio > 0.8:
                yield Finding(
                    severity="warning", subject=f"broker {broker.name}",
                    what=f"its disk is {ratio:.0%} full",
                    hint="lower fileReservedTime, or give it a larger disk",
                )  # fmt: skip
        here = {broker.name for broker in brokers}
        for gone in await self._brokers.gone():
            how = "was stopped" if gone.was_stopped else "left without a word"
            yield Finding(
                severity="warning" if gone.name in here else "problem",
                subject=f"broker {gone.name} at {gone.address}",
                what=f"it {how} at {format_moment(gone.gone_ms)}, and has not come back",
                hint="start it: there is one copy less of what the others of its name have"
                if gone.name in here
                else "start it: its pending transactions can neither commit nor roll back",
            )  # fmt: skip
        if len(builds) > 1:
            yield Finding(
                severity="warning", subject="brokers",
                what=f"they run different builds: {', '.join(sorted(builds))}",
                hint="finish the upgrade",
            )  # fmt: skip

    async def _replica_findings(self) -> AsyncIterator[Finding]:
        for group in await self._replicas.status():
            for note in group.notes:
                yield Finding(
                    severity="warning" if group.master and "no messages" not in note else "problem",
                    subject=f"broker {group.broker}", what=note,
                    hint="`escrowmq cluster status` has its members, and what each lacks",
                )  # fmt: skip
            for member in group.members:
                if group.kind == "pair" and member.note:
                    yield Finding(
                        severity="warning", subject=f"broker {group.broker}, slave {member.name}",
                        what=member.note, hint="docs/replication.md says what to do",
                    )  # fmt: skip

    async def _transaction_findings(self) -> AsyncIterator[Finding]:
        counts = await self._transactions.count()
        for group, count in sorted(counts.parked_by_group.items()):
            yield Finding(
                severity="problem", subject=f"producer group {group}",
                what=f"{count} pending transactions, and no producer is connected to be asked",
                hint="start a producer of the group, or answer with `escrowmq check-from-db`",
            )  # fmt: skip
        old = await self._transactions.count(min_age_ms=_OLD_MS)
        if old.count - old.parked > 0:
            yield Finding(
                severity="warning", subject="transactions",
                what=f"{old.count - old.parked} are pending for over {format_span(_OLD_MS)}",
                hint="`escrowmq tx list --older-than 30m` shows them",
            )  # fmt: skip
        if counts.not_counted:
            yield Finding(
                severity="warning", subject="transactions",
                what=f"not counted on {', '.join(counts.not_counted)}",
                hint="RocketMQ's brokers cannot say it",
            )  # fmt: skip

    async def _group_findings(self) -> AsyncIterator[Finding]:
        names = await self._groups.names()
        for name in names[:GROUPS_MAX]:
            group = await self._groups.describe(name)
            where = f"consumer group {name}"
            if group.lag and not any(one.is_enabled for one in group.brokers):
                yield Finding(
                    severity="warning", subject=where,
                    what=f"it may not consume, and {group.lag} messages wait",
                    hint=f"`escrowmq group update {name} --enabled`",
                )  # fmt: skip
            elif group.lag and not group.online.members:
                yield Finding(
                    severity="warning", subject=where,
                    what=f"{group.lag} messages wait, and no consumer is connected",
                    hint="start its consumers, or delete the group",
                )  # fmt: skip
            elif group.lag > _BEHIND:
                yield Finding(
                    severity="warning", subject=where, what=f"it is {group.lag} messages behind",
                    hint=f"`escrowmq group show {name}` has its queues and members",
                )  # fmt: skip
            async for finding in self._dead_letter_findings(name):
                yield finding
        if len(names) > GROUPS_MAX:
            yield Finding(
                severity="warning", subject="consumer groups",
                what=f"{len(names) - GROUPS_MAX} of {len(names)} were not looked at",
                hint="metrics have the lag of all (docs/operating.md)",
            )  # fmt: skip

    async def _dead_letter_findings(self, group: str) -> AsyncIterator[Finding]:
        try:
            count = (await self._topics.describe(f"{Topic.DLQ_PREFIX}{group}")).count
        except (TopicNotFound, ResponseError):
            return
        if count:
            yield Finding(
                severity="warning", subject=f"consumer group {group}",
                what=f"{count} dead letters",
                hint=f"`escrowmq group redeliver-dead {group} --dry-run` shows them",
            )  # fmt: skip


def _lag_in_queue_of(group: GroupDescription, message: ReceivedMessage) -> Lag | None:
    for lag in group.lags:
        queue = lag.queue
        if (queue.topic, queue.broker_name, queue.queue_id) == (
            message.topic, message.broker_name, message.queue_id,
        ):  # fmt: skip
            return lag
    return None


def _unacknowledged_delivery(
    group: GroupDescription, lag: Lag | None, message: ReceivedMessage
) -> GroupDelivery:
    if lag is None:
        return GroupDelivery(
            group=group.group, state="not read", detail="it has read nothing there"
        )
    if message.queue_offset < lag.committed + lag.inflight:
        detail = "a consumer has fetched it, and not acknowledged it"
        return GroupDelivery(group=group.group, state="in flight", detail=detail)
    before = message.queue_offset - max(lag.committed, 0)
    who = "" if group.online.members else "; no consumer is connected"
    return GroupDelivery(
        group=group.group, state="not read", detail=f"{before} messages before it{who}"
    )


def _may_match_tag(expression: str, tag: str) -> bool:
    """Whether a group may want a message, by its tag; always True for SQL92, which cannot be
    evaluated here."""
    tags = [each.strip() for each in expression.split("||")]
    is_sql = any(" " in each or "=" in each for each in tags)
    return is_sql or tags == [""] or "*" in tags or tag in tags


def _parse_ratio(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
