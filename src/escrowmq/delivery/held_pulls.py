"""Holds long polls of pulls, which wait for messages of their queue."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import HELD_PER_PEER_MAX, PULLS_HELD_MAX

T = TypeVar("T")
_NEVER_MS = (1 << 62) - 1

_WEIGHT_SIZE = 4_096
_FIELD_SIZE = 100
"""The memory that a header field takes besides its characters, in bytes."""


def poll_weight(request: Command) -> int:
    """Return for how many long polls a waiting request counts: one for each 4 KiB of its memory."""
    ext = request.ext or {}
    size = len(request.body) + _FIELD_SIZE * len(ext) + sum(map(len, ext))
    return 1 + (size + sum(map(len, ext.values()))) // _WEIGHT_SIZE


def poll_timeout_ms(asked_ms: int, settings: BrokerSettings) -> int:
    """Return how long a pull waits for messages: as requested, or a short time if long polling is
    off (longPollingEnable)."""
    return max(0, asked_ms if settings.holds_pulls else settings.short_poll_ms)


class LongPoll(Generic[T]):
    """A waiting pull or pop."""

    __slots__ = (
        "account", "deadline_ms", "is_done", "key", "peer", "question", "queue_offset", "serial",
        "weight",
    )  # fmt: skip

    def __init__(
        self,
        key: tuple[str, int],
        question: T,
        *,
        peer: int,
        queue_offset: int,
        deadline_ms: int,
        account: str = "",
        weight: int = 1,
    ) -> None:
        self.key = key
        self.weight = weight
        """For how many long polls this one counts; more than 1 if it uses much memory."""
        self.question = question
        self.peer = peer
        self.account = account
        self.queue_offset = queue_offset
        self.deadline_ms = deadline_ms
        self.is_done = False
        self.serial = 0
        """The poll's serial number in its table. A poll with a lower number has waited longer."""


class LongPolls(Generic[T]):
    """Waiting long polls by queue, by client and by timeout."""

    def __init__(self, held_max: int = PULLS_HELD_MAX, counts: Counter[str] | None = None) -> None:
        self._held_max = held_max
        self._counts: Counter[str] = Counter() if counts is None else counts
        """The number of waiting polls of each account, in all tables that share this counter."""
        # Dicts serve as ordered sets: removing from a list of 90 000 would search all of it.
        self.by_queue: dict[tuple[str, int], dict[LongPoll[T], None]] = {}
        """Waiting polls by topic and queue."""
        self._by_peer: dict[int, dict[LongPoll[T], None]] = {}
        self._deadlines: list[tuple[int, int, LongPoll[T]]] = []
        self._serial = 0
        self.count = 0

    def hold(self, held: LongPoll[T]) -> LongPoll[T] | None:
        """Hold a long poll. If its client has too many, remove and return the client's oldest. If
        there are too many in all, remove and return the one that would time out first."""
        self._serial += 1
        held.serial = self._serial
        self.by_queue.setdefault(held.key, {})[held] = None
        own = self._by_peer.setdefault(held.peer, {})
        own[held] = None
        heapq.heappush(self._deadlines, (held.deadline_ms, self._serial, held))
        self.count += held.weight
        self._counts[held.account] += held.weight
        if len(own) > HELD_PER_PEER_MAX:
            first = next(iter(own))
            self.remove(first)
            return first
        if self.count > self._held_max:
            return next(self.take_expired(_NEVER_MS), None)
        return None

    def has(self, key: tuple[str, int]) -> bool:
        """Whether polls wait for this queue."""
        return key in self.by_queue

    def count_at(self, key: tuple[str, int]) -> int:
        """Return how many polls wait for this queue."""
        return len(self.by_queue.get(key, ()))

    def polls_at(self, key: tuple[str, int]) -> list[LongPoll[T]]:
        """Return the polls that wait for this queue, the oldest first."""
        return list(self.by_queue.get(key, ()))

    def all_polls(self) -> list[LongPoll[T]]:
        """Return all waiting polls."""
        return [held for own in self._by_peer.values() for held in own]

    def polls_of(self, peer: int) -> list[LongPoll[T]]:
        """Return the waiting polls of one client."""
        return list(self._by_peer.get(peer, ()))

    def count_of(self, peer: int) -> int:
        """Return how many polls of one client wait."""
        return len(self._by_peer.get(peer, ()))

    def remove(self, held: LongPoll[T]) -> None:
        """Remove a poll that was answered, or whose client has disconnected."""
        if held.is_done:
            return
        held.is_done = True
        self.count -= held.weight
        self._counts[held.account] -= held.weight
        assert self._counts[held.account] >= 0, held.account
        if not self._counts[held.account]:
            del self._counts[held.account]
        queue, own = self.by_queue[held.key], self._by_peer[held.peer]
        del queue[held], own[held]
        if not queue:
            del self.by_queue[held.key]
        if not own:
            del self._by_peer[held.peer]
        if len(self._deadlines) > 2 * self.count + 64:
            self._deadlines = [item for item in self._deadlines if not item[2].is_done]
            heapq.heapify(self._deadlines)

    def take_expired(self, now_ms: int) -> Iterator[LongPoll[T]]:
        """Remove the polls whose timeout has passed, and yield each."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, held = heapq.heappop(self._deadlines)
            if not held.is_done:
                self.remove(held)
                yield held

    def remove_polls_of(self, peer: int) -> None:
        """Remove the polls of a disconnected client."""
        for held in list(self._by_peer.get(peer, ())):
            self.remove(held)

    def wake_at_ms(self) -> int:
        """The time at which the next poll times out."""
        while self._deadlines and self._deadlines[0][2].is_done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else _NEVER_MS
