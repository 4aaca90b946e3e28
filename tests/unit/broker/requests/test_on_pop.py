from __future__ import annotations

import json

import pytest

from escrowmq.base.codes import Request
from escrowmq.delivery.revive_reader import GRACE_MS
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import START_MS, World, bodies, ext

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture
def world() -> World:
    made = World()
    made.topic()
    return made


@pytest.fixture
def consumer(world: World) -> PopConsumer:
    return PopConsumer(world)


def test_a_message_is_handed_out_once_and_with_all_that_the_client_needs(
    world: World, consumer: PopConsumer
) -> None:
    for text in "abc":
        world.send(text)
    reply = consumer.ask(maxMsgNums=2)
    assert (reply.code, reply.remark, bodies(reply)) == (0, "FOUND", ["a", "b"])
    assert ext(reply) == {
        "popTime": str(START_MS),
        "invisibleTime": "10000",
        "reviveQid": "0",
        "restNum": "1",
        "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": "0 0 0,1",
    }
    assert [got.body for got in consumer.pop()] == ["c"]
    reply = consumer.ask()
    assert (reply.code, reply.remark) == (210, "NO_MESSAGE_IN_QUEUE")


def test_check_points_and_acks_are_stored_in_the_peers_form(
    world: World, consumer: PopConsumer
) -> None:
    world.send("a")
    world.send("b")
    world.send("c")
    first, second, third = consumer.pop()
    consumer.ack(second)
    consumer.ack(first, third)
    check_point, ack, batch = world.messages(REVIVE)
    assert check_point.properties == {
        "TAGS": "ck",
        "TIMER_DELIVER_MS": str(START_MS),
        "ESCROW_NEXT": "3",
    }
    assert check_point.body == (
        b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,2],"it":10000,"n":3,"pt":1700000000000,"q":0,'
        b'"reviveTime":1700000010000,"ro":0,"so":0,"t":"T"}'
    )
    assert ack.properties["TAGS"] == "ack"
    assert ack.body == (b'{"ao":1,"bn":"broker-a","c":"G","pt":1700000000000,"q":0,"so":0,"t":"T"}')
    assert batch.properties["TAGS"] == "bAck"
    assert json.loads(batch.body)["aol"] == [0, 2]


def test_what_is_not_acknowledged_comes_again_and_again(
    world: World, consumer: PopConsumer
) -> None:
    world.send("a", KEYS="k", TAGS="t")
    world.send("b")
    _, second = consumer.pop()
    consumer.ack(second)
    world.run(10_000 + GRACE_MS - 1)
    assert consumer.pop() == []
    world.run(1)
    (again,) = consumer.pop()
    assert (again.body, again.reconsume_times, again.topic) == ("a", 1, "T")
    assert again.first_pop_ms == str(START_MS)
    assert again.receipt.kind == 1
    world.run(10_000 + GRACE_MS)
    (third,) = consumer.pop()
    assert (third.body, third.reconsume_times) == ("a", 2)
    assert third.first_pop_ms == str(START_MS)
    consumer.ack(third)
    world.run(60_000)
    assert consumer.pop() == []
    (one, two) = world.messages("%RETRY%G_T")
    assert one.properties["KEYS"] == "k"
    assert (one.properties["TAGS"], two.reconsume_times) == ("t", 2)


def test_an_ack_within_the_grace_counts(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    (got,) = consumer.pop()
    world.run(10_000 + GRACE_MS - 1)
    consumer.ack(got)
    world.run(60_000)
    assert consumer.pop() == []


def leap(world: World, by_ms: int) -> None:
    """The clock is set forward, as net/clock tells."""
    world.core.clock_leapt(by_ms)
    world.now_ms += by_ms


@pytest.mark.parametrize("is_order", [False, True])
def test_a_clock_that_is_set_forward_shows_nothing_early(world: World, is_order: bool) -> None:
    consumer = PopConsumer(world, invisible_ms=20_000, is_order=is_order)
    world.send("a")
    world.send("b")
    first, _ = consumer.pop()
    world.run(5_000)
    leap(world, 3_600_000)
    world.run(5_000)
    leap(world, 86_400_000)
    consumer.ack(first)
    world.run(9_999)
    assert consumer.pop() == []
    world.run(GRACE_MS + 1)
    assert [got.body for got in consumer.pop()] == ["b"]


def test_what_is_popped_after_a_leap_waits_for_its_own_time(
    world: World, consumer: PopConsumer
) -> None:
    world.send("a")
    consumer.pop()
    world.run(4_000)
    leap(world, 2_000)  # by as much as the grace of a peer is longer
    world.send("b")
    consumer.pop()
    world.run(6_000 + GRACE_MS)
    assert [got.body for got in consumer.pop()] == ["a"]
    world.run(4_000)
    assert [got.body for got in consumer.pop()] == ["b"]


def test_more_time_and_less_time(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    world.send("b")
    first, second = consumer.pop()
    world.run(1)
    later = consumer.change(first, 30_000)
    sooner = consumer.change(second, 1_000)
    assert later.receipt.revive_queue == 1
    assert sooner.receipt.revive_queue == 0
    world.run(1_000 + GRACE_MS)
    assert [got.body for got in consumer.pop(invisibleTime=100_000)] == ["b"]
    world.run(20_000)
    consumer.ack(first)  # its receipt was replaced, and is worth nothing
    world.run(9_000)
    assert [got.body for got in consumer.pop()] == ["a"]


def test_more_time_for_what_is_done_with_changes_nothing(
    world: World, consumer: PopConsumer
) -> None:
    world.send("a")
    (got,) = consumer.pop()
    consumer.ack(got)
    consumer.change(got, 1_000)
    world.run(60_000)
    assert consumer.pop() == []


def test_a_batch_of_acks(world: World, consumer: PopConsumer) -> None:
    world.topic("T", queues=2)
    for text in "abcd":
        world.send(text, queue=ord(text) % 2)
    gots = consumer.pop()
    assert consumer.ack_batch([got for got in gots if got.body != "c"]).code == 0
    world.run(10_000 + GRACE_MS)
    assert [got.body for got in consumer.pop()] == ["c"]
    assert world.ask(Request.BATCH_ACK_MESSAGE, body=b'{"acks":[]}').code == 208


def test_the_long_names_of_a_batch_ack(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    (got,) = consumer.pop()
    ack = {
        "consumerGroup": "G", "topic": "T", "retry": "0", "startOffset": 0, "queueId": 0,
        "reviveQueueId": 0, "popTime": got.receipt.pop_ms, "invisibleTime": 10_000,
        "bitSet": "AQ==",
    }  # fmt: skip
    body = json.dumps({"acks": [ack]}).encode()
    assert world.ask(Request.BATCH_ACK_MESSAGE, body=body).code == 0
    world.run(60_000)
    assert consumer.pop() == []


def test_filters_select_and_what_they_leave_out_is_passed_over(
    world: World, consumer: PopConsumer
) -> None:
    for index in range(2_000):
        world.send(str(index), TAGS="yes" if index == 1_999 else "no")
    wanted = {"exp": "yes || maybe", "expType": "TAG"}
    reply = consumer.ask(**wanted)
    if reply.code == 210:  # too much for one look: the rest is for the next
        reply = consumer.ask(**wanted)
    assert bodies(reply) == ["1999"]
    world.run(10_000 + GRACE_MS)
    (again,) = consumer.pop(**wanted)
    assert (again.body, again.reconsume_times) == ("1999", 1)
    sql = {"exp": "colour = 'red'", "expType": "SQL92"}
    world.send("red", colour="red")
    world.send("blue", colour="blue")
    assert [got.body for got in consumer.pop(**sql)] == ["red"]
    assert consumer.ask(exp="colour = ", expType="SQL92").code == 23


def test_queues_of_a_topic_are_read_together_or_one_alone(
    world: World, consumer: PopConsumer
) -> None:
    world.topic("T", queues=4)
    for queue in range(4):
        world.send(str(queue), queue=queue)
    assert [got.body for got in consumer.pop(queueId=2)] == ["2"]
    assert sorted(got.body for got in consumer.pop()) == ["0", "1", "3"]


def test_a_type_of_expression_without_an_expression_is_not_remembered(
    world: World, consumer: PopConsumer
) -> None:
    """It was shown to operators, and could have 256 KiB for each group."""
    consumer.pop(expType="x" * 100_000)
    group = world.core.broker.poppers.find("G")
    assert group is not None
    assert {one.expression_type for one in group.subscriptions.values()} == {"TAG"}


def test_a_new_group_begins_where_it_asks_to(world: World, consumer: PopConsumer) -> None:
    world.settings["pop_init_in_memory"] = False
    world.restart()
    for text in "abc":
        world.send(text)
    assert [got.body for got in consumer.pop(consumerGroup="G2", initMode=1)] == ["c"]
    assert [got.body for got in consumer.pop(consumerGroup="G3", initMode=0)] == ["a", "b", "c"]


def test_a_reset_offset_counts_at_the_next_pop(world: World, consumer: PopConsumer) -> None:
    for text in "abc":
        world.send(text)
    consumer.ack(*consumer.pop())
    world.core.broker.offsets.reset("G", "T", 0, 1, world.now_ms)
    world.run(1)
    assert [got.body for got in consumer.pop()] == ["b", "c"]


def test_an_offset_outside_the_queue_is_mended(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    world.core.broker.offsets.commit("G", "T", 0, 17, world.now_ms)
    assert consumer.pop() == []
    world.send("b")
    assert [got.body for got in consumer.pop()] == ["b"]


# -- waiting -------------------------------------------------------------------------------------


def test_a_waiting_pop_is_answered_by_an_arrival(world: World, consumer: PopConsumer) -> None:
    consumer.wait()
    assert world.take_replies() == []
    info = {"consumerGroup": "G", "topic": "T", "queueId": -1}
    assert ext(world.ask(Request.POLLING_INFO, info, peer=2)) == {"pollingNum": "1"}
    world.run(5_000)
    world.send("a")
    (got,) = consumer.decode(world.reply())
    assert (got.body, got.receipt.pop_ms) == ("a", START_MS + 5_000)
    assert ext(world.ask(Request.POLLING_INFO, info, peer=2)) == {"pollingNum": "0"}


def test_waiting_pops_share_what_arrives(world: World) -> None:
    waiting = [PopConsumer(world, peer=peer) for peer in (1, 2, 3)]
    for one in waiting:
        one.wait()
    world.send("a")
    world.send("b")
    assert [got.body for got in waiting[0].decode(world.reply(1))] == ["a"]
    assert [got.body for got in waiting[1].decode(world.reply(2))] == ["b"]
    assert world.take_replies(3) == []


def test_each_group_is_given_each_message(world: World) -> None:
    first = PopConsumer(world, group="G1", peer=1)
    second = PopConsumer(world, group="G2", peer=2)
    first.wait()
    second.wait(queueId=0)
    world.send("a")
    assert bodies(world.reply(1)) == bodies(world.reply(2)) == ["a"]


def test_a_waiting_pop_is_answered_by_what_comes_again(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    consumer.pop()
    consumer.wait(poll_ms=30_000)
    world.run(10_000 + GRACE_MS)
    (again,) = consumer.decode(world.reply())
    assert (again.body, again.reconsume_times) == ("a", 1)


def test_a_waiting_pop_ignores_what_it_does_not_want(world: World, consumer: PopConsumer) -> None:
    consumer.wait(exp="yes", expType="TAG")
    world.send("a", TAGS="no")
    assert world.take_replies() == []
    world.send("b", TAGS="yes")
    assert bodies(world.reply()) == ["b"]


def test_a_poll_ends_shortly_before_its_time(world: World, consumer: PopConsumer) -> None:
    consumer.wait(poll_ms=5_000)
    world.run(4_949)
    assert world.take_replies() == []
    world.run(1)
    reply = world.reply()
    assert (reply.code, reply.remark) == (210, "NO_MESSAGE_IN_QUEUE")
    assert ext(reply)["restNum"] == "0"


def test_no_more_polls_than_allowed_wait(world: World) -> None:
    world.settings["pop_polls_max"] = 2
    world.restart()
    for peer in (1, 2):
        PopConsumer(world, peer=peer).wait()
    third = PopConsumer(world, peer=3)
    third.wait()
    reply = world.reply(3)
    assert (reply.code, reply.remark) == (209, "NO_MESSAGE_IN_QUEUE")
    world.core.disconnected(1, world.now_ms)
    third.wait()
    assert world.take_replies(3) == []


@pytest.mark.parametrize("ahead_ms", [70_000, -70_000])
def test_a_client_s_clock_may_be_wrong(world: World, consumer: PopConsumer, ahead_ms: int) -> None:
    world.send("a")
    consumer.invisible_ms = 60_000
    assert bodies(consumer.ask(bornTime=world.now_ms + ahead_ms)) == ["a"]
    consumer.wait(bornTime=world.now_ms + ahead_ms)
    world.run(15_000)
    (reply,) = world.take_replies(consumer.peer)
    assert (reply.code, reply.remark) == (210, "NO_MESSAGE_IN_QUEUE")


def test_a_client_s_clock_may_be_set_back(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    consumer.ask(maxMsgNums=0)
    assert consumer.ask(bornTime=world.now_ms - 70_000).code == 210
    assert bodies(consumer.ask(bornTime=world.now_ms - 70_000)) == ["a"]


# -- errors --------------------------------------------------------------------------------------


def test_the_refusals_of_a_pop(world: World, consumer: PopConsumer) -> None:
    broker = world.core.broker
    zeros = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}

    def refusal(**more: object) -> tuple[int, str | None]:
        reply = consumer.ask(**more)
        assert ext(reply) == zeros
        return reply.code, reply.remark

    host = "the broker[127.0.0.1] pop message"
    assert refusal(topic="U")[0] == 17
    assert refusal(bornTime=START_MS - 501) == (210, f"{host} is timeout too much")
    assert refusal(maxMsgNums=33) == (29, f"{host}'s num is greater than 32")
    name = "g" * 247
    assert "would have a name of 256 characters, 255 are allowed" in str(
        refusal(consumerGroup=name)[1]
    )
    assert consumer.ask(consumerGroup=name, order=True).code == 210
    assert consumer.ask(consumerGroup=name[1:]).code == 210
    long = f"{host}'s attemptId has 256 characters, 255 are allowed"
    assert refusal(attemptId="x" * 256, order=True) == (29, long)
    assert refusal(topic="U")[0] == 17
    assert refusal(queueId=1) == (
        29,
        "queueId[1] is illegal, topic:[T] topicConfig.readQueueNums:[1] consumer:[127.0.0.1:40001]",
    )
    assert refusal(consumerGroup="no group!")[0] == 26
    group = broker.groups.get_or_create("G", START_MS)
    assert group is not None
    group.consume_enable = False
    assert refusal() == (16, "subscription group no permission, G")
    topic = broker.topics.get("T")
    assert topic is not None
    topic.perm = 2
    assert refusal() == (16, "the topic[T] peeking message is forbidden")
    broker.settings.permission = 2
    assert refusal() == (16, f"{host} is forbidden")


def test_the_refusals_of_an_ack(world: World, consumer: PopConsumer) -> None:
    world.send("a")
    (got,) = consumer.pop()

    def refusal(code: int, **more: object) -> tuple[int, str | None]:
        reply = world.ask(code, consumer.ack_fields(got, invisibleTime=1, **more))
        return reply.code, reply.remark

    for code in (Request.ACK_MESSAGE, Request.CHANGE_MESSAGE_INVISIBLETIME):
        assert refusal(code, topic="U")[0] == 17
        assert refusal(code, queueId=1)[0] == 13
        assert refusal(code, extraInfo="1 2 3")[0] == 1
        assert refusal(code, extraInfo="1 2 3 x 0 b")[0] == 1
    assert refusal(Request.ACK_MESSAGE, offset=2) == (
        208,
        "offset is illegal, key:T@0, commit:2, store:0~1",
    )
    assert refusal(Request.CHANGE_MESSAGE_INVISIBLETIME, offset=1) == (208, None)


@pytest.mark.parametrize("kind", ["3", "-1", "x", "", "1" * 5_000])
def test_batch_ack_of_an_odd_kind_is_refused_as_what_it_is(
    world: World, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    acks = [{"c": "G", "t": "T", "r": kind, "b": "AQ=="}]
    reply = world.ask(Request.BATCH_ACK_MESSAGE, body=json.dumps({"acks": acks}).encode())
    assert reply.code == 1
    assert "0, 1 or 2 is expected" in (reply.remark or "")
    assert "failed" not in caplog.text


# -- looking without taking ----------------------------------------------------------------------


def test_a_peek_takes_nothing(world: World, consumer: PopConsumer) -> None:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 2}
    assert world.ask(Request.PEEK_MESSAGE, fields).code == 19
    for text in "abc":
        world.send(text)
    reply = world.ask(Request.PEEK_MESSAGE, fields)
    assert (bodies(reply), ext(reply)["restNum"]) == (["a", "b"], "3")
    assert [got.body for got in consumer.pop()] == ["a", "b", "c"]


def test_a_notification_tells_of_what_is_there_and_of_what_comes(
    world: World, consumer: PopConsumer
) -> None:
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "pollTime": 5_000, "bornTime": 0,
    }  # fmt: skip
    no, yes = ({"hasMsg": flag, "pollingFull": "false"} for flag in ("false", "true"))
    world.tell(Request.NOTIFICATION, fields)
    assert world.take_replies() == []
    world.run(4_950)
    assert ext(world.reply()) == no
    world.tell(Request.NOTIFICATION, fields)
    world.send("a")
    assert ext(world.reply()) == yes
    assert ext(world.ask(Request.NOTIFICATION, fields)) == yes
    consumer.pop()
    assert ext(world.ask(Request.NOTIFICATION, {**fields, "pollTime": 0})) == no
    world.tell(Request.NOTIFICATION, {**fields, "pollTime": 60_000})
    world.run(10_000 + GRACE_MS)
    assert ext(world.reply()) == yes


def test_rolling_back_is_a_simple_success(world: World) -> None:
    assert world.ask(Request.POP_ROLLBACK).code == 0


@pytest.mark.parametrize("is_v2", [False, True])
def test_both_spellings_of_retry_topics(is_v2: bool) -> None:
    world = World(has_retry_topic_v2=is_v2)
    world.topic()
    consumer = PopConsumer(world)
    world.send("a")
    consumer.pop()
    world.run(10_000 + GRACE_MS)
    (again,) = consumer.pop()
    assert again.receipt.kind == (2 if is_v2 else 1)
    consumer.ack(again)
    world.run(60_000)
    assert consumer.pop() == []
