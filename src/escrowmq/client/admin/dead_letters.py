"""Redelivery of dead letters to their group, by the brokers that keep them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.message import Topic
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.topics import QueueStatus, Topics
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec import dead_letter_bodies
from escrowmq.codec.dead_letter_bodies import DeadLetterSelector
from escrowmq.errors import RouteMissing, TopicNotFound

_PAGE_COUNT: Final = 100


class DeadLetter(dead_letter_bodies.DeadLetter, kw_only=True, rename="camel"):
    """A dead letter, and whether it has been redelivered."""

    broker: str = ""


class _DeadLetterPage(msgspec.Struct, rename="camel"):
    items: list[DeadLetter] = []
    next: int = -1


async def redeliver(
    cluster: ClusterCalls,
    group: str,
    *,
    topic: str,
    limit: int | None,
    dry_run: bool,
    only: Sequence[tuple[str, int, int]] | None = None,
) -> AsyncIterator[DeadLetter]:
    """Redeliver dead letters, queue by queue, and yield each with its result;
    `Groups.redeliver_dead` explains the parameters."""
    if only is not None:
        for broker, queue_id, queue_offset in only[:limit]:
            one = QueueStatus(
                queue=MessageQueue(Topic.DLQ_PREFIX + group, broker, queue_id),
                min_offset=queue_offset,
                max_offset=queue_offset + 1,
                updated_ms=0,
            )
            async for letter in _redeliver_queue(cluster, group, one, topic, None, dry_run):
                yield letter
        return
    try:
        described = await Topics(cluster).describe(Topic.DLQ_PREFIX + group)
    except (TopicNotFound, RouteMissing):  # nothing ever died
        return
    left = limit
    for queue in described.queues:
        async for letter in _redeliver_queue(cluster, group, queue, topic, left, dry_run):
            yield letter
            if left is not None and letter.status != "done":
                left -= 1
                if left <= 0:
                    return


async def _redeliver_queue(
    cluster: ClusterCalls,
    group: str,
    queue: QueueStatus,
    topic: str,
    limit: int | None,
    dry_run: bool,
) -> AsyncIterator[DeadLetter]:
    broker = queue.queue.broker_name
    address = (await cluster.masters(broker))[broker]
    wanted = DeadLetterSelector(
        group=cluster.with_namespace(group),
        topic=cluster.with_namespace(topic) if topic else "",
        queue_id=queue.queue.queue_id,
        begin=queue.min_offset,
        end=queue.max_offset,  # letters that die meanwhile are for the next call
        is_dry_run=dry_run,
    )
    # The broker returns where to continue, which may already be past the end that was known here.
    while 0 <= wanted.begin < wanted.end and (limit is None or limit > 0):
        wanted.limit = _PAGE_COUNT if limit is None else min(limit, _PAGE_COUNT)
        page = await cluster.ask_decoded(
            address,
            Request.ESCROW_REDELIVER_DEAD,
            _DeadLetterPage,
            body=msgspec.json.encode(wanted),
        )
        for letter in page.items:
            letter.broker = broker
            letter.topic = cluster.without_namespace(letter.topic)
            if limit is not None and letter.status != "done":
                limit -= 1
            yield letter
        wanted.begin = page.next
