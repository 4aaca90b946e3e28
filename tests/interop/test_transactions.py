"""Transactions: what is committed arrives, what is rolled back does not, what is open is asked."""

from .drivers import Consumer, Driver
from .process import until
from .servers import Server
from .values import Received


def test_outcomes_decide_what_is_delivered(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.transaction_producer(server.nameserver)
    producer.transaction(topic, "rolled back", keys="r", outcome="ROLLBACK")
    sent = producer.transaction(
        topic, "committed", keys="c", outcome="COMMIT", tag="t", properties={"colour": "red"}
    )
    open_ = producer.transaction(
        topic, "unknown, then committed", keys="u-c", outcome="UNKNOWN", checks=["COMMIT"]
    )
    producer.transaction(
        topic, "unknown, then rolled back", keys="u-r", outcome="UNKNOWN", checks=["ROLLBACK"]
    )

    def checked() -> dict[str | None, Received]:
        seen = {one.keys: one for one in producer.checks()}
        return seen if {"u-c", "u-r"} <= set(seen) else {}

    asked = until("both checks", checked, within_s=40)
    got = until("both commits", lambda: delivered(consumer, 2), within_s=40)
    assert set(got) == {"c", "u-c"}
    assert sent.status == "SEND_OK"
    assert (got["c"].text, got["c"].tag) == ("committed", "t")
    assert got["c"].properties["colour"] == "red"
    assert got["c"].msg_id == sent.msg_id
    assert got["c"].topic == topic
    assert got["c"].prepared_offset >= 0
    assert got["c"].sys_flag & 12 == 8
    assert asked["u-c"].properties["UNIQ_KEY"] == open_.msg_id
    assert asked["u-c"].text == "unknown, then committed"
    assert asked["u-c"].topic == topic


def delivered(consumer: Consumer, count: int) -> dict[str | None, Received]:
    """What arrived, by key; Apache's broker may commit twice what it asks about too early."""
    got = {one.keys: one for one in consumer.received()}
    return got if len(got) >= count else {}


def test_half_message_is_invisible_until_it_is_settled(
    server: Server, java: Driver, topic: str
) -> None:
    consumer = java.consumer(server.nameserver, topic)
    producer = java.transaction_producer(server.nameserver)
    producer.transaction(
        topic, "open", keys="open", outcome="UNKNOWN", checks=["UNKNOWN", "COMMIT"]
    )
    producer.send(topic, "plain", keys="plain")
    assert [one.keys for one in consumer.received(1)] == ["plain"]
    checks = producer.checks(2, within_s=60)
    assert [one.answer for one in checks[:2]] == ["UNKNOWN", "COMMIT"]
    got = until("the commit", lambda: delivered(consumer, 2))
    assert got["open"].consumed_ms >= checks[1].consumed_ms - 1


def test_listener_that_raises_is_asked_again(server: Server, java: Driver, topic: str) -> None:
    consumer = java.consumer(server.nameserver, topic)
    producer = java.transaction_producer(server.nameserver)
    producer.transaction(topic, "raised", keys="raised", outcome="RAISE", checks=["COMMIT"])
    assert producer.checks(1, within_s=40)[0].answer == "COMMIT"
    assert {one.keys for one in consumer.received(1)} == {"raised"}


def test_another_producer_of_the_group_is_asked(server: Server, java: Driver, topic: str) -> None:
    consumer = java.consumer(server.nameserver, topic)
    first = java.transaction_producer(server.nameserver)
    first.transaction(topic, "orphan", keys="orphan", outcome="UNKNOWN", checks=["UNKNOWN"])
    first.close(wait=True)
    # It registers when it has a route, so it sends something.
    second = java.transaction_producer(
        server.nameserver, first.group, checks={"orphan": ["COMMIT"]}
    )
    second.send(topic, "hello", keys="hello")
    got = until("both", lambda: delivered(consumer, 2), within_s=60)
    assert set(got) == {"orphan", "hello"}
    assert {one.keys for one in second.checks(1)} == {"orphan"}


def test_check_says_how_often_it_was_asked(server: Server, java: Driver, topic: str) -> None:
    producer = java.transaction_producer(server.nameserver)
    producer.transaction(
        topic, "open", keys="open", outcome="UNKNOWN", checks=["UNKNOWN", "UNKNOWN", "ROLLBACK"]
    )
    until("two checks", lambda: len(producer.checks(2, within_s=60)) >= 2)
    times = [one.properties["TRANSACTION_CHECK_TIMES"] for one in producer.checks(2)]
    assert times[:2] == ["1", "2"]
