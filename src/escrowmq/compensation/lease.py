"""A lease on a Redis server: it makes only one of many processes, on any machines, work."""

from __future__ import annotations

import contextlib
from typing import Final

import redis

from escrowmq.client.lease_base import Lease, LeaseTaken
from escrowmq.compensation.redis_server import connect

_RENEW: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
"""
_RELEASE: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
"""


class RedisLease(Lease):
    """A lease on a Redis server, for `with`. It is renewed while the block runs; check `is_held`
    before each step that must not be done twice.

    >>> with RedisLease("redis://localhost:6379/0", "redo") as lease:
    ...     lease.is_held
    True
    """

    def __init__(self, server: str | redis.Redis, name: str, *, span_s: float = 30.0) -> None:
        self._key = f"{name}:lease"
        super().__init__(self._key, span_s=span_s)
        self._redis = connect(server)
        self._span_ms = int(span_s * 1000)

    def _acquire(self) -> None:
        taken = self._redis.set(self._key, self._token, nx=True, px=self._span_ms)
        if not taken:
            left_ms = self._redis.pttl(self._key)
            raise LeaseTaken(
                f"another process holds the lease {self._key}, for at least {left_ms} ms; "
                "let it finish"
            )

    def _renew(self) -> bool:
        try:
            return bool(self._redis.eval(_RENEW, 1, self._key, self._token, str(self._span_ms)))
        except redis.RedisError:
            return False

    def _release(self, *, was_held: bool) -> None:
        if was_held:
            with contextlib.suppress(redis.RedisError):  # it ends by itself
                self._redis.eval(_RELEASE, 1, self._key, self._token)
