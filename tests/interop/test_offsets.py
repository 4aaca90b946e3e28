"""Where consumers begin, where they go on, and how they share queues."""

from typing import Any

import pytest

from tests.harness.parameters import quick

from . import wire
from .drivers import Driver, JavaDriver, unique
from .process import until
from .servers import Server

JAVA = ["java-5.3.3", "java-5.5.0", "java-4.9.8"]


def test_group_goes_on_where_it_stopped(server: Server, client: Driver, topic: str) -> None:
    producer = client.producer(server.nameserver)
    for n in range(8):
        producer.send(topic, f"old {n}")
    first = client.consumer(server.nameserver, topic)
    first.received(8)
    until("it is told", lambda: wire.committed(server.broker, first.group, topic) == 8)
    first.close(wait=True)
    producer.send(topic, "new")
    second = client.consumer(server.nameserver, topic, group=first.group)
    assert [one.text for one in second.received(1)] == ["new"]


@pytest.mark.parametrize("java", JAVA, indirect=True)
def test_new_group_on_a_young_topic_begins_at_its_first_message(
    server: Server, java: Driver, topic: str
) -> None:
    """Whatever the client asks for: the broker answers 0 while the queue still has its start."""
    java.producer(server.nameserver).send(topic, "yesterday", queueId=0)
    late = java.consumer(server.nameserver, topic, consumeFromWhere="CONSUME_FROM_LAST_OFFSET")
    future = java.consumer(
        server.nameserver,
        topic,
        consumeFromWhere="CONSUME_FROM_TIMESTAMP",
        consumeTimestamp="20990101000000",
    )
    assert [one.text for one in late.received(1)] == ["yesterday"]
    assert [one.text for one in future.received(1)] == ["yesterday"]


def test_two_consumers_share_the_queues(server: Server, client: Driver, topic: str) -> None:
    group = unique("CG")
    producer = client.producer(server.nameserver)
    consumers = [client.consumer(server.nameserver, topic, group=group) for _ in range(2)]

    def shares() -> list[set[int]]:
        for queue in range(4):
            producer.send(topic, "x", queueId=queue)
        latest = [consumer.received() for consumer in consumers]
        sent_to = [{one.queue_id for one in got[-4:]} for got in latest]
        return sent_to if all(len(queues) == 2 for queues in sent_to) else []

    first, second = until("two queues each", shares, within_s=40)
    assert first | second == {0, 1, 2, 3}


def test_queues_of_a_consumer_that_leaves_go_to_the_other(
    server: Server, client: Driver, topic: str
) -> None:
    group = unique("CG")
    producer = client.producer(server.nameserver)
    staying = client.consumer(server.nameserver, topic, group=group)
    leaving = client.consumer(server.nameserver, topic, group=group)
    leaving.close(wait=True)

    def queues() -> bool:
        for queue in range(4):
            producer.send(topic, "x", queueId=queue)
        return {one.queue_id for one in staying.received()[-8:]} == {0, 1, 2, 3}

    until("all queues at one consumer", queues, within_s=40)


def test_reset_by_time_gives_everything_again(server: Server, java: JavaDriver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    for n in range(4):
        producer.send(topic, f"{n}", queueId=n)
    consumer = java.consumer(server.nameserver, topic)
    consumer.received(4)
    until("offsets known", lambda: reset(java, server, topic, consumer.group))
    again = consumer.received(8, within_s=60)
    assert sorted(one.text for one in again[4:8]) == ["0", "1", "2", "3"]


def reset(java: JavaDriver, server: Server, topic: str, group: str) -> bool:
    admin = java.admin(server.nameserver)
    moved = admin.call("resetOffsetByTimestamp", topic, group, 0, True)
    admin.close()
    return len(moved) == 4


@pytest.mark.parametrize(
    "java", quick(["java-5.5.0"], of=[*JAVA, "java-5.3.3-binary"]), indirect=True
)
def test_lite_pull_consumer_polls_and_commits(server: Server, java: JavaDriver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    for n in range(20):
        producer.send(topic, f"{n}")
    lite = java.lite(server.nameserver, topic, autoCommit=False)
    got = lite.poll(20)
    assert sorted(int(one.text) for one in got) == list(range(20))
    lite.call("commitSync")
    lite.close()
    producer.send(topic, "after")
    second = java.lite(server.nameserver, topic, group=lite.group)
    assert [one.text for one in second.poll(1, within_s=40)] == ["after"]
    second.close()


@pytest.mark.parametrize("java", [*JAVA, "java-5.3.3-binary"], indirect=True)
def test_pulls_say_what_lies_at_an_offset(server: Server, java: JavaDriver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    for n in range(5):
        producer.send(topic, f"{n}", queueId=1, tag="even" if n % 2 == 0 else "odd")
    puller = java.puller(server.nameserver)
    where: dict[str, Any] = {"broker": server.broker_name, "queue_id": 1}

    found = puller.pull(topic, **where, offset=2, max=2)
    assert (found.status, found.next_offset) == ("FOUND", 4)
    assert [one.text for one in found.messages] == ["2", "3"]
    assert (found.min_offset, found.max_offset) == (0, 5)
    tagged = puller.pull(topic, **where, offset=0, expression="odd")
    assert [one.text for one in tagged.messages] == ["1", "3"]
    assert puller.pull(topic, **where, offset=0, expression="none").status == "NO_MATCHED_MSG"
    assert puller.pull(topic, **where, offset=5).status == "NO_NEW_MSG"
    beyond = puller.pull(topic, **where, offset=99)
    assert (beyond.status, beyond.next_offset) == ("OFFSET_ILLEGAL", 5)
    queue = {"topic": topic, "brokerName": server.broker_name, "queueId": 1}
    assert puller.call("maxOffset", queue) == 5
    assert puller.call("minOffset", queue) == 0
    assert puller.call("searchOffset", queue, 0) == 0
    stored = found.messages[0]
    assert puller.call("searchOffset", queue, stored.stored_ms) <= 2
    assert abs(puller.call("earliestMsgStoreTime", queue) - stored.stored_ms) < 60_000
    puller.close()
