"""A slave that is made master by its configuration: every transaction has one outcome there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from escrowmq.base.codes import Request, Response
from escrowmq.base.message import Topic
from escrowmq.codec import fastjson
from escrowmq.codec.log_records import parse_records
from escrowmq.delivery import delay_progress
from escrowmq.store.store import Store
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, Exchange, Half
from tests.harness.pair import Pair


def pending(pair: Pair, count: int = 6) -> list[Half]:
    caller = pair.master.connect("producer")
    caller.heartbeat(producer="p")
    return [caller.prepare("orders", b"half %d" % n, group="p") for n in range(count)]


def bodies(broker: Exchange) -> list[bytes]:
    caller = broker.connect()
    store: Store = broker.core.broker.store
    return sorted(b for queue in store.queues_of("orders") for b in caller.bodies("orders", queue))


def test_each_pending_half_is_settled_once() -> None:
    pair = Pair()
    halves = pending(pair)
    caller = pair.master.connect("producer")
    pair.introduce()
    pair.advance(3_000)
    assert caller.end(halves[0], COMMIT).code == 0
    assert caller.end(halves[1], ROLLBACK).code == 0
    pair.advance(100)
    new = pair.promote()
    producer = new.connect("producer")
    producer.heartbeat(producer="p")
    assert bodies(new) == [b"half 0"]
    for half in halves[2:]:
        assert producer.end(half, COMMIT).code == 0
    new.advance(10_000)
    assert bodies(new) == [b"half 0", *(b"half %d" % n for n in range(2, 6))]
    # Ended again, by who did not hear of it: no second message.
    for half in halves:
        producer.end(half, COMMIT)
    assert bodies(new) == [b"half 0", *(b"half %d" % n for n in range(2, 6))]


def test_halves_that_nobody_ends_are_asked_about_by_the_new_master() -> None:
    pair = Pair()
    pending(pair, 2)
    pair.introduce()
    pair.advance(3_000)
    new = pair.promote()
    producer = new.connect("producer")
    producer.heartbeat(producer="p")
    new.advance(60_000)
    checks = producer.take(Request.CHECK_TRANSACTION_STATE)
    assert {check.body.count(b"half ") for check in checks} == {1}
    assert len(checks) >= 2


def test_a_final_without_its_op_record_is_not_written_twice() -> None:
    """RocketMQ's slaves do: op records are waited for by nobody, and 25 of 430 transactions were
    stored twice when a pair's master was killed."""
    pair = Pair()
    (half,) = pending(pair, 1)
    pair.introduce()
    pair.advance(3_000)
    store = pair.slave.core.broker.store
    before = store.end_offset
    caller = pair.master.connect("producer")
    # The connection is lost between the final and the op record.
    master = pair.master.core.broker.store
    pair.cut()
    assert caller.end(half, COMMIT).code == 0
    final = master.read(before)
    assert final is not None
    assert final.topic == "orders"
    _copy(pair, before, before + final.record_size)
    assert store.bounds(Topic.OP, 0)[1] == 0
    new = pair.promote()
    producer = new.connect("producer")
    producer.heartbeat(producer="p")
    new.advance(1_000)
    assert bodies(new) == [b"half 0"]
    reply = producer.end(half, COMMIT)
    assert reply.code in (Response.SUCCESS, Response.TRANSACTION_SHOULD_COMMIT)
    new.advance(60_000)
    assert bodies(new) == [b"half 0"]


def _copy(pair: Pair, start: int, end: int) -> None:
    """What had arrived at the slave when its master was lost: up to an offset."""
    data = pair.master.core.broker.store.log.read(start, end - start)
    log = pair.slave.core.broker.store.become_copy()
    log.append(data, parse_records(data, start).records)


def test_offsets_of_consumers_are_there() -> None:
    pair = Pair()
    caller = pair.master.connect()
    for number in range(4):
        caller.send("orders", b"%d" % number, queue_id=0)
    committed = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "3"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, committed)
    pair.introduce()
    pair.advance(5_000)
    new = pair.promote()
    del committed["commitOffset"]
    reply = new.connect().ask(Request.QUERY_CONSUMER_OFFSET, committed)
    assert (reply.ext or {})["offset"] == "3"


def test_what_is_to_be_delivered_later_is_delivered_once_by_the_new_master() -> None:
    pair = Pair()
    caller = pair.master.connect()
    caller.send("orders", b"first", DELAY="1")
    caller.send("orders", b"second", DELAY="3")
    due_ms = pair.master.now_ms + 12_000
    caller.send("orders", b"at a time", TIMER_DELIVER_MS=str(due_ms))
    pair.introduce()
    pair.advance(5_000)
    assert bodies(pair.master) == [b"first"]
    new = pair.promote()
    new.advance(20_000)
    assert bodies(new) == [b"at a time", b"first", b"second"]


def test_a_topic_that_the_slave_was_not_told_of_yet_is_there() -> None:
    """The master is lost right after the first message of a topic, and after the first half."""
    pair = Pair()
    pair.introduce()
    pair.advance(3_000)
    caller = pair.master.connect("producer")
    caller.heartbeat(producer="p")
    caller.send("orders", b"plain", queue_id=2)
    half = caller.prepare("later", b"half", group="p", queue_id=1)
    new = pair.promote()
    assert bodies(new) == [b"plain"]
    producer = new.connect("producer")
    producer.heartbeat(producer="p")
    assert producer.end(half, COMMIT).code == 0
    assert producer.bodies("later", 1) == [b"half"]


def delivered_late(pair: Pair, wait_ms: int) -> Exchange:
    """The new master, where the old one had delivered two delayed messages shortly before it
    failed; others, which wait, keep its progress back."""
    caller = pair.master.connect()
    pair.introduce()
    pair.advance(3_000)
    caller.send("later", b"far", TIMER_DELAY_SEC="7200")
    caller.send("later", b"far", DELAY="18")
    caller.send("orders", b"level", DELAY="3")  # 10 s
    caller.send("orders", b"timer", TIMER_DELAY_SEC="10")
    pair.advance(10_050 + wait_ms)
    assert bodies(pair.master) == [b"level", b"timer"]
    return pair.promote()


@pytest.mark.parametrize("wait_ms", range(0, 4_500, 500))
def test_delayed_messages_are_delivered_once(wait_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_progress, "SCAN_SIZE_MAX", 0)  # as in a long log
    new = delivered_late(Pair(), wait_ms)
    new.advance(20_000)
    assert bodies(new) == [b"level", b"timer"]
    new.advance(7_200_000)
    assert new.connect().bodies("later") == [b"far", b"far"]


@pytest.mark.parametrize("wait_ms", [0, 3_000])
def test_delayed_messages_of_a_master_that_tells_no_log_offset(
    wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ's, and older ones of ours."""
    pair = Pair()
    delays, timer = pair.master.core.broker.delays, pair.master.core.broker.timer
    encode, check_point = delays.encode, timer.progress_for_slave

    def without_offset() -> bytes:
        table = fastjson.decode_fastjson(encode())
        table.pop("escrowLogOffset", None)
        return fastjson.encode(table)

    monkeypatch.setattr(delays, "encode", without_offset)
    monkeypatch.setattr(timer, "progress_for_slave", lambda now_ms: check_point(now_ms)[:56])
    new = delivered_late(pair, wait_ms)
    new.advance(20_000)
    assert bodies(new) == [b"level", b"timer"]


def test_a_queue_whose_messages_are_all_deleted_goes_on_where_it_was() -> None:
    pair = Pair(store=replace(SMALL, log_segment_size=1 << 16))
    caller = pair.master.connect()
    for number in range(3):
        assert caller.send("seldom", b"%d" % number).code == 0
    for _ in range(12):
        assert caller.send("orders", bytes(20_000)).code == 0
    pair.master.advance(30_000)
    for path, file in pair.master.disk.files.items():
        if path.startswith("commitlog/"):
            file.modified_ms = 0
    store = pair.master.core.broker.store
    store.retention.request_cleanup()
    pair.master.advance(60_000)
    assert (store.min_log_offset > 0, store.bounds("seldom", 0)) == (True, (3, 3))
    pair.slave = pair.new_slave(replace(SMALL, log_segment_size=1 << 16), SimDisk())
    pair.introduce()
    pair.advance(30_000)
    new = pair.promote()
    assert new.core.broker.store.bounds("seldom", 0) == (3, 3)
    assert (new.connect().send("seldom", b"3").ext or {})["queueOffset"] == "3"
