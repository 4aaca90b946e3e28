"""Restarts, kills and power cuts: nothing is lost, and hardly anything comes twice."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from escrowmq.base.codes import Request
from escrowmq.base.message import Message, Property
from escrowmq.delivery.pop_check_points import TIME_MAX
from escrowmq.delivery.revive_reader import GRACE_MS, PEER_GRACE_MS
from escrowmq.delivery.revive_records import (
    MARK_GROUP,
    REVIVE_GROUP,
)
from escrowmq.testing.disk import CrashLoss
from tests.unit.broker.consumer import Got, PopConsumer
from tests.unit.broker.world import START_MS, World

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def make(**settings: bool) -> tuple[World, PopConsumer]:
    world = World(**settings)
    world.topic()
    for text in "abcdef":
        world.send(text)
    return world, PopConsumer(world)


def saved_offsets(world: World) -> dict[str, dict[str, int]]:
    data = world.disk.read("config/consumerOffset.json")
    table: dict[str, dict[str, int]] = json.loads(data or b"{}").get("offsetTable", {})
    return table


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_new_start_knows_what_was_popped_and_what_was_acknowledged(is_clean: bool) -> None:
    world, consumer = make()
    first, second, *_ = consumer.pop(maxMsgNums=4)
    consumer.ack(first)
    assert consumer.ack_batch([second]).code == 0
    if is_clean:
        world.restart()
    else:
        world.crash()
    assert [got.body for got in consumer.pop()] == ["e", "f"]
    world.run(10_000 + GRACE_MS)
    again = consumer.pop()
    assert sorted(got.body for got in again) == ["c", "d", "e", "f"]
    consumer.ack(*again)
    world.run(60_000)
    assert consumer.pop() == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_receipt_is_good_after_a_new_start(is_clean: bool) -> None:
    world, consumer = make()
    gots = consumer.pop()
    longer = consumer.change(gots[0], 40_000)
    world.restart() if is_clean else world.crash()
    consumer.ack(*gots[1:])
    world.run(35_000)
    assert consumer.pop() == []
    consumer.ack(longer)
    world.run(60_000)
    assert consumer.pop() == []
    assert len(world.messages("%RETRY%G_T")) == 0


def test_what_a_clock_popped_that_was_ahead_once_keeps_nothing_waiting() -> None:
    """World 83564: its check points stood in front of all later ones, for days."""
    world, consumer = make()
    ahead_ms = 3 * 86_400_000 + 45_000
    world.now_ms += ahead_ms
    consumer.pop(maxMsgNums=2)
    world.now_ms -= ahead_ms
    world.crash()
    assert [got.body for got in consumer.pop(maxMsgNums=2)] == ["c", "d"]
    world.run(9_000)
    assert len(world.messages("%RETRY%G_T")) == 0
    world.run(2_000 + GRACE_MS)
    assert sorted(m.body for m in world.messages("%RETRY%G_T")) == [b"a", b"b", b"c", b"d"]


def test_what_came_again_does_not_come_twice_after_a_kill() -> None:
    world, consumer = make()
    consumer.pop(invisibleTime=9_000, maxMsgNums=1)
    consumer.pop(invisibleTime=1_000)
    world.run(1_000 + GRACE_MS)  # all but the first are in the retry topic
    world.crash()
    world.run(20_000)
    assert sorted(m.body.decode() for m in world.messages("%RETRY%G_T")) == list("abcdef")


def test_offsets_are_not_saved_before_the_check_points_are_durable() -> None:
    world, consumer = make()
    world.run(20_000)
    world.holds_syncs = True
    consumer.pop()
    world.run(20_000)
    assert "T@G" not in saved_offsets(world)
    world.crash(CrashLoss.ALL)
    world.holds_syncs = False
    assert [got.body for got in consumer.pop()] == list("abcdef")
    world.run(20_000)
    assert saved_offsets(world)["T@G"] == {"0": 6}


def test_the_revive_groups_offset_is_that_of_the_last_record_done_with() -> None:
    world, consumer = make()
    first, *rest = consumer.pop()
    consumer.ack(*rest)
    world.run(5_000)
    assert f"{REVIVE}@{REVIVE_GROUP}" not in saved_offsets(world)  # -1: nothing is done with
    consumer.ack(first)
    world.run(20_000)
    offsets = saved_offsets(world)
    assert offsets[f"{REVIVE}@{REVIVE_GROUP}"] == {"0": 2}
    assert offsets[f"{REVIVE}@{MARK_GROUP}"] == {"0": 3}


def test_a_reset_is_not_undone_by_older_check_points() -> None:
    world, consumer = make()
    consumer.pop(invisibleTime=600_000)
    world.core.broker.offsets.commit("G", "T", 0, 2, world.now_ms)
    world.run(20_000)
    world.crash()
    assert [got.body for got in consumer.pop()] == list("cdef")


def test_an_ack_waits_for_the_disk_when_told_to() -> None:
    world, consumer = make(is_sync_flush=True)
    first, *_ = consumer.pop()
    world.holds_syncs = True
    world.tell(Request.ACK_MESSAGE, consumer.ack_fields(first))
    assert world.take_replies() == []
    world.sync()
    world.perform()
    assert world.reply().code == 0
    world.crash(CrashLoss.ALL)
    world.run(10_000 + GRACE_MS)
    world.holds_syncs = False
    world.core.take_effects()
    world.sync()
    world.perform()
    assert "a" not in [got.body for got in consumer.pop()]


# -- a store of RocketMQ's -----------------------------------------------------------------------


def put_as_peer(world: World, tag: str, body: dict[str, object], due_ms: int) -> None:
    """A revive record on its way through the timer, as RocketMQ leaves it."""
    message = Message(
        topic="rmq_sys_wheel_timer",
        body=json.dumps(body).encode(),
        properties={
            "TAGS": tag,
            "REAL_TOPIC": REVIVE,
            "REAL_QID": "3",
            "TIMER_DELIVER_MS": str(due_ms),
            "TIMER_OUT_MS": str(due_ms // 1_000 * 1_000 - 1_000),
        },
        born_ms=world.now_ms,
    )
    world.core.broker.store.put(message, world.now_ms)


def test_what_a_peer_handed_out_is_taken_over() -> None:
    world, consumer = make()
    pop_ms = START_MS - 2_000
    key = {"bn": "broker-a", "c": "G", "pt": pop_ms, "q": 0, "so": 0, "t": "T"}
    point = {**key, "bm": 1, "d": [0, 1, 2, 3], "it": 15_000, "n": 4, "ro": 0}
    due_ms = pop_ms + 15_000
    put_as_peer(world, "ck", point, due_ms - 1_000)
    put_as_peer(world, "ack", {**key, "ao": 1}, due_ms)
    world.core.broker.offsets.commit("G", "T", 0, 4, world.now_ms)
    world.now_ms += 1
    world.restart()
    assert [got.body for got in consumer.pop(invisibleTime=600_000)] == ["e", "f"]
    # A consumer of then acknowledges now: its check point is in the timer still.
    ack = {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "offset": 2,
        "extraInfo": f"0 {pop_ms} 15000 3 0 broker-a 0 2",
    }  # fmt: skip
    assert world.ask(Request.ACK_MESSAGE, ack).code == 0
    assert world.core.assembly.pops.ledger.dropped_count == 0
    world.run(due_ms + PEER_GRACE_MS - world.now_ms)
    assert [m.body for m in world.messages("%RETRY%G_T")] == [b"d"]


@pytest.mark.parametrize("others", [0, 600])
def test_a_peer_s_ack_counts_that_became_due_while_no_broker_ran(others: int) -> None:
    """Its check point had left the timer before, so that a start knew it first."""
    world, _ = make()
    world.core.broker.groups.get_or_create("G", world.now_ms)
    pop_ms = START_MS - 15_000
    key = {"bn": "broker-a", "c": "G", "pt": pop_ms, "q": 0, "so": 0, "t": "T"}
    point = {**key, "bm": 0, "d": [0, 1], "it": 15_000, "n": 2, "ro": 0}
    put_record(world, "ck", point, revive_queue=3, TIMER_OUT_MS=str(START_MS - 2_000))
    for _ in range(others):
        put_as_peer(world, "none", {}, START_MS - 1)
    put_as_peer(world, "ack", {**key, "ao": 1}, START_MS)
    world.core.broker.offsets.commit("G", "T", 0, 2, world.now_ms)
    world.now_ms += 60_000
    world.crash()
    world.run(5_000)
    assert [m.body for m in world.messages("%RETRY%G_T")] == [b"a"]


def test_records_that_make_no_sense_are_passed_over() -> None:
    world, consumer = make()
    for body in (b"", b"[]", b'{"c":1}', b'{"c":"G","t":"T","n":0,"pt":1}'):
        for tag in ("ck", "ack", "bAck", "escrowOrder", "escrowReset", "other"):
            message = Message(topic=REVIVE, body=body, properties={Property.TAGS: tag})
            world.core.broker.store.put(message, world.now_ms)
    world.run(1)
    world.crash()
    assert len(consumer.pop()) == 6


ORDER: dict[str, object] = {"c": "G", "t": "T", "q": 0, "o": 6}


def put_record(
    world: World, tag: str, body: dict[str, object], *, revive_queue: int = 0, **properties: str
) -> None:
    """A record as this broker finds it in the revive topic."""
    record = Message(
        topic=REVIVE, body=json.dumps(body).encode(), queue_id=revive_queue,
        properties={Property.TAGS: tag, **properties},
    )  # fmt: skip
    world.core.broker.store.put(record, world.now_ms)
    world.run(1)


@pytest.mark.parametrize(
    ("odd", "count"),
    [
        ({"n": 0, "d": []}, 0),
        ({"n": 63, "d": list(range(63))}, 0),
        ({"n": 1, "pt": -1}, 0),
        ({"n": 1, "pt": TIME_MAX}, 0),
        ({"n": 1, "pt": TIME_MAX - 1}, 1),
        ({"n": 2, "bm": 3}, 0),
        ({"n": 2, "bm": 1}, 1),
        ({"n": 1, "pt": 0}, 1),
    ],
)
def test_check_points_of_others_that_hold_no_message_are_none(
    odd: dict[str, object], count: int
) -> None:
    world, _ = make()
    put_record(world, "ck", {"c": "G", "t": "T", "so": 0, "pt": 1, "it": 9_000, **odd})
    world.crash()
    ledger = world.core.assembly.pops.ledger
    assert (ledger.popped.count, ledger.dropped_count) == (count, 0)


@pytest.mark.parametrize("tag", ["another", "newer"])
def test_a_record_of_an_unknown_kind_moves_no_offset(tag: str) -> None:
    world, consumer = make()
    consumer.ack(*consumer.pop(maxMsgNums=2))
    put_record(world, tag, ORDER)
    world.crash()
    assert world.core.broker.offsets.get("G", "T", 0) == 2


@pytest.mark.parametrize("is_before", [True, False])
def test_orderly_progress_counts_if_it_was_stored_after_the_offsets_were_saved(
    *, is_before: bool
) -> None:
    world, consumer = make()
    consumer.pop(maxMsgNums=1, invisibleTime=600_000)  # from here on a start reads the records
    queue = world.core.assembly.pops.ledger.revive_queue(600_000)
    if is_before:
        put_record(world, "escrowOrder", ORDER, revive_queue=queue)
    world.core.broker.offsets.commit("G", "T", 0, 2, world.now_ms)
    world.run(20_000)
    if not is_before:
        put_record(world, "escrowOrder", ORDER, revive_queue=queue)
    world.crash()
    assert world.core.broker.offsets.get("G", "T", 0) == (2 if is_before else 6)


@pytest.mark.parametrize(("begin", "end"), [(0, 4), (1, 4), (-1, -1)])
def test_in_a_log_with_holes_an_offset_passes_no_message_without_a_check_point(
    begin: int, end: int
) -> None:
    world, consumer = make()
    consumer.pop(maxMsgNums=2)
    consumer.pop(maxMsgNums=2)
    world.core.broker.offsets.forget_group("G")
    if begin >= 0:
        world.core.broker.offsets.commit("G", "T", 0, begin, world.now_ms)
    world.core.assembly.pops.ledger.load(world.now_ms, is_sound=False)
    assert world.core.broker.offsets.get("G", "T", 0) == end


@pytest.mark.parametrize(("offset", "kept"), [(6, 6), (7, 2)])
def test_a_group_that_claims_to_be_beyond_a_queue_stays_where_it_was(
    offset: int, kept: int
) -> None:
    """The record was written for a queue that was longer then: what comes next is new to it."""
    world, consumer = make()
    consumer.ack(*consumer.pop(maxMsgNums=2))
    body = json.dumps({"c": "G", "t": "T", "q": 0, "o": offset}).encode()
    record = Message(topic=REVIVE, body=body, properties={Property.TAGS: "escrowOrder"})
    world.core.broker.store.put(record, world.now_ms)
    world.run(1)
    world.crash()
    assert world.core.broker.offsets.get("G", "T", 0) == kept


@pytest.mark.parametrize("lost", ["config/topics.json", "config/subscriptionGroup.json"])
def test_what_had_no_room_in_a_table_loses_no_message(lost: str) -> None:
    """World 113708: a full disk had no room for the retry topic in topics.json. What came again was
    stored there and done with in its own queue, and a start knew no such topic. Or of a group."""
    world = World()
    world.topic("T", queues=1)
    world.send("m")
    before = dict(world.disk.small)
    consumer = PopConsumer(world)
    assert len(consumer.pop(invisibleTime=500)) == 1
    if "topics" in lost:
        world.run(6_000)
    for path in (lost, f"{lost}.bak"):
        world.disk.small.pop(path, None)
        if path in before:
            world.disk.small[path] = before[path]
    world.crash()
    world.run(6_000)
    assert [got.body for got in consumer.pop()] == ["m"]


def test_a_group_that_was_deleted_stays_so_whatever_it_had_in_its_hands() -> None:
    world = World()
    world.topic("T", queues=1)
    world.send("m")
    assert len(PopConsumer(world).pop(invisibleTime=500)) == 1
    world.ask(Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"})
    world.crash()
    assert world.core.broker.groups.find("G") is None
    world.run(6_000)
    assert not [topic for topic in world.core.broker.topics.names() if "RETRY" in topic]


# -- anything, in any order ----------------------------------------------------------------------

Steps = list[tuple[str, object]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("pop"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(0, 2**16)),
        st.tuples(st.just("change"), st.integers(0, 2**16)),
        st.tuples(st.just("run"), st.sampled_from([1, 900, 6_000, 25_000])),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("power"), st.sampled_from(list(CrashLoss)[1:])),
    ),
    max_size=40,
)


@pytest.mark.thorough
@given(steps=STEPS, seed=st.integers(0, 1000))
@example(
    steps=[
        ("send", 5), ("pop", 1), ("send", 1), ("run", 6_000), ("power", CrashLoss.ALL), ("ack", 0),
    ],
    seed=0,
)  # fmt: skip
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_message_is_delivered_until_it_is_acknowledged(steps: Steps, seed: int) -> None:
    """And never after that, unless a power cut took the ack."""
    carry_out(steps, seed)


def carry_out(steps: Steps, seed: int, *, slack_ms: int = 0) -> None:  # noqa: C901 - one arm a step
    """Go through these steps; messages may come again so much later than they are due."""
    chance = random.Random(seed)
    world = World()
    world.topic("T", queues=2)
    consumer = PopConsumer(world)
    sent: set[str] = set()
    held: list[Got] = []
    done, late, either = set[str](), set[str](), set[str]()
    had_power_cut = False

    def pop(**more: object) -> list[Got]:
        gots = consumer.pop(**more)
        assert had_power_cut or not done & {got.body for got in gots}
        return gots

    def is_open(got: Got) -> bool:
        return got.receipt.due_ms + GRACE_MS > world.now_ms

    for step, value in steps:
        match step, value:
            case "send", int(count):
                for body in [f"{len(sent) + index}" for index in range(count)]:
                    world.send(body, queue=chance.randrange(2))
                    sent.add(body)
                world.sync_log()
            case "pop", int(count):
                held += pop(maxMsgNums=count, invisibleTime=chance.choice([500, 5_000, 20_000]))
            case "ack", int(index) if held:
                got = held.pop(index % len(held))
                is_late = got.receipt.due_ms + GRACE_MS + slack_ms <= world.now_ms
                (done if is_open(got) else late if is_late else either).add(got.body)
                consumer.ack(got)
            case "change", int(index) if held:
                got = held.pop(index % len(held))
                if is_open(got):
                    held.append(consumer.change(got, 3_000))
            case "run", int(span_ms):
                world.run(span_ms)
            case "restart", _:
                world.restart()
            case "kill", _:
                world.crash()
            case "power", CrashLoss() as loss:
                had_power_cut = True
                world.crash(loss, chance)
            case _:
                pass  # there is nothing to acknowledge
    seen: set[str] = set()
    for _ in range(30):
        gots = pop(invisibleTime=1_000)
        seen |= {got.body for got in gots}
        consumer.ack(*gots)
        world.run(2_500)
    # A power cut may take it that a message was put back: then a late ack still counts.
    assert sent - either - (late if had_power_cut else set()) <= seen | done <= sent
    world.run(100_000)
    assert pop() == []
    assert world.core.assembly.pops.ledger.popped.count == 0


def test_what_was_deleted_is_given_up_and_nothing_else() -> None:
    world, _ = make()
    world.topic("U")
    ledger = world.core.assembly.pops.ledger
    for group in ("F", "G", "H"):
        assert PopConsumer(world, group=group).pop()
    ledger.forget_group("G")
    ledger.flush(world.now_ms)
    assert sorted(ledger.popped.counts) == ["F", "H"]
    ledger.forget_topic("U")
    assert sorted(ledger.popped.counts) == ["F", "H"]
    ledger.forget_topic("T")
    ledger.flush(world.now_ms)
    assert ledger.popped.count == 0


def test_a_message_that_is_acknowledged_or_another_gets_no_more_time() -> None:
    world, consumer = make()
    first, second, *_ = consumer.pop(maxMsgNums=2)
    ledger = world.core.assembly.pops.ledger
    (line,) = ledger.popped._lines.values()
    (point,) = line.open.values()
    consumer.ack(first)
    for offset in (first.offset, 5):
        changed = ledger.change_invisible_time(
            point.identity(), offset, old_ms=10_000, invisible_ms=90_000, now_ms=world.now_ms
        )
        assert (changed, ledger.popped.count) == (world.now_ms, 1)
    consumer.change(second, 90_000)
    assert ledger.popped.count == 1
    assert point.is_finished
