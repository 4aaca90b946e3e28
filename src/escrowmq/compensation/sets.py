"""Two sets of a Redis server: commits that were announced, messages that were consumed.

Both are divided into buckets, so that a comparison blocks the server for milliseconds: with five
million ids, SDIFFSTORE over whole sets took seconds, and longer than a client's time-out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

BUCKETS_COUNT: Final = 256
TIMEOUT_S: Final = 30.0
_CHUNK: Final = 10_000


class Sets(Protocol):
    """What is announced and what is consumed."""

    def announce(self, members: Iterable[str]) -> None:
        """These commits were announced."""

    def consume(self, members: Iterable[str]) -> None:
        """These messages were consumed."""

    def compare(self) -> Iterator[list[str]]:
        """Take away what is in both; what is announced only, some at a time."""


class RedisSets:
    """The two sets under a name of their own, on a server that may be away at times.

    >>> sets = RedisSets("redis://localhost:6379/0")
    >>> sets.announce(["id-1@paid", "id-2@paid"])
    >>> sets.consume(["id-1@paid"])
    >>> [lost for found in sets.compare() for lost in found]
    ['id-2@paid']

    A request is never sent twice: a comparison that the server still carries out must not be begun
    again. So every failure is the caller's to see, as `redis.RedisError`.
    """

    def __init__(
        self,
        server: str | redis.Redis,
        *,
        name: str = "escrowmq",
        buckets_count: int = BUCKETS_COUNT,
    ) -> None:
        if isinstance(server, str):
            server = redis.Redis.from_url(
                server,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
        self._redis = server
        self._name = name
        self._buckets_count = buckets_count

    # -- the sets ----------------------------------------------------------------------------

    def announce(self, members: Iterable[str]) -> None:
        """These commits were announced."""
        self._add("announced", members)

    def consume(self, members: Iterable[str]) -> None:
        """These messages were consumed."""
        self._add("consumed", members)

    def compare(self) -> Iterator[list[str]]:
        """Take away what is in both sets; what is announced only, bucket by bucket. Each bucket is
        compared and cleared in one MULTI."""
        for number in range(self._buckets_count):
            lost = self._compare_bucket(number)
            if lost:
                yield lost

    def counts(self) -> tuple[int, int]:
        """How many members are announced, and how many consumed, that the other set has not (or
        was not compared with yet)."""
        pipe = self._redis.pipeline(transaction=False)
        for kind in ("announced", "consumed"):
            for number in range(self._buckets_count):
                pipe.scard(self._key(kind, number))
        found = cast("list[int]", pipe.execute())
        return sum(found[: self._buckets_count]), sum(found[self._buckets_count :])

    def _key(self, kind: str, number: int) -> str:
        # The braces keep both sets of a bucket on one node of a Redis cluster.
        return f"{self._name}:{{{number:03d}}}:{kind}"

    def _add(self, kind: str, members: Iterable[str]) -> None:
        buckets: dict[int, list[str]] = {}
        count = 0
        for member in members:
            number = zlib.crc32(member.encode()) % self._buckets_count
            buckets.setdefault(number, []).append(member)
            count += 1
            if count == _CHUNK:
                self._add_buckets(kind, buckets)
                buckets, count = {}, 0
        self._add_buckets(kind, buckets)

    def _add_buckets(self, kind: str, buckets: dict[int, list[str]]) -> None:
        if not buckets:
            return
        pipe = self._redis.pipeline(transaction=False)
        for number, members in buckets.items():
            pipe.sadd(self._key(kind, number), *members)
        pipe.execute()

    def _compare_bucket(self, number: int) -> list[str]:
        announced, consumed = self._key("announced", number), self._key("consumed", number)
        both = self._key("both", number)
        pipe = self._redis.pipeline(transaction=True)
        pipe.sdiff([announced, consumed])
        pipe.sinterstore(both, [announced, consumed])
        pipe.sdiffstore(announced, [announced, both])
        pipe.sdiffstore(consumed, [consumed, both])
        pipe.delete(both)
        found = cast("set[Any]", pipe.execute()[0])
        return sorted(one.decode() if isinstance(one, bytes) else str(one) for one in found)

    # -- the server --------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether the server answers."""
        try:
            self._redis.ping()
        except redis.RedisError:
            return False
        return True

    def is_whole(self) -> bool:
        """Whether the server has kept what it was told; False after a start without its data."""
        return self._redis.get(f"{self._name}:whole") is not None

    def mark_whole(self) -> None:
        """Everything that should be in the sets is there now."""
        self._redis.set(f"{self._name}:whole", "1")

    def read_mark(self) -> str | None:
        """The place in the business's list of consumed messages that `keep_mark` noted last."""
        found = self._redis.get(f"{self._name}:mark")
        return found.decode() if isinstance(found, bytes) else found

    def keep_mark(self, mark: str) -> None:
        """Up to this place of the business's list everything is in the consumed set."""
        self._redis.set(f"{self._name}:mark", mark)

    def close(self) -> None:
        """Let go of the connections."""
        self._redis.close()
