"""Two sets on a Redis server: announced commits and consumed messages.

Both are divided into buckets, so that a comparison blocks the server for milliseconds: with five
million ids, SDIFFSTORE over whole sets took seconds, longer than a client's timeout."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

import redis

from escrowmq.client.announced_commits import Compared
from escrowmq.compensation.redis_server import connect
from escrowmq.errors import UsageError

BUCKETS_COUNT: Final = 256
_CHUNK: Final = 10_000
_BY_QUEUE: Final = "by queue"

_ANNOUNCE_SCRIPT: Final = """
local reached = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or '0')
if reached < tonumber(ARGV[2]) then
    return 0
end
local at = 5
for number = 2, #KEYS do
    local until_at = at + 2 * tonumber(ARGV[at])
    local fresh = {}
    for each = at + 1, until_at, 2 do
        if tonumber(ARGV[each + 1]) >= reached then
            fresh[#fresh + 1] = ARGV[each]
        end
    end
    if #fresh > 0 then
        redis.call('sadd', KEYS[number], unpack(fresh))
    end
    at = until_at + 1
end
if reached < tonumber(ARGV[3]) then
    redis.call('hset', KEYS[1], ARGV[1], ARGV[3],
        ARGV[1] .. '@', ARGV[3] .. ':' .. ARGV[4])
end
return 1
"""
"""A Lua script that adds announcements and stores the queue's position in one step, so that
snapshots and replicas have both or neither. It skips announcements below the stored position: a
reader that was killed before it committed its offset has added them, and they may have been matched
and removed since."""

_TIME_MARK: Final = "@"
"""After a queue's name in the hash of positions: the position again, a colon, and the time of the
announcement before it. No name of a topic or broker has it."""

_ARGUMENTS_MAX: Final = 1_000
"""Limit of the members per call; Lua's unpack accepts some thousands."""


class RedisSets:
    """The two sets under a name of their own, on a server that may be unreachable at times.

    >>> sets = RedisSets("redis://localhost:6379/0")
    >>> sets.announce(["id-1@paid", "id-2@paid"])
    >>> sets.consume(["id-1@paid"])
    >>> [lost for found in sets.compare() for lost in found.lost]
    ['id-2@paid']

    A request is never sent twice, so every failure is raised, as `redis.RedisError`."""

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
        """Add announced commits."""
        self._add_members("announced", members)

    def announce_read(
        self, offsets: Mapping[str, int], *, queue: str, first: int, until: int, stored_ms: int = 0
    ) -> bool:
        """Add commits that were announced between two offsets of a queue, each with its offset; the
        last one was stored at `stored_ms`. Those added before are skipped. Return False, and add
        nothing, if the server has lost the announcements before the first offset."""
        buckets = self._group_by_bucket(offsets)
        words: list[str | int] = [queue, first, until, stored_ms]
        for some in buckets.values():
            if len(some) > _ARGUMENTS_MAX:
                raise UsageError(
                    f"{len(some)} announcements in one bucket; {_ARGUMENTS_MAX} at a time "
                    "are allowed"
                )
            words.append(len(some))
            for member in some:
                words += [member, offsets[member]]
        keys = [self._positions_key(), *(self._key("announced", number) for number in buckets)]
        return bool(self._redis.eval(_ANNOUNCE_SCRIPT, len(keys), *keys, *words))

    def consume(self, members: Iterable[str]) -> None:
        """Add consumed messages."""
        self._add_members("consumed", members)

    def consume_again(self, members: Iterable[str]) -> None:
        """Add messages that were delivered again after the business had processed them. They are
        probably matched and removed, and no announcement will remove them another time: those that
        are still without one in the second comparison from now are dropped."""
        self._add_members("again", members)

    def compare(self) -> Iterator[Compared]:
        """Remove the members that are in both sets; yield the announced ones, bucket by bucket.
        Each bucket is compared and cleared in one MULTI.

        The removed members are kept until the next comparison: a producer that got no answer
        stores an announcement twice, and the second one may be read after this comparison, as a
        message may be consumed a second time."""
        for number in range(self._buckets_count):
            found = self._compare_bucket(number)
            if found.lost or found.both_count:
                yield found

    def counts(self) -> tuple[int, int]:
        """Return the numbers of members in the announced and the consumed set: those without a
        match, and those not compared yet."""
        pipe = self._redis.pipeline(transaction=False)
        for kind in ("announced", "consumed"):
            for number in range(self._buckets_count):
                pipe.scard(self._key(kind, number))
        found = cast("list[int]", pipe.execute())
        return sum(found[: self._buckets_count]), sum(found[self._buckets_count :])

    def _key(self, kind: str, number: int) -> str:
        return f"{self._name}:{{{number:03d}}}:{kind}"

    def _add_members(self, kind: str, members: Iterable[str]) -> None:
        left = iter(members)
        while some := self._group_by_bucket(islice(left, _CHUNK)):
            self._add_buckets(kind, some)

    def _group_by_bucket(self, members: Iterable[str]) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for member in members:
            number = zlib.crc32(member.encode()) % self._buckets_count
            found.setdefault(number, []).append(member)
        return found

    def _add_buckets(self, kind: str, buckets: dict[int, list[str]]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for number, members in buckets.items():
            pipe.sadd(self._key(kind, number), *members)
        pipe.execute()

    def _compare_bucket(self, number: int) -> Compared:
        announced, consumed = self._key("announced", number), self._key("consumed", number)
        lost, matched = self._key("lost", number), self._key("matched", number)
        again, again_before = self._key("again", number), self._key("again-before", number)
        done_ones = self._key("done", number)
        pipe = self._redis.pipeline(transaction=True)
        pipe.sdiffstore(announced, [announced, matched])  # of the comparison before
        pipe.sdiffstore(consumed, [consumed, matched])
        pipe.sunionstore(done_ones, [consumed, again, again_before])
        pipe.sinterstore(matched, [announced, done_ones])
        pipe.sdiffstore(lost, [announced, matched])
        pipe.sdiffstore(consumed, [consumed, matched])
        pipe.sdiffstore(again_before, [again, matched])
        pipe.sunionstore(announced, [lost])
        pipe.smembers(lost)
        pipe.delete(lost, done_ones, again)
        done = pipe.execute()
        both_count, found = cast("int", done[3]), cast("set[Any]", done[8])
        texts = sorted(one.decode() if isinstance(one, bytes) else str(one) for one in found)
        return Compared(texts, both_count)

    # -- the server --------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether the server answers."""
        try:
            self._redis.ping()
        except redis.RedisError:
            return False
        return True

    def server_id(self) -> str:
        """Return the id of the server's process, which changes after a restart or a fail-over.
        Empty if the server does not allow the question."""
        try:
            return str(self._redis.info("server").get("run_id", ""))
        except redis.ResponseError:  # INFO is forbidden to this account
            return ""

    def is_whole(self) -> bool:
        """Whether the server has data; False after it was started without any. The data may be
        older than they were: positions and marks show that."""
        return self._redis.get(f"{self._name}:whole") is not None

    def mark_whole(self) -> None:
        """Record that the sets are complete: all members are in them, or will be read from the
        queues of announcements, each from its beginning (`has_begun`)."""
        pipe = self._redis.pipeline(transaction=True)
        pipe.delete(f"{self._name}:begun", self._positions_key())
        pipe.set(f"{self._name}:whole", _BY_QUEUE)
        pipe.execute()

    def has_begun(self, queue: str) -> bool:
        """Whether a queue of announcements was read from its beginning since the server was empty.
        True also if an older release marked the sets as whole."""
        if self._redis.get(f"{self._name}:whole") not in (_BY_QUEUE, _BY_QUEUE.encode()):
            return True
        return bool(self._redis.sismember(f"{self._name}:begun", queue))

    def note_begun(self, queue: str, first: int) -> None:
        """Record that a queue is read from its beginning, which is this offset."""
        pipe = self._redis.pipeline(transaction=True)
        pipe.sadd(f"{self._name}:begun", queue)
        pipe.hset(self._positions_key(), queue, str(first))
        pipe.execute()

    def read_place(self, queue: str) -> int | None:
        """Return the offset of a queue below which all announcements are in the set; None if an
        older release, which did not store that, has read it."""
        found = self._redis.hget(self._positions_key(), queue)
        return None if found is None else int(cast("bytes", found))

    def keep_place(self, queue: str, until: int) -> None:
        """Store that all announcements below this offset are read."""
        self._redis.hset(self._positions_key(), queue, str(until))

    def read_time(self, queue: str, place: int) -> int | None:
        """Return when the last announcement below an offset was stored, in ms by its broker's
        clock; None if that is unknown, or it is not the last one that was read."""
        found = self._redis.hget(self._positions_key(), queue + _TIME_MARK) or "0:0"
        text = found.decode() if isinstance(found, bytes) else str(found)
        until, _, stored_ms = text.partition(":")
        return int(stored_ms) or None if int(until) == place else None

    def read_mark(self) -> str | None:
        """Return the last mark stored by `keep_mark`: a position in the business's list of
        processed messages."""
        found = self._redis.get(f"{self._name}:mark")
        return found.decode() if isinstance(found, bytes) else found

    def keep_mark(self, mark: str) -> int:
        """Store that everything up to this position of the business's list is in the consumed set.
        Returns the number of the mark, counted from 1."""
        pipe = self._redis.pipeline(transaction=True)
        pipe.set(f"{self._name}:mark", mark)
        pipe.incr(f"{self._name}:marks")
        return cast("int", pipe.execute()[1])

    def marks_count(self) -> int:
        """Return how many marks were stored; fewer than before if the server has older data."""
        return int(cast("bytes | None", self._redis.get(f"{self._name}:marks")) or 0)

    def _positions_key(self) -> str:
        return f"{self._name}:read"

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()
