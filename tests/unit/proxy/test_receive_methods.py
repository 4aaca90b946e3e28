"""ReceiveMessage, and what becomes of what was received."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.compression import compress
from escrowmq.proxy.gen import v2

from .client import V5, World, message, messages_of, receiving, status_of


def make(kind: str = "", queues: int = 1) -> tuple[World, V5]:
    world = World()
    world.topic("T", kind, queues)
    client = world.connect()
    client.consume("CG", "T")
    return world, client


def orderly(world: World, group: str = "CG") -> None:
    world.exchange.connect("operator").ask(
        200, {}, b'{"groupName":"%b","consumeMessageOrderly":true}' % group.encode()
    )


def test_messages_come_between_a_status_and_a_time() -> None:
    world, client = make()
    one = message("T", tag="paid", keys=["k"], message_id="id-1")
    one.user_properties["shop"] = "3"
    client.send(one)
    stream = client.receive("T")
    assert stream.code == 0
    assert status_of(stream).code == v2.OK
    (found,) = messages_of(stream)
    system = found.system_properties
    assert (found.topic.name, found.body, dict(found.user_properties)) == (
        "T", b"hello", {"shop": "3"},
    )  # fmt: skip
    assert (system.message_id, system.tag, list(system.keys)) == ("id-1", "paid", ["k"])
    assert (system.body_digest.type, system.body_digest.checksum) == (
        v2.MD5, "5D41402ABC4B2A76B9719D911017C592",
    )  # fmt: skip
    assert (system.body_encoding, system.message_type) == (v2.IDENTITY, v2.NORMAL)
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
    assert system.store_timestamp.ToMilliseconds() == world.exchange.now_ms
    assert system.receipt_handle


@pytest.mark.parametrize("born_ms", [(1 << 63) - 1, -(1 << 63), -1])
def test_a_message_of_an_odd_time_comes_with_the_nearest_that_can_be_said(born_ms: int) -> None:
    """Senders of the remoting protocol say when it was born, and may say what they like."""
    world, client = make()
    sender = world.exchange.connect("remoting")
    assert sender.send("T", fields={"g": str(born_ms)}).code == 0
    sender.send("T", b"behind")
    found = messages_of(client.receive("T"))
    assert [each.body for each in found] == [b"body", b"behind"]
    born = found[0].system_properties.born_timestamp
    assert born.seconds in (-62_135_596_800, 253_402_300_799, -1)


def test_a_receive_waits_for_a_message() -> None:
    world, client = make()
    stream = client.receive("T")
    assert stream.data == b""
    world.connect("other").send(message("T"))
    assert len(messages_of(stream)) == 1


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(0, 3))
def test_who_waits_is_served_before_those_who_ask_beside_the_sender(
    steps: list[bool], waiting_count: int
) -> None:
    """A producer and consumers that share a connection, as those of a Node process do: a send and
    the next receive come in one read. Messages go to those who wait, in the order in which they
    came."""
    _, client = make()
    lines = [client.receive("T", count=1) for _ in range(waiting_count)]
    sent = 0
    with client.at_once():
        for is_send in steps:
            if is_send:
                sent += 1
                client.start("SendMessage", v2.SendMessageRequest(messages=[message("T")]))
            else:
                lines.append(client.receive("T", count=1))
    served = [line.is_over for line in lines]
    count = min(sent, len(lines))
    assert served == [True] * count + [False] * (len(lines) - count)
    assert all(len(messages_of(line)) == 1 for line in lines[:count])


def test_a_receive_that_finds_nothing_says_so() -> None:
    world, client = make()
    stream = client.receive("T", poll_s=5)
    world.exchange.advance(6_000)
    assert (status_of(stream).code, status_of(stream).message) == (
        v2.MESSAGE_NOT_FOUND, "no new message",
    )  # fmt: skip
    assert messages_of(stream) == []


def test_a_receive_that_was_cancelled_takes_nothing() -> None:
    world, client = make()
    number = client.begin("ReceiveMessage")
    client.write(number, receiving("T"), is_end=True)
    client.cancel(number)
    client.send(message("T"))
    assert len(world.connect("other").received("T")) == 1


def test_a_lost_connection_takes_nothing() -> None:
    world, client = make()
    client.receive("T")
    client.leave()
    world.connect("sender").send(message("T"))
    assert len(world.connect("other").received("T")) == 1


@pytest.mark.parametrize("form", ["zlib", "lz4", "zstd"])
def test_bodies_arrive_unpacked(form: str) -> None:
    world, client = make()
    body, flag = compress(b"a long body " * 20, form=form, level=3)
    world.exchange.connect().send("T", body, fields={"f": str(flag)})
    (found,) = client.received("T")
    assert (found.body, found.system_properties.body_encoding) == (
        b"a long body " * 20, v2.IDENTITY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"invisible_s": 9}, "ILLEGAL_INVISIBLE_TIME", "the invisibleTime is too small"),
        ({"invisible_s": 43_201}, "ILLEGAL_INVISIBLE_TIME", "the invisibleTime is too large"),
        ({"count": 0}, "BAD_REQUEST", "batch size is 0"),
        ({"group": " "}, "ILLEGAL_CONSUMER_GROUP", "consumer group cannot be blank"),
        ({"topic": "TBW102"}, "ILLEGAL_TOPIC", "cannot access system topic"),
        ({"topic": "nowhere"}, "TOPIC_NOT_FOUND", "topic[nowhere] not exist"),
    ],
)
def test_what_is_refused_ends_with_a_time_too(
    change: dict[str, object], code: str, text: str
) -> None:
    _, client = make()
    stream = client.receive(**{"topic": "T", **change})  # type: ignore[arg-type]
    status = status_of(stream)
    assert v2.Code.Name(status.code) == code
    assert text in status.message
    assert messages_of(stream) == []


def test_a_deadline_too_near_is_refused() -> None:
    _, client = make()
    stream = client.start("ReceiveMessage", receiving("T"), timeout_s=3)
    assert status_of(stream).code == v2.ILLEGAL_POLLING_TIME


def test_a_bad_expression_is_refused() -> None:
    _, client = make()
    request = receiving("T", expression="a >")
    request.filter_expression.type = v2.SQL
    assert status_of(client.start("ReceiveMessage", request)).code == (v2.ILLEGAL_FILTER_EXPRESSION)


def test_only_messages_that_are_wanted_come() -> None:
    _, client = make()
    for tag in ("a", "b", "c"):
        client.send(message("T", tag.encode(), tag=tag))
    assert [one.body for one in client.received("T", expression="a || c")] == [b"a", b"c"]


def test_another_tag_of_the_same_hash_is_not_shown() -> None:
    _, client = make()
    client.send(message("T", b"wrong", tag="BB"))  # Java's hash of "Aa" is the same
    client.send(message("T", b"right", tag="Aa"))
    assert [one.body for one in client.received("T", expression="Aa")] == [b"right"]


def test_an_acknowledged_message_does_not_come_again() -> None:
    world, client = make()
    client.send(message("T"))
    (found,) = client.received("T")
    assert client.ack(found).code == v2.OK
    assert client.ack(found).code == v2.OK  # twice is no mistake
    world.exchange.advance(60_000)
    stream = client.receive("T", poll_s=5)
    world.exchange.advance(6_000)
    assert messages_of(stream) == []


def test_a_message_that_was_not_comes_again_and_says_so() -> None:
    world, client = make()
    client.send(message("T"))
    (first,) = client.received("T")
    world.exchange.advance(40_000)
    (again,) = client.received("T")
    assert again.topic.name == "T"
    assert again.system_properties.delivery_attempt == 2
    assert client.ack(first).code == v2.INVALID_RECEIPT_HANDLE
    assert client.ack(again).code == v2.OK


def test_an_ack_counts_after_a_restart() -> None:
    world, client = make()
    client.send(message("T"))
    (found,) = client.received("T")
    world.restart()
    client = world.connect()
    assert client.ack(found).code == v2.OK
    world.exchange.advance(60_000)
    stream = client.receive("T", poll_s=5)
    world.exchange.advance(6_000)
    assert messages_of(stream) == []


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "nonsense",
        "1 2 3 4 5 broker-a 0",
        "1 2 3 4 0 broker-a 0 0 x",
        "1 9999999999999 9999 4 7 broker-a 0 0 0",
        "1 9999999999999 9999 0 0 another 0 0 0",
        "1 1 1 0 0 broker-a 0 0 0",
        "1 9999999999999 9999 0 0 broker-a 0 0 0 more",
        "9" * 2_000,
    ],
)
def test_handles_that_are_none_are_refused_each_by_itself(handle: str) -> None:
    _, client = make()
    client.send(message("T"))
    (found,) = client.received("T")
    request = v2.AckMessageRequest()
    request.group.name, request.topic.name = "CG", "T"
    request.entries.add(message_id="a", receipt_handle=handle)
    request.entries.add(message_id="b", receipt_handle=found.system_properties.receipt_handle)
    response = client.ask("AckMessage", request, v2.AckMessageResponse)
    assert response.status.code == v2.MULTIPLE_RESULTS
    assert [entry.status.code for entry in response.entries] == [
        v2.INVALID_RECEIPT_HANDLE, v2.OK,
    ]  # fmt: skip


def change(client: V5, handle: str, seconds: int) -> v2.ChangeInvisibleDurationResponse:
    request = v2.ChangeInvisibleDurationRequest(receipt_handle=handle)
    request.group.name, request.topic.name = "CG", "T"
    request.invisible_duration.seconds = seconds
    return client.ask("ChangeInvisibleDuration", request, v2.ChangeInvisibleDurationResponse)


def test_each_message_of_a_batch_can_be_hidden_for_longer() -> None:
    world, client = make()
    for nth in range(4):
        client.send(message("T", b"%d" % nth))
    found = client.received("T")
    for one in found:
        changed = change(client, one.system_properties.receipt_handle, 100)
        assert changed.status.code == v2.OK
        one.system_properties.receipt_handle = changed.receipt_handle
    world.exchange.advance(50_000)
    assert {client.ack(one).code for one in found[1:]} == {v2.OK}
    world.exchange.advance(60_000)
    assert [one.body for one in client.received("T")] == [b"0"]
    assert change(client, found[0].system_properties.receipt_handle, 0).status.code == (
        v2.INVALID_RECEIPT_HANDLE
    )


def test_a_span_that_cannot_be_is_refused() -> None:
    _, client = make()
    client.send(message("T"))
    (found,) = client.received("T")
    for seconds in (-1, 43_201):
        response = change(client, found.system_properties.receipt_handle, seconds)
        assert response.status.code == v2.ILLEGAL_INVISIBLE_TIME


def test_a_message_that_is_given_back_without_a_wait_comes_again_soon() -> None:
    world, client = make()
    client.send(message("T"))
    (found,) = client.received("T")
    assert change(client, found.system_properties.receipt_handle, 0).status.code == v2.OK
    world.exchange.advance(5_000)
    (again,) = client.received("T")
    assert again.system_properties.delivery_attempt == 2


def test_a_message_can_be_put_to_the_dead_letters() -> None:
    world, client = make()
    client.send(message("T", b"poison"))
    (found,) = client.received("T")
    request = v2.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=found.system_properties.receipt_handle, message_id="m"
    )
    request.group.name, request.topic.name = "CG", "T"
    kind = v2.ForwardMessageToDeadLetterQueueResponse
    assert client.ask("ForwardMessageToDeadLetterQueue", request, kind).status.code == v2.OK
    assert world.exchange.connect().bodies("%DLQ%CG") == [b"poison"]
    world.exchange.advance(40_000)
    stream = client.receive("T", poll_s=5)
    world.exchange.advance(6_000)
    assert messages_of(stream) == []


def test_an_orderly_group_gets_one_batch_of_a_queue_at_a_time() -> None:
    world, client = make("FIFO")
    orderly(world)
    for nth in range(4):
        client.send(message("T", b"%d" % nth, kind=v2.FIFO, message_group="g"))
    first = client.received("T", count=2, attempt_id="a1")
    assert [one.body for one in first] == [b"0", b"1"]
    assert first[0].system_properties.message_group == "g"
    # The answer was lost: the same attempt gets the same messages, another one nothing.
    again = client.received("T", count=2, attempt_id="a1")
    assert [one.body for one in again] == [b"0", b"1"]
    waiting = client.receive("T", count=2, attempt_id="a2")
    assert not waiting.is_over
    for one in again:
        assert client.ack(one).code == v2.OK
    assert [one.body for one in messages_of(waiting)] == [b"2", b"3"]


def test_java_and_gprc_consumers_of_one_group_share_the_work() -> None:
    world, client = make()
    remoting = world.exchange.connect()
    ext = {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "30000", "pollTime": "0", "bornTime": "0", "initMode": "0",
    }  # fmt: skip
    client.send(message("T", b"0"))
    client.send(message("T", b"1"))
    assert remoting.ask(200050, ext).code == 0
    assert [one.body for one in client.received("T")] == [b"1"]
