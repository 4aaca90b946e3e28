"""Holds long polls of pops. They wait for messages of a topic, in one queue or any, and of its
retry topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from escrowmq.base.fixed_limits import HELD_PER_PEER_MAX
from escrowmq.delivery.held_pulls import LongPoll, LongPolls

T = TypeVar("T")
TopicAndGroup = tuple[str, str]
"""Where a poll waits: topic and group."""


class PopPolls(Generic[T]):
    """Waiting polls by topic, group and queue (-1: any queue)."""

    def __init__(
        self, *, count_max: int, per_key_max: int, counts: Counter[str] | None = None
    ) -> None:
        self._holds: LongPolls[T] = LongPolls(count_max, counts)
        self._count_max = count_max
        self._per_key_max = per_key_max
        self._queues: dict[TopicAndGroup, set[int]] = {}
        self.waiting_by_topic: dict[str, set[TopicAndGroup]] = {}
        """For each topic: the topics and groups of the waiting polls that its messages can wake."""

        self._topics: dict[TopicAndGroup, tuple[str, ...]] = {}

    def hold(  # noqa: PLR0913 - what waits, for what, and whose it is
        self,
        place: TopicAndGroup,
        queue_id: int,
        poll: T,
        *,
        topics: Iterable[str],
        peer: int,
        until_ms: int,
        account: str = "",
        weight: int = 1,
    ) -> bool:
        """Hold a poll until messages of these topics arrive. Return False if too many wait."""
        if (
            self.is_full(place, queue_id, weight=weight)
            or self._holds.count_of(peer) >= HELD_PER_PEER_MAX
        ):
            return False
        key = (_joined_name(place), queue_id)
        crowded = self._holds.hold(
            LongPoll(
                key,
                poll,
                peer=peer,
                queue_offset=0,
                deadline_ms=until_ms,
                account=account,
                weight=weight,
            )
        )
        assert crowded is None, "nobody else is pushed out: that one would never be answered"
        if place not in self._queues:
            self._queues[place] = set()
            self._topics[place] = tuple(topics)
            for topic in self._topics[place]:
                self.waiting_by_topic.setdefault(topic, set()).add(place)
        self._queues[place].add(queue_id)
        return True

    def is_full(self, place: TopicAndGroup, queue_id: int, *, weight: int = 1) -> bool:
        """Whether too many polls wait for a queue to hold one more of this weight."""
        is_crowded = self.count_at(place, queue_id) > self._per_key_max
        return is_crowded or self._holds.count + weight > self._count_max

    def may_have(self, place: TopicAndGroup) -> bool:
        """Whether a topic and group may have waiting polls. If False, there are none."""
        return place in self._queues

    def count_at(self, place: TopicAndGroup, queue_id: int) -> int:
        """Return how many polls wait for a queue."""
        return self._holds.count_at((_joined_name(place), queue_id))

    def woken_by(self, topic: str) -> list[TopicAndGroup]:
        """Return the topics and groups of the polls that a message of this topic can wake."""
        return sorted(self.waiting_by_topic.get(topic, ()))

    def polled_queues(self, place: TopicAndGroup) -> list[int]:
        """Return the queues with waiting polls, -1 first."""
        queues = self._queues.get(place)
        if queues is None:
            return []
        name = _joined_name(place)
        gone = [queue_id for queue_id in queues if not self._holds.has((name, queue_id))]
        queues.difference_update(gone)
        if not queues:
            self._forget(place)
        return sorted(queues)

    def _forget(self, place: TopicAndGroup) -> None:
        del self._queues[place]
        for topic in self._topics.pop(place):
            places = self.waiting_by_topic[topic]
            places.discard(place)
            if not places:
                del self.waiting_by_topic[topic]

    def all_polls(self) -> list[LongPoll[T]]:
        """Return all waiting polls."""
        return self._holds.all_polls()

    def polls_of(self, peer: int) -> list[LongPoll[T]]:
        """Return the waiting polls of one client."""
        return self._holds.polls_of(peer)

    def polls_at(self, place: TopicAndGroup, queue_id: int) -> list[LongPoll[T]]:
        """Return the polls that wait for a queue, the oldest first."""
        return self._holds.polls_at((_joined_name(place), queue_id))

    def remove(self, held: LongPoll[T]) -> None:
        """Remove a poll that was answered."""
        self._holds.remove(held)

    def take_expired(self, now_ms: int) -> Iterator[LongPoll[T]]:
        """Remove the polls whose timeout has passed, and yield each."""
        return self._holds.take_expired(now_ms)

    def remove_polls_of(self, peer: int) -> None:
        """Remove the polls of a disconnected client."""
        self._holds.remove_polls_of(peer)

    def wake_at_ms(self) -> int:
        """The time at which the next poll times out."""
        return self._holds.wake_at_ms()


def _joined_name(place: TopicAndGroup) -> str:
    return f"{place[0]}@{place[1]}"
