"""The two sets on a real Redis server."""

from __future__ import annotations

import random

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escrowmq.client.announced_commits import Member, parse_member
from escrowmq.compensation import LeaseTaken, RedisLease, RedisSets
from escrowmq.errors import UsageError
from tests.interop.process import until

from .services import RedisServer


def lost(sets: RedisSets) -> list[str]:
    return sorted(one for some in sets.compare() for one in some.lost)


@given(
    st.sets(st.text(min_size=1, max_size=8)),
    st.sets(st.text(min_size=1, max_size=8)),
    st.integers(1, 5),
)
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_announced_only_is_told_and_what_is_in_both_goes(
    redis_server: RedisServer, announced: set[str], consumed: set[str], buckets: int
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
        sets = RedisSets(client, buckets_count=buckets)
        sets.announce(announced)
        sets.consume(consumed)
        assert lost(sets) == sorted(announced - consumed)
        assert sets.counts() == (len(announced - consumed), len(consumed - announced))
        assert lost(sets) == sorted(announced - consumed)
        sets.consume(announced - consumed)
        assert lost(sets) == []
        assert sets.counts() == (0, len(consumed - announced))


def test_an_announcement_that_was_stored_twice_is_no_other_one(redis_server: RedisServer) -> None:
    """A producer that gets no answer repeats it, perhaps in another queue, which is read later."""
    sets = RedisSets(redis_server.url)
    for queue in ("a", "b", "c"):
        sets.note_begun(queue, 0)
    sets.consume(["x"])
    assert sets.announce_read({"x": 0}, queue="a", first=0, until=1)
    assert lost(sets) == []
    assert sets.announce_read({"x": 0, "y": 1}, queue="b", first=0, until=2)
    found = [(some.lost, some.both_count) for some in sets.compare()]
    assert found == [(["y"], 0)], "the second one counts no more"
    sets.consume(["y"])
    assert lost(sets) == []
    assert sets.announce_read({"y": 0}, queue="c", first=0, until=1)
    assert lost(sets) == []
    assert sets.counts() == (0, 0)
    sets.close()


def test_a_message_that_is_consumed_again_leaves_nothing_for_ever(
    redis_server: RedisServer,
) -> None:
    """No announcement was left that would have removed it."""
    with redis.Redis.from_url(redis_server.url) as client:
        sets = RedisSets(client)
        sets.announce(["x", "y"])
        sets.consume(["x", "y"])
        assert lost(sets) == []
        sets.consume(["x"])  # by a worker that knows no better
        assert lost(sets) == []
        assert sets.counts() == (0, 0)
        sets.consume_again(["y"])
        for _ in range(3):
            assert lost(sets) == []
        assert client.keys() == []


def test_a_message_consumed_again_counts_if_its_announcement_is_still_to_come(
    redis_server: RedisServer,
) -> None:
    """Its worker was killed before it added the message."""
    sets = RedisSets(redis_server.url)
    sets.consume_again(["x"])
    assert lost(sets) == []
    sets.announce(["x"])
    assert [(some.lost, some.both_count) for some in sets.compare()] == [([], 1)]
    assert lost(sets) == []
    assert sets.counts() == (0, 0)
    sets.close()


def test_a_hundred_thousand_ids(redis_server: RedisServer) -> None:
    sets = RedisSets(redis_server.url)
    ids = [f"{number:032d}@paid" for number in range(100_000)]
    missing = set(random.Random(1).sample(ids, 100))
    sets.announce(ids)
    sets.consume(one for one in ids if one not in missing)
    assert lost(sets) == sorted(missing)
    assert sets.counts() == (100, 0)
    sets.close()


def test_a_server_that_comes_back_without_its_data_is_noticed(redis_server: RedisServer) -> None:
    sets = RedisSets(redis_server.url)
    assert not sets.is_whole()
    sets.mark_whole()
    sets.keep_mark("7")
    assert (sets.is_whole(), sets.read_mark()) == (True, "7")
    redis_server.kill()
    assert not sets.is_there()
    with pytest.raises(redis.RedisError):
        sets.announce(["x"])
    redis_server.start()
    assert (sets.is_there(), sets.is_whole()) == (True, True)
    redis_server.kill()
    redis_server.lose_data()
    redis_server.start()
    assert (sets.is_there(), sets.is_whole(), sets.read_mark()) == (True, False, None)


def test_what_is_announced_again_below_the_position_is_not_added(redis_server: RedisServer) -> None:
    """A reader that was killed before it committed its offset left it to the next one, and what had
    been matched and removed was lost for good."""
    sets = RedisSets(redis_server.url)
    ids = [f"{number}@paid" for number in range(6)]
    offsets = {each: number for number, each in enumerate(ids)}
    assert sets.announce_read(dict([*offsets.items()][:4]), queue="q", first=0, until=4)
    sets.consume(ids[:4])
    assert lost(sets) == []
    assert sets.announce_read(dict([*offsets.items()][:2]), queue="q", first=0, until=2)
    assert sets.read_place("q") == 4
    assert sets.announce_read(dict([*offsets.items()][2:]), queue="q", first=2, until=6)
    assert lost(sets) == ids[4:]
    assert sets.read_place("q") == 6


@pytest.mark.parametrize("decodes", [False, True])
def test_the_time_of_the_last_announcement_is_that_of_the_position(
    redis_server: RedisServer, decodes: bool
) -> None:
    sets = RedisSets(redis.Redis.from_url(redis_server.url, decode_responses=decodes))
    assert sets.read_time("q", 0) is None
    assert sets.announce_read({"x@paid": 3}, queue="q", first=0, until=4, stored_ms=1_700)
    assert (sets.read_place("q"), sets.read_time("q", 4)) == (4, 1_700)
    assert sets.announce_read({"x@paid": 1}, queue="q", first=0, until=2, stored_ms=1_500)
    assert sets.read_time("q", 4) == 1_700
    sets.keep_place("q", 5)  # as an older release does, which stores no time
    assert sets.read_time("q", 5) is None


def test_only_one_holds_a_lease_and_it_ends_with_its_holder(redis_server: RedisServer) -> None:
    with RedisLease(redis_server.url, "redo", span_s=0.3) as lease:
        assert lease.is_held
        with (
            pytest.raises(LeaseTaken, match="another process holds the lease redo:lease"),
            RedisLease(redis_server.url, "redo"),
        ):
            pass
        with redis.Redis.from_url(redis_server.url) as client:
            until(
                "it was renewed twice", lambda: int(client.info()["total_commands_processed"]) > 8
            )
            assert lease.is_held
            client.set("redo:lease", "somebody else")
            until("its loss is noticed", lambda: not lease.is_held)
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get("redo:lease") == b"somebody else"
        client.delete("redo:lease")
    with RedisLease(redis_server.url, "redo") as lease:
        assert lease.is_held


def test_a_lease_is_let_go_when_its_server_dies(redis_server: RedisServer) -> None:
    with RedisLease(redis_server.url, "redo", span_s=0.3) as lease:
        redis_server.kill()
        until("its loss is noticed", lambda: not lease.is_held)


def test_a_member_is_an_id_and_a_topic() -> None:
    assert parse_member(str(Member("7F01", "paid"))) == Member("7F01", "paid")
    for text in ("", "7F01", "@paid", "7F01@"):
        with pytest.raises(UsageError, match="names no message"):
            parse_member(text)
