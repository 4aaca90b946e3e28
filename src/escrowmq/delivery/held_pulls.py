"""Long polls: pulls that wait for a message of their queue."""

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
"""Memory of a field besides its characters."""


def weight_of(request: Command) -> int:
    """For how many long polls a request counts that is kept while it waits: one per 4 KiB."""
    ext = request.ext or {}
    size = len(request.body) + _FIELD_SIZE * len(ext) + sum(map(len, ext))
    return 1 + (size + sum(map(len, ext.values()))) // _WEIGHT_SIZE


def wait_ms_of(asked_ms: int, settings: BrokerSettings) -> int:
    """How long a pull waits for a message: as long as requested, or a moment if long polling is off
    (longPollingEnable)."""
    return max(0, asked_ms if settings.holds_pulls else settings.short_poll_ms)


class LongPoll(Generic[T]):
    """One waiting pull."""

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
        """For how many it counts if it uses much memory."""
        self.question = question
        self.peer = peer
        self.account = account
        self.queue_offset = queue_offset
        self.deadline_ms = deadline_ms
        self.is_done = False
        self.serial = 0
        """Its number in its table: lower ones have waited longer."""


class Holds(Generic[T]):
    """Waiting pulls by queue, and by their timeout."""

    def __init__(self, held_max: int = PULLS_HELD_MAX, counts: Counter[str] | None = None) -> None:
        self._held_max = held_max
        self._counts: Counter[str] = Counter() if counts is None else counts
        """Numbers of waiting polls by account, here and in other tables that share this."""
        # Dicts as sets that keep their order: out of a list of 90 000 each is found by a walk.
        self.by_queue: dict[tuple[str, int], dict[LongPoll[T], None]] = {}
        """Waiting pulls by topic and queue."""
        self._by_peer: dict[int, dict[LongPoll[T], None]] = {}
        self._deadlines: list[tuple[int, int, LongPoll[T]]] = []
        self._serial = 0
        self.count = 0

    def hold(self, held: LongPoll[T]) -> LongPoll[T] | None:
        """Let a pull wait. If there are too many, return the one that would time out first; or the
        client's first, if that client has too many."""
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
            self.release(first)
            return first
        if self.count > self._held_max:
            return next(self.expired(_NEVER_MS), None)
        return None

    def has(self, key: tuple[str, int]) -> bool:
        """Whether pulls wait for this queue."""
        return key in self.by_queue

    def count_at(self, key: tuple[str, int]) -> int:
        """How many wait for this queue."""
        return len(self.by_queue.get(key, ()))

    def waiting(self, key: tuple[str, int]) -> list[LongPoll[T]]:
        """The pulls that wait for this queue."""
        return list(self.by_queue.get(key, ()))

    def all(self) -> list[LongPoll[T]]:
        """All waiting pulls."""
        return [held for own in self._by_peer.values() for held in own]

    def of(self, peer: int) -> list[LongPoll[T]]:
        """The pulls of one client."""
        return list(self._by_peer.get(peer, ()))

    def count_of(self, peer: int) -> int:
        """How many pulls of one client wait."""
        return len(self._by_peer.get(peer, ()))

    def release(self, held: LongPoll[T]) -> None:
        """This pull is answered, or its client is gone."""
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

    def expired(self, now_ms: int) -> Iterator[LongPoll[T]]:
        """Release, one by one, the pulls whose timeout has passed."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, held = heapq.heappop(self._deadlines)
            if not held.is_done:
                self.release(held)
                yield held

    def lost(self, peer: int) -> None:
        """A client is gone with its pulls."""
        for held in list(self._by_peer.get(peer, ())):
            self.release(held)

    def wake_at_ms(self) -> int:
        """When the next pull times out."""
        while self._deadlines and self._deadlines[0][2].is_done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else _NEVER_MS
