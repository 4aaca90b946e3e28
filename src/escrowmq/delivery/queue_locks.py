"""Queue locks of orderly consumers: each queue has at most one owner, for a minute at a time."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from escrowmq.base.fixed_limits import QUEUE_LOCKS_MAX, QUEUE_LOCKS_OF_ACCOUNT_MAX

LOCK_MS: Final = 60_000
_PURGE_MS: Final = 1_000
"""The interval of searches for expired locks, when there are too many locks for a new one."""


class LockOwner(NamedTuple):
    """A client that locks queues."""

    client_id: str
    account: str = ""
    """The account in whose limit its locks are counted; empty without access control."""


class QueueLocks:
    """Which client of a group has locked which queue, and until when."""

    def __init__(
        self,
        count_max: int = QUEUE_LOCKS_MAX,
        of_account_max: int = QUEUE_LOCKS_OF_ACCOUNT_MAX,
    ) -> None:
        self._locks: dict[str, dict[tuple[str, int], tuple[LockOwner, int]]] = {}
        self._count = 0
        self._count_max = count_max
        self._of_account_max = of_account_max
        self._counts: Counter[str] = Counter()
        """The number of locks of each account."""
        self._purge_at_ms = 0

    def lock(self, group: str, owner: LockOwner, topic: str, queue_id: int, now_ms: int) -> bool:
        """Lock a queue, or renew the lock. Return False if another client holds it, or there are
        too many locks, in all or of the account."""
        held = self._locks.get(group, {})
        lock = held.get((topic, queue_id))
        if lock is None:
            if self._is_full(owner.account):
                self._remove_expired(now_ms)
                if self._is_full(owner.account):
                    return False
            self._count_lock(owner)
        elif lock[0] != owner:
            if lock[0].client_id != owner.client_id and now_ms < lock[1]:
                return False
            self._uncount_lock(lock[0])
            self._count_lock(owner)
        self._locks.setdefault(group, {})[topic, queue_id] = (owner, now_ms + LOCK_MS)
        return True

    def _is_full(self, account: str) -> bool:
        is_account_full = account and self._counts[account] >= self._of_account_max
        return bool(is_account_full) or self._count >= self._count_max

    def _count_lock(self, owner: LockOwner) -> None:
        self._count += 1
        self._counts[owner.account] += 1

    def _uncount_lock(self, owner: LockOwner) -> None:
        self._count -= 1
        self._counts[owner.account] -= 1
        assert self._counts[owner.account] >= 0, owner.account
        if not self._counts[owner.account]:
            del self._counts[owner.account]

    def _remove_expired(self, now_ms: int) -> None:
        """Remove expired locks."""
        if now_ms < self._purge_at_ms:
            return
        self._purge_at_ms = now_ms + _PURGE_MS
        for group, held in list(self._locks.items()):
            for queue, (owner, until_ms) in list(held.items()):
                if until_ms <= now_ms:
                    self._uncount_lock(owner)
                    del held[queue]
            if not held:
                del self._locks[group]

    def unlock(self, group: str, client: str, topic: str, queue_id: int) -> None:
        """Remove a lock, unless another client holds it."""
        held = self._locks.get(group, {})
        lock = held.get((topic, queue_id))
        if lock is not None and lock[0].client_id == client:
            del held[topic, queue_id]
            self._uncount_lock(lock[0])
            if not held:
                del self._locks[group]

    def clock_leapt(self, by_ms: int) -> None:
        """Extend all locks by the clock's jump, so that they last their full time."""
        for held in self._locks.values():
            for queue, (owner, until_ms) in held.items():
                held[queue] = (owner, until_ms + by_ms)

    def holds_lock(self, group: str, now_ms: int) -> bool:
        """Whether a group holds a lock now."""
        return any(until_ms > now_ms for _, until_ms in self._locks.get(group, {}).values())
