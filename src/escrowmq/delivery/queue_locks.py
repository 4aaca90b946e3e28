"""Queue locks of orderly consumers: each queue has at most one owner, for a minute at a time."""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import QUEUE_LOCKS_MAX

LOCK_MS: Final = 60_000
_PURGE_MS: Final = 1_000
"""The interval of searches for expired locks, when there are too many locks for a new one."""


class QueueLocks:
    """Which client of a group has locked which queue, and until when."""

    def __init__(self, count_max: int = QUEUE_LOCKS_MAX) -> None:
        self._locks: dict[str, dict[tuple[str, int], tuple[str, int]]] = {}
        self._count = 0
        self._count_max = count_max
        self._purge_at_ms = 0

    def lock(self, group: str, client: str, topic: str, queue_id: int, now_ms: int) -> bool:
        """Lock a queue, or renew the lock. Return False if another client holds it, or there are
        too many locks."""
        held = self._locks.get(group, {})
        lock = held.get((topic, queue_id))
        if lock is None:
            if self._count >= self._count_max:
                self._remove_expired(now_ms)
            if self._count >= self._count_max:
                return False
            self._count += 1
        elif lock[0] != client and now_ms < lock[1]:
            return False
        self._locks.setdefault(group, {})[topic, queue_id] = (client, now_ms + LOCK_MS)
        return True

    def _remove_expired(self, now_ms: int) -> None:
        """Remove expired locks."""
        if now_ms < self._purge_at_ms:
            return
        self._purge_at_ms = now_ms + _PURGE_MS
        for group, held in list(self._locks.items()):
            left = {queue: lock for queue, lock in held.items() if lock[1] > now_ms}
            self._count -= len(held) - len(left)
            if left:
                self._locks[group] = left
            else:
                del self._locks[group]

    def unlock(self, group: str, client: str, topic: str, queue_id: int) -> None:
        """Remove a lock, unless another client holds it."""
        held = self._locks.get(group, {})
        lock = held.get((topic, queue_id))
        if lock is not None and lock[0] == client:
            del held[topic, queue_id]
            self._count -= 1
            assert self._count >= 0, self._count
            if not held:
                del self._locks[group]

    def clock_leapt(self, by_ms: int) -> None:
        """Extend all locks by the clock's jump, so that they last their full time."""
        for held in self._locks.values():
            for queue, (client, until_ms) in held.items():
                held[queue] = (client, until_ms + by_ms)

    def holds_lock(self, group: str, now_ms: int) -> bool:
        """Whether a group holds a lock now."""
        return any(until_ms > now_ms for _, until_ms in self._locks.get(group, {}).values())
