"""One of many does it: a lease that ends by itself when its holder dies."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Final, Self

import redis

from escrowmq.errors import EscrowMQError

if TYPE_CHECKING:
    from types import TracebackType

_RENEWALS: Final = 3
"""Times that it is renewed within its span."""

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


class LeaseTaken(EscrowMQError):
    """Somebody else holds the lease; try again when it is over."""


class RedisLease:
    """A lease of a Redis server, for `with`. It is renewed while the block runs; ask `is_held`
    before each step that must not be done twice.

    >>> with RedisLease("redis://localhost:6379/0", "redo") as lease:
    ...     lease.is_held
    True
    """

    def __init__(self, server: str | redis.Redis, name: str, *, span_s: float = 30.0) -> None:
        self._redis = redis.Redis.from_url(server) if isinstance(server, str) else server
        self._key = f"{name}:lease"
        self._token = secrets.token_hex(16)
        self._span_ms = int(span_s * 1000)
        self._over = threading.Event()
        self._renewer: threading.Thread | None = None
        self.is_held = False

    def __enter__(self) -> Self:
        taken = self._redis.set(self._key, self._token, nx=True, px=self._span_ms)
        if not taken:
            left_ms = self._redis.pttl(self._key)
            raise LeaseTaken(
                f"another process holds the lease {self._key}, for {left_ms} ms at least; "
                "let it finish"
            )
        self.is_held = True
        self._renewer = threading.Thread(target=self._renew, name=self._key, daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._renewer is not None:
            self._renewer.join()
        if self.is_held:
            self.is_held = False
            try:
                self._redis.eval(_RELEASE, 1, self._key, self._token)
            except redis.RedisError:
                return  # it ends by itself

    def _renew(self) -> None:
        while not self._over.wait(self._span_ms / 1000 / _RENEWALS):
            try:
                renewed = self._redis.eval(_RENEW, 1, self._key, self._token, str(self._span_ms))
            except redis.RedisError:
                renewed = 0
            if not renewed:
                # It may be another's by now: better to do too little than twice.
                self.is_held = False
                return
