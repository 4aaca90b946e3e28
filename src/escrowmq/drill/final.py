"""The end of a drill: settles open transactions, and reads all queues to their ends."""

from __future__ import annotations

import asyncio
from typing import Final

from escrowmq.client.admin.admin import Admin
from escrowmq.client.core.routes import MessageQueue
from escrowmq.drill.history import Event, ReadMessage
from escrowmq.errors import EscrowMQError, NotFound
from escrowmq.net.clock import steady_ns

SETTLE_S: Final = 60.0
_CHECK_S: Final = 5.0
"""Interval in seconds at which checks are requested. It must not be short: unanswered checks count
too, and after some of them a transaction is given up."""
_LOOK_S: Final = 0.2
_PULL_COUNT: Final = 32


async def settle_transactions(
    admin: Admin, broker: str, group: str, *, within_s: float = SETTLE_S
) -> frozenset[str]:
    """Make the broker check a producer group's pending transactions, until none is left or time is
    over. Return the keys of those that are left."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    check_s = loop.time()
    while True:
        try:
            if not (await admin.transactions.count(broker=broker, group=group)).count:
                return frozenset()
            if loop.time() >= end_s:
                left = admin.transactions.pending(broker=broker, group=group)
                return frozenset([each.keys async for each in left])
            if loop.time() >= check_s:
                check_s = loop.time() + _CHECK_S
                await admin.transactions.check(broker=broker, group=group, reason="drill")
        except EscrowMQError:  # it may have no master for a moment
            if loop.time() >= end_s:
                raise
        await asyncio.sleep(_LOOK_S)


async def read_all_queues(admin: Admin, topic: str) -> tuple[list[Event], list[str]]:
    """Read all queues of a topic to their ends; return the messages, and errors for what could not
    be read."""
    found: list[Event] = []
    notes: list[str] = []
    for status in (await admin.topics.describe(topic)).queues:
        begin_ns = steady_ns()
        queue, offset = status.queue, status.min_offset
        while offset < status.max_offset:
            try:
                reads = await _read_from(admin, queue, offset)
            except NotFound as error:
                notes.append(f"the queue cannot be read on: {error}")
                break
            found += reads
            offset = reads[-1].offset + 1
        end = ReadMessage(topic, queue.queue_id, offset, "", -1, begin_ns, steady_ns())
        found.append(end)
    return found, notes


async def _read_from(admin: Admin, queue: MessageQueue, offset: int) -> list[ReadMessage]:
    begin_ns = steady_ns()
    messages = await admin.messages.at(queue, offset, count_max=_PULL_COUNT)
    end_ns = steady_ns()
    return [
        ReadMessage(
            queue.topic, queue.queue_id, one.queue_offset, one.key_list[0], one.log_offset,
            begin_ns, end_ns,
        )
        for one in messages
    ]  # fmt: skip


async def clean_up(admin: Admin, topic: str, groups: tuple[str, ...]) -> list[str]:
    """Delete the topic and the groups that a drill has made. Return what could not be deleted, and
    must be deleted by hand."""
    hints = []
    try:
        await admin.topics.delete(topic)
    except EscrowMQError as error:
        hints.append(f"`escrowmq topic delete {topic}`: it could not be deleted ({error})")
    for group in groups:
        try:
            await admin.groups.delete(group)
        except NotFound:
            continue
        except EscrowMQError as error:
            hints.append(f"`escrowmq group delete {group}`: it could not be deleted ({error})")
    return hints
