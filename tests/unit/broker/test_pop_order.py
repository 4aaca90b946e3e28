from __future__ import annotations

import json

import pytest

from escrowmq.base.codes import Request
from escrowmq.broker.reads.pop_reader import Pop, PopResult
from escrowmq.delivery import orderly_pops
from escrowmq.errors import RemoteProtocolError, StorageError
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import START_MS, World, ext


@pytest.fixture
def world() -> World:
    made = World()
    made.topic()
    return made


@pytest.fixture
def consumer(world: World) -> PopConsumer:
    return PopConsumer(world, is_order=True)


def test_a_queue_is_given_to_one_batch_at_a_time(world: World, consumer: PopConsumer) -> None:
    for text in "abc":
        world.send(text)
    reply = consumer.ask(maxMsgNums=2)
    assert ext(reply) == {
        "popTime": str(START_MS),
        "invisibleTime": "10000",
        "reviveQid": "999",
        "restNum": "1",
        "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": "0 0 0,1",
        "orderCountInfo": "0 0 0",
    }
    first, second = consumer.decode(reply)
    assert consumer.pop() == []
    consumer.ack(second)
    assert consumer.pop() == []
    assert world.core.broker.offsets.get("G", "T", 0) == 0
    consumer.ack(first)
    assert world.core.broker.offsets.get("G", "T", 0) == 2
    assert [got.body for got in consumer.pop()] == ["c"]


def test_after_its_time_a_batch_comes_again_and_is_counted(
    world: World, consumer: PopConsumer
) -> None:
    for text in "abc":
        world.send(text)
    first, _ = consumer.pop(maxMsgNums=2)
    consumer.ack(first)
    world.run(9_999)
    assert consumer.pop() == []
    world.run(1)
    reply = consumer.ask()
    assert ext(reply)["orderCountInfo"] == "0 qo0%1 1;0 0 0"
    second, third = consumer.decode(reply)
    assert (second.body, second.reconsume_times) == ("b", 1)
    assert (third.body, third.reconsume_times) == ("c", 0)
    consumer.ack(first._replace(receipt=second.receipt))
    world.run(10_000)
    reply = consumer.ask()
    assert ext(reply)["orderCountInfo"] == "0 qo0%2 1;0 0 1"


def test_the_same_attempt_is_given_the_same_batch(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    assert [got.body for got in consumer.pop(attemptId="x")] == ["a"]
    assert consumer.pop(attemptId="y") == []
    (again,) = consumer.pop(attemptId="x")
    assert (again.body, again.reconsume_times) == ("a", 0)


def test_more_and_less_time_for_an_orderly_batch(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    (got,) = consumer.pop()
    world.run(5_000)
    changed = consumer.change(got, 20_000)
    assert changed.receipt.pop_ms == START_MS
    assert (changed.receipt.invisible_ms, changed.receipt.revive_queue) == (25_000, 999)
    world.run(19_999)
    assert consumer.pop() == []
    consumer.change(got, 1_000)
    world.run(1_000)
    assert [got.body for got in consumer.pop()] == ["a"]


def test_a_waiting_pop_is_answered_when_the_queue_is_free(
    world: World, consumer: PopConsumer
) -> None:
    for text in "ab":
        world.send(text)
    (got,) = consumer.pop(maxMsgNums=1)
    other = PopConsumer(world, is_order=True, peer=2)
    other.wait(poll_ms=60_000)
    consumer.ack(got)
    assert [got.body for got in other.decode(world.reply(2))] == ["b"]
    consumer.wait(poll_ms=60_000)
    world.run(9_999)
    assert world.take_replies() == []
    world.run(1)
    (again,) = consumer.decode(world.reply())
    assert (again.body, again.reconsume_times) == ("b", 1)


def test_an_unreadable_queue_of_one_group_keeps_no_other_group_waiting(
    world: World, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send("a")
    other = PopConsumer(world, group="H", is_order=True, peer=2)
    assert consumer.pop()
    assert other.pop()
    consumer.wait(poll_ms=60_000)
    other.wait(poll_ms=60_000)
    popper = world.core.assembly.pops._pops._popper
    take = popper.take_messages

    def fails(pop: Pop, now_ms: int) -> PopResult:
        if pop.header.consumer_group == "G":
            raise StorageError("Input/output error")
        return take(pop, now_ms)

    monkeypatch.setattr(popper, "take_messages", fails)
    world.run(10_000)
    assert world.take_replies() == []
    assert [got.body for got in other.decode(world.reply(2))] == ["a"]


def test_acks_of_what_was_not_handed_out(world: World, consumer: PopConsumer) -> None:
    for text in "ab":
        world.send(text)
    (got,) = consumer.pop(maxMsgNums=1)
    fields = consumer.ack_fields(got, offset=1)
    reply = world.ask(Request.ACK_MESSAGE, fields)
    assert (reply.code, reply.remark) == (
        13,
        "offset is illegal, key:T@G@0, old:0, commit:1, next:-1, 127.0.0.1:40001",
    )
    world.run(10_000)
    (new,) = consumer.pop(maxMsgNums=1)
    consumer.ack(got)  # of a pop that is over: ignored
    assert world.core.broker.offsets.get("G", "T", 0) == 0
    assert consumer.ack_batch([new]).code == 0
    consumer.ack(new)  # again: below the offset, ignored
    assert world.core.broker.offsets.get("G", "T", 0) == 1


def test_the_file_is_the_peers(world: World, consumer: PopConsumer) -> None:
    for text in "abc":
        world.send(text)
    consumer.pop(attemptId="x")
    world.run(10_000)
    gots = consumer.pop(attemptId="y")
    consumer.ack(gots[1])
    consumer.change(gots[2], 7_000)
    world.restart()
    data = world.disk.read(orderly_pops.PATH)
    assert data is not None
    at_ms = START_MS + 10_000
    assert json.loads(data) == {
        "table": {
            "T@G": {
                "0": {
                    "a": "y",
                    "cm": 2,
                    "i": 10_000,
                    "l": at_ms,
                    "o": [0, 1, 2],
                    "oc": {"0": 1, "1": 1, "2": 1},
                    "ot": {"2": at_ms + 7_000},
                    "popTime": at_ms,
                }
            }
        }
    }
    assert consumer.pop() == []
    world.run(10_000)
    assert [(got.body, got.reconsume_times) for got in consumer.pop()] == [
        ("a", 2),
        ("b", 2),
        ("c", 2),
    ]


def test_the_peers_own_spelling_of_the_file_is_read() -> None:
    table = orderly_pops.OrderlyBatches()
    table.load(
        b'{"table":{"T@G":{0:{"cm":1,"i":60000,"l":5,"o":[3,1],"oc":{3:1},"popTime":1000}}}}',
        now_ms=2_000,
    )
    line = ("G", "T", 0)
    assert table.is_blocked(line, attempt_id=None, invisible_ms=1, now_ms=60_999)
    assert not table.is_blocked(line, attempt_id=None, invisible_ms=1, now_ms=61_000)
    assert table.acknowledge(line, 4, 1_000, group_offset=3) == 5
    with pytest.raises(RemoteProtocolError):
        table.load(b"garbage", now_ms=2_000)
    assert not table.has_any


def test_a_batch_of_a_clock_that_was_ahead_keeps_its_queue_no_longer_than_another(
    world: World, consumer: PopConsumer
) -> None:
    for text in "ab":
        world.send(text)
    world.now_ms += 3 * 86_400_000
    first, second = consumer.pop(maxMsgNums=2)
    consumer.change(second, 30_000)
    world.now_ms -= 3 * 86_400_000
    world.restart()
    assert consumer.pop() == []
    world.run(30_000)
    assert [got.body for got in consumer.pop()] == [first.body, second.body]


def test_acknowledged_progress_survives_a_kill(world: World, consumer: PopConsumer) -> None:
    for text in "abc":
        world.send(text)
    (got,) = consumer.pop(maxMsgNums=1)
    consumer.ack(got)
    world.crash()
    assert [got.body for got in consumer.pop()] == ["b", "c"]


def test_a_batch_that_was_acknowledged_after_the_file_was_saved_blocks_nothing(
    world: World, consumer: PopConsumer
) -> None:
    for text in "abcd":
        world.send(text)
    first = consumer.pop(maxMsgNums=2)
    world.run(6_000)  # the file is saved
    for got in first:
        consumer.ack(got)
    assert [got.body for got in consumer.pop(maxMsgNums=2)] == ["c", "d"]
    world.crash()
    assert [got.body for got in consumer.pop(maxMsgNums=2)] == ["c", "d"]


def test_the_rest_of_a_batch_keeps_its_time_and_order_after_a_kill(
    world: World, consumer: PopConsumer
) -> None:
    for text in "abcd":
        world.send(text)
    first = consumer.pop(maxMsgNums=3)
    world.run(6_000)
    consumer.ack(first[0])
    world.crash()
    assert consumer.pop() == []
    for got in first[1:]:
        consumer.ack(got)
    assert [got.body for got in consumer.pop()] == ["d"]


def test_an_ack_of_a_batch_that_is_not_known_passes_no_message(
    world: World, consumer: PopConsumer
) -> None:
    """The table of batches is saved every few seconds, and forgets what is a day old."""
    world.send("old")
    consumer.ack(*consumer.pop())
    world.run(25 * 3_600_000)
    world.topic("U")
    world.send("other", topic="U")
    PopConsumer(world, topic="U", is_order=True).pop()
    world.run(6_000)
    for text in "abc":
        world.send(text)
    first, _, third = consumer.pop()
    world.crash()
    consumer.ack(third)
    consumer.ack(first)
    assert [got.body for got in consumer.pop()] == ["b", "c"]


def test_a_reset_is_kept_although_the_queue_was_not_read_at_once(world: World) -> None:
    """A pop that is full does not read the queues behind: their batches stay what they were."""
    world.topic("U", queues=2)
    consumer = PopConsumer(world, topic="U", is_order=True)
    for text in "abcd":
        world.send(text, topic="U", queue=int(text in "cd"))
    gots = consumer.pop()
    assert [got.body for got in sorted(gots)] == ["a", "b", "c", "d"]
    consumer.ack(*[got for got in gots if got.body in "ac"])
    world.ask(
        Request.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "U", "group": "G", "timestamp": 0, "isForce": True},
        peer=9,
    )
    world.run(1)
    (first,) = consumer.pop(maxMsgNums=1)
    consumer.ack(*[got for got in gots if got.body in "bd"])
    consumer.ack(first)
    found = [first.body]
    while more := consumer.pop():
        found += [got.body for got in more]
        consumer.ack(*more)
    assert sorted(found) == ["a", "b", "c", "d"]


def test_a_group_that_is_made_again_is_not_kept_from_reading_by_the_former_one(
    world: World,
) -> None:
    consumer = PopConsumer(world, is_order=True, invisible_ms=3_600_000)
    world.send("a")
    assert [got.body for got in consumer.pop()] == ["a"]
    world.run(6_000)
    world.ask(Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": True}, peer=9)
    assert [got.body for got in consumer.pop()] == ["a"]


def test_a_stop_right_after_the_last_batch_has_gone_saves_that(
    world: World, consumer: PopConsumer
) -> None:
    world.send("a")
    consumer.pop()
    world.run(6_000)
    assert b"T@G" in (world.disk.read(orderly_pops.PATH) or b"")
    ask = {"groupName": "G", "cleanOffset": "true"}
    assert world.ask(Request.DELETE_SUBSCRIPTIONGROUP, ask).code == 0
    world.restart()
    assert b"T@G" not in (world.disk.read(orderly_pops.PATH) or b"")
    assert [got.body for got in consumer.pop()] == ["a"]
