"""Which of a topic's queues each member of a group consumes.

Each member of a group computes this itself, from the same sorted queues and members, so each
strategy must give the same result as RocketMQ's class of the same purpose
(AllocateMessageQueueAveragely, -AveragelyByCircle, -ConsistentHash)."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from escrowmq.client.core.routes import MessageQueue

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
"""Takes the sorted queues, the sorted members and one member; returns that member's queues."""

_POINTS_COUNT: Final = 10
_HASH_SIZE: Final = 4


def average(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """Assign neighbouring queues, as evenly as possible; the first members get one more."""
    index, share, rest = members.index(me), *divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def circle(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """Assign every n-th queue, so that the queues of one broker are spread over the members."""
    return list(queues[members.index(me) :: len(members)])


def consistent_hash(
    queues: Sequence[MessageQueue], members: Sequence[str], me: str
) -> list[MessageQueue]:
    """Assign queues by a hash ring: when a member joins or leaves, few queues move; the shares are
    less even."""
    ring = sorted(
        (_hash(f"{member}-{n}"), member) for member in members for n in range(_POINTS_COUNT)
    )
    points = [point for point, _ in ring]

    def owner(queue: MessageQueue) -> str:
        text = (
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
            f"queueId={queue.queue_id}]"
        )
        return ring[bisect.bisect_left(points, _hash(text)) % len(ring)][1]

    return [queue for queue in queues if owner(queue) == me]


def _hash(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_HASH_SIZE], "big")


STRATEGIES: Final[dict[str, Strategy]] = {
    "average": average,
    "circle": circle,
    "consistent-hash": consistent_hash,
}


def allocate(
    strategy: Strategy, queues: Sequence[MessageQueue], *, members: Sequence[str], me: str
) -> list[MessageQueue]:
    """Return this member's queues; none if the group does not know it yet."""
    members = sorted(set(members))
    if me not in members:
        return []
    return strategy(sorted(queues), members, me)
