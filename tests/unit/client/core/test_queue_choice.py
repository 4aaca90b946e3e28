from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Response
from escrowmq.client.core.queue_choice import BrokerFaults, QueueChooser, queue_of_key
from escrowmq.client.core.routes import MessageQueue

QUEUES = [MessageQueue("T", name, index) for name in ("a", "b") for index in range(3)]
brokers = st.lists(st.sampled_from("abc"), min_size=1, max_size=6, unique=True)


@given(brokers, st.integers(1, 5), st.integers())
def test_without_faults_every_queue_has_its_turn(names: list[str], count: int, seed: int) -> None:
    queues = [MessageQueue("T", name, index) for name in names for index in range(count)]
    chooser = QueueChooser(random.Random(seed))
    assert {chooser.choose(queues) for _ in queues} == set(queues)


@given(brokers, st.integers(1, 5), st.sampled_from("abc"), st.integers())
def test_the_last_broker_is_avoided_where_there_is_another(
    names: list[str], count: int, avoid: str, seed: int
) -> None:
    queues = [MessageQueue("T", name, index) for name in names for index in range(count)]
    chooser = QueueChooser(random.Random(seed))
    for _ in range(10):
        chosen = chooser.choose(queues, avoid=avoid)
        assert chosen.broker_name != avoid or names == [avoid]


def test_slow_brokers_are_left_alone_for_the_peers_times() -> None:
    for latency_ms, pause_ms in (
        (549, 0),
        (550, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (10_000, 10_000),
        (15_000, 30_000),
    ):
        faults = BrokerFaults()
        faults.record_answer("a", Response.SUCCESS, took_ms=latency_ms, now_ms=100)
        assert faults.is_avoided("a", 100 + pause_ms - 1) is (pause_ms > 0)
        assert not faults.is_avoided("a", 100 + pause_ms)
        faults.record_answer("a", Response.SUCCESS, took_ms=1, now_ms=101)
        assert not faults.is_avoided("a", 102), "it is quick again"


def test_what_is_not_stored_counts_as_a_slow_answer() -> None:
    faults = BrokerFaults()
    faults.record_answer("a", Response.FLUSH_DISK_TIMEOUT, took_ms=1, now_ms=0)
    faults.record_answer("b", Response.SYSTEM_BUSY, took_ms=1, now_ms=0)
    faults.record_failure("c", 0)
    for now_ms, avoided in ((9_999, {"b", "c"}), (10_000, set())):
        assert {name for name in "abc" if faults.is_avoided(name, now_ms)} == avoided


def test_an_avoided_broker_gets_nothing_until_its_time_is_over() -> None:
    faults = BrokerFaults()
    chooser = QueueChooser(random.Random(1), faults)
    faults.record_answer("a", Response.SUCCESS, took_ms=600, now_ms=0)
    assert {chooser.choose(QUEUES, now_ms=10).broker_name for _ in range(12)} == {"b"}
    assert {chooser.choose(QUEUES, now_ms=3_000).broker_name for _ in range(12)} == {"a", "b"}


def test_when_all_are_slow_the_last_one_is_avoided_still() -> None:
    faults = BrokerFaults()
    chooser = QueueChooser(random.Random(1), faults)
    for name in "ab":
        faults.record_answer(name, Response.SUCCESS, took_ms=600, now_ms=0)
    chosen = {chooser.choose(QUEUES, avoid="a", now_ms=10).broker_name for _ in range(12)}
    assert chosen == {"b"}
    chooser = QueueChooser(random.Random(1), faults)
    turns = Counter(chooser.choose(QUEUES, avoid="b", now_ms=10) for _ in range(12))
    assert turns == {QUEUES[0]: 8, QUEUES[1]: 2, QUEUES[2]: 2}, "one of a is the next after b"
    every = {chooser.choose(QUEUES, now_ms=10) for _ in range(12)}
    assert len(every) > 1


def test_a_key_has_the_queue_that_java_gives_it() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE, the corner of every abs().
    assert queue_of_key(QUEUES, "polygenelubricants").queue_id == (2**31 % 6) % 3
    assert queue_of_key(QUEUES, "") is QUEUES[0]
    assert queue_of_key(QUEUES, "a") is QUEUES[97 % 6]


@given(brokers, st.integers(1, 5), st.integers(0, 3), st.integers())
def test_a_queue_that_was_given_back_is_the_next_again(
    names: list[str], count: int, before: int, seed: int
) -> None:
    queues = [MessageQueue("T", name, index) for name in names for index in range(count)]
    chooser = QueueChooser(random.Random(seed))
    for _ in range(before):
        chooser.choose(queues)
    chosen = chooser.choose(queues)
    chooser.undo_choice(chosen)
    assert chooser.choose(queues) == chosen
