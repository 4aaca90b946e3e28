"""Two sets of a Redis server: commits that were announced, messages that were consumed.

Both are divided into buckets, so that a comparison blocks the server for milliseconds: with five
million ids, SDIFFSTORE over whole sets took seconds, and longer than a client's time-out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import redis

from escrowmq.client.announced_commits import Compared
from escrowmq.compensation.redis_server import connect

BUCKETS_COUNT: Final = 256
_CHUNK: Final = 10_000
_BY_QUEUE: Final = "by queue"


class RedisSets:
    """The two sets under a name of their own, on a server that may be away at times.

    >>> sets = RedisSets("redis://localhost:6379/0")
    >>> sets.announce(["id-1@paid", "id-2@paid"])
    >>> sets.consume(["id-1@paid"])
    >>> [lost for found in sets.compare() for lost in found.lost]
    ['id-2@paid']

    A request is never sent twice, so every failure is the caller's to see, as `redis.RedisError`.
    """

    def __init__(
        self,
        server: str | redis.Redis,
        *,
        name: str = "escrowmq",
        buckets_count: int = BUCKETS_COUNT,
    ) -> None:
        self._redis = connect(server)
        self._name = name
        self._buckets_count = buckets_count

    # -- the sets ----------------------------------------------------------------------------

    def announce(self, members: Iterable[str]) -> None:
        """These commits were announced."""
        self._add("announced", members)

    def consume(self, members: Iterable[str]) -> None:
        """These messages were consumed."""
        self._add("consumed", members)

    def compare(self) -> Iterator[Compared]:
        """Take away what is in both sets; what is announced, bucket by bucket. Each bucket is
        compared and cleared in one MULTI."""
        for number in range(self._buckets_count):
            found = self._compare_bucket(number)
            if found.lost or found.both_count:
                yield found

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

    def _compare_bucket(self, number: int) -> Compared:
        announced, consumed = self._key("announced", number), self._key("consumed", number)
        lost = self._key("lost", number)
        pipe = self._redis.pipeline(transaction=True)
        pipe.scard(announced)
        # Only what differs is ever stored: the intersection, which is nearly all, would cost most.
        pipe.sdiffstore(lost, [announced, consumed])
        pipe.sdiffstore(consumed, [consumed, announced])
        pipe.sunionstore(announced, [lost])
        pipe.smembers(lost)
        pipe.delete(lost)
        done = pipe.execute()
        before, found = cast("int", done[0]), cast("set[Any]", done[4])
        texts = sorted(one.decode() if isinstance(one, bytes) else str(one) for one in found)
        return Compared(texts, before - len(texts))

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
        """Everything that should be in the sets is there now, or on its way from the queues of
        announcements, each of which is read from its beginning (`has_begun`)."""
        self._redis.delete(f"{self._name}:begun")
        self._redis.set(f"{self._name}:whole", _BY_QUEUE)

    def has_begun(self, queue: str) -> bool:
        """Whether a queue of announcements was read from its beginning since the server was empty.
        Where an older release says that the sets are whole, it has seen to that."""
        if self._redis.get(f"{self._name}:whole") not in (_BY_QUEUE, _BY_QUEUE.encode()):
            return True
        return bool(self._redis.sismember(f"{self._name}:begun", queue))

    def note_begun(self, queue: str) -> None:
        """It is read from its beginning now."""
        self._redis.sadd(f"{self._name}:begun", queue)

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
