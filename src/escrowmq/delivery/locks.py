"""Queue locks of orderly consumers: one owner a queue, for a minute at a time."""

from __future__ import annotations

from typing import Final

LOCK_MS: Final = 60_000
_PURGE_OVER: Final = 10_000


class QueueLocks:
    """Who holds which queue of a group."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[tuple[str, int], tuple[str, int]]] = {}

    def lock(self, group: str, client: str, topic: str, queue_id: int, now_ms: int) -> bool:
        """Take or renew a lock; False when another client holds it."""
        held = self._locks.setdefault(group, {})
        owner, until_ms = held.get((topic, queue_id), (client, 0))
        if owner != client and now_ms < until_ms:
            return False
        held[topic, queue_id] = (client, now_ms + LOCK_MS)
        if len(held) > _PURGE_OVER:
            self._locks[group] = {q: lock for q, lock in held.items() if lock[1] > now_ms}
        return True

    def unlock(self, group: str, client: str, topic: str, queue_id: int) -> None:
        """Give a lock back; nothing happens when it is another's."""
        held = self._locks.get(group, {})
        lock = held.get((topic, queue_id))
        if lock is not None and lock[0] == client:
            del held[topic, queue_id]
            if not held:
                del self._locks[group]

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """Whether a group holds a lock now."""
        return any(until_ms > now_ms for _, until_ms in self._locks.get(group, {}).values())
