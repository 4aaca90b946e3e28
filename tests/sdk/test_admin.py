"""The admin client against a real broker."""

import asyncio
import datetime as dt
from collections.abc import Callable

import pytest

import escrowmq
from escrowmq.errors import (
    ClientClosed,
    GroupNotFound,
    NoNameServer,
    NotFound,
    NotSupported,
    RouteMissing,
    TopicNotFound,
    UsageError,
)
from escrowmq.node.build import release_with_commit
from tests.interop import wire
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .commands import run
from .conftest import new_topic
from .test_consume import FAST, Seen, numbered, send


def test_a_topic_lives(server: Server) -> None:
    topic = unique("T")
    with escrowmq.Admin(server.nameserver) as admin:
        with pytest.raises(TopicNotFound):
            admin.topics.describe(topic)
        admin.topics.create(topic, queues=3, attributes={"message.type": "NORMAL"})
        assert topic in admin.topics.names()
        assert "SCHEDULE_TOPIC_XXXX" not in admin.topics.names()
        (info,) = admin.topics.describe(topic).brokers
        assert (info.read_queues, info.write_queues, info.permission) == (3, 3, "rw")
        assert info.attributes == {"message.type": "NORMAL"}

        send(server, topic, numbered(5))
        until("statistics", lambda: admin.topics.describe(topic).count == 5)
        admin.topics.update(topic, read_queues=5, permission="r")
        (info,) = admin.topics.describe(topic).brokers
        assert (info.read_queues, info.write_queues, info.permission) == (5, 3, "r")

        admin.topics.delete(topic)
        assert topic not in admin.topics.names()
        with pytest.raises(TopicNotFound):
            admin.topics.delete(topic)


def test_an_ordered_topic_keeps_its_queues(server: Server) -> None:
    topic = unique("T")
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create(topic, queues=2, is_ordered=True)
        (info,) = admin.topics.describe(topic).brokers
        assert info.is_ordered
        wanted = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic}
        kept = wire.ask(server.nameserver, 101, wanted)
        assert kept.fields["value"] == f"{server.broker_name}:2"
        admin.topics.delete(topic)
        assert wire.ask(server.nameserver, 101, wanted).code != 0


def test_creating_what_exists_changes_only_what_is_named(server: Server) -> None:
    topic, group = unique("T"), unique("CG")
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create(topic, queues=16, is_ordered=True, permission="r")
        admin.topics.update(topic, read_queues=12)
        admin.topics.create(topic)
        (info,) = admin.topics.describe(topic).brokers
        assert (info.read_queues, info.write_queues, info.permission) == (12, 16, "r")
        assert info.is_ordered
        admin.topics.create(topic, permission="rw", is_ordered=False)
        (info,) = admin.topics.describe(topic).brokers
        assert (info.write_queues, info.permission, info.is_ordered) == (16, "rw", False)
        admin.topics.delete(topic)

        admin.groups.create(group, attempts_max=5, is_ordered=True)
        admin.groups.create(group, retry_queues=2)
        (found,) = admin.groups.describe(group).brokers
        assert (found.attempts_max, found.is_ordered, found.retry_queues) == (5, True, 2)
        admin.groups.delete(group)


def test_a_group_lives(server: Server, topic: str) -> None:
    group = unique("CG")
    with escrowmq.Admin(server.nameserver) as admin:
        with pytest.raises(GroupNotFound):
            admin.groups.describe(group)
        with pytest.raises(GroupNotFound):
            admin.groups.update(group, attempts_max=3)
        for change in (admin.groups.create, admin.groups.update):
            for count in (-5, 2**31):
                with pytest.raises(UsageError, match=f"attempts_max={count}; 0 to 2147483647"):
                    change(group, attempts_max=count)
            with pytest.raises(UsageError, match="retry_queues=-1; 0 to 65536"):
                change(group, retry_queues=-1)
        admin.groups.create(group, attempts_max=7)
        assert group in admin.groups.names()
        assert "TOOLS_CONSUMER" not in admin.groups.names()
        admin.groups.update(group, retry_queues=2)
        (info,) = admin.groups.describe(group).brokers
        assert (info.attempts_max, info.retry_queues, info.is_enabled) == (7, 2, True)
        assert admin.groups.members(group).members == []

        seen = Seen()
        consumer = escrowmq.Consumer(
            server.nameserver, group=group, topic=topic, tags="a || b", handler=seen, **FAST
        )
        send(server, topic, numbered(8), tag="a")
        with consumer:
            seen.wait(8)
            online = admin.groups.members(group)
            assert [member.client_id for member in online.members] == [
                consumer._inner.instance.client_id
            ]
            assert online.model == "CLUSTERING"
            assert online.topics[topic] == "a || b"
            until("no lag", lambda: admin.groups.describe(group).lag == 0)
            assert group in admin.topics.describe(topic).groups
        lags = admin.groups.lag(group, topic=topic)
        assert sum(lag.committed for lag in lags) == sum(lag.end for lag in lags) == 8

        admin.groups.delete(group)
        assert group not in admin.groups.names()
        with pytest.raises(GroupNotFound):
            admin.groups.delete(group)


def test_offsets_are_reset_while_a_member_consumes(server: Server, topic: str) -> None:
    group = unique("CG")
    seen = Seen()
    send(server, topic, numbered(8))
    consumer = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=seen, pull_wait_ms=1_000, **FAST
    )
    with consumer, escrowmq.Admin(server.nameserver) as admin:
        seen.wait(8)
        until("committed", lambda: admin.groups.describe(group).lag == 0)
        back = admin.offsets.reset(group, topic, "first")
        assert set(back.values()) == {0}
        assert len(back) == 4
        seen.wait(16)
        assert sorted(seen.bodies()) == sorted(2 * numbered(8))


def test_offsets_are_reset_and_cloned_without_members(server: Server, topic: str) -> None:
    group, other = unique("CG"), unique("CG")
    send(server, topic, numbered(8))
    with escrowmq.Admin(server.nameserver) as admin:
        admin.groups.create(group)
        admin.groups.create(other)
        ends = admin.offsets.reset(group, topic, "last")
        assert sum(ends.values()) == 8
        assert sum(lag.count for lag in admin.offsets.show(group, topic=topic)) == 0
        future = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        assert set(admin.offsets.reset(group, topic, future).values()) == {0}
        queue = min(ends)
        admin.offsets.set(group, queue, 1)
        admin.offsets.clone(group, other, topic=topic)
        cloned = {lag.queue: lag.committed for lag in admin.offsets.show(other, topic=topic)}
        assert cloned[queue] == 1
        with pytest.raises(UsageError, match=r"has no queue 77 on .*; 4 can be read there"):
            admin.offsets.set(group, escrowmq.MessageQueue(topic, queue.broker_name, 77), 0)
        nobody = unique("CG")
        with pytest.raises(GroupNotFound, match=nobody):
            admin.offsets.show(nobody)
        with pytest.raises(GroupNotFound, match=nobody):
            admin.offsets.clone(nobody, other, topic=topic)
        with pytest.raises(UsageError, match="time zone"):
            admin.offsets.reset(group, topic, dt.datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(RouteMissing):
            admin.offsets.reset(group, unique("T"), "first")


@pytest.mark.parametrize("before_1970_s", [0.001, 1, 300_000_000])
def test_a_reset_to_a_time_before_1970_begins_at_the_first_messages(
    server: Server, topic: str, before_1970_s: float
) -> None:
    """Brokers take a negative time for the end: all messages were skipped, against the preview."""
    group = unique("CG")
    send(server, topic, numbered(8))
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - dt.timedelta(seconds=before_1970_s)
    with escrowmq.Admin(server.nameserver) as admin:
        admin.groups.create(group)
        assert set(admin.offsets.preview(group, topic, moment).values()) == {0}
        assert set(admin.offsets.reset(group, topic, moment).values()) == {0}


def test_brokers_are_shown_and_set(own_server: Callable[..., Server]) -> None:
    server = own_server()
    # RocketMQ fails to tell of itself before the first message.
    send(server, new_topic(server), [b"1"])
    with escrowmq.Admin(server.nameserver) as admin:
        (broker,) = admin.brokers.all()
        assert (broker.name, broker.address, broker.id) == (server.broker_name, server.broker, 0)
        assert broker.version
        told = admin.brokers.runtime(broker.name).get("escrowVersion", "")
        assert broker.build == told
        assert told == (release_with_commit() if server.kind == "escrow" else "")
        assert int(admin.brokers.runtime(broker.name)["bootTimestamp"]) > 0
        assert admin.brokers.config(broker.name)["brokerName"] == broker.name
        admin.brokers.configure(broker.name, {"transactionCheckMax": 7})
        assert admin.brokers.config(broker.name)["transactionCheckMax"] == "7"
        for change in admin.brokers.changes(broker.name):
            assert (change.name, change.value) == ("transactionCheckMax", "7")
            assert (change.before, change.at_ms > 0) == ("15", True)
            assert change.who.startswith("127.0.0.1:")
        is_ours = server.kind == "escrow"
        assert len(admin.brokers.changes(broker.name)) == is_ours
        with pytest.raises(RouteMissing, match="nobody"):
            admin.brokers.config("nobody")
        with pytest.raises(UsageError):
            admin.brokers.configure(broker.name, {"a\nb": 1})


def test_messages_are_found_and_sent_again(server: Server, topic: str) -> None:
    with (
        escrowmq.Producer(server.nameserver, group=unique("PG")) as producer,
        escrowmq.Admin(server.nameserver) as admin,
    ):
        sent = producer.send(topic, b"body", tag="t", keys=["k1", "k2"], properties={"a": "b"})
        found = until("the index", lambda: admin.messages.find(topic, "k2"))
        (message,) = found
        assert (message.body, message.tag, message.keys) == (b"body", "t", ["k1", "k2"])
        assert message.message_id == sent.message_id
        assert admin.messages.get(sent.message_id, topic=topic).offset_id == message.offset_id
        assert admin.messages.get(message.offset_id).message_id == sent.message_id
        assert admin.messages.at(message_queue(message), message.queue_offset) == [message]
        assert admin.messages.find(topic, "no such key") == []
        with pytest.raises(NotFound):
            admin.messages.at(message_queue(message), 1_000)
        with pytest.raises(NotFound):
            admin.messages.get("0" * 32, topic=topic)
        with pytest.raises(UsageError):
            admin.messages.get("what?")

        again = admin.messages.resend(message)
        assert again.message_id != sent.message_id
        until("both", lambda: len(admin.messages.find(topic, "k1")) == 2)
        both = admin.messages.find(topic, "k1")
        assert {one.properties["a"] for one in both} == {"b"}


def test_a_dead_letter_is_sent_again_to_where_it_failed(server: Server, topic: str) -> None:
    group = unique("CG")
    send(server, topic, [b"bad"])
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer:
        (message,) = until("the message", lambda: consumer.receive(timeout_s=1))
        message.reject()
    dead = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=f"%DLQ%{group}")
    with dead, escrowmq.Admin(server.nameserver) as admin:
        (letter,) = until("a dead letter", lambda: dead.receive(timeout_s=1))
        assert admin.messages.resend(letter).queue.topic == topic
        assert admin.messages.resend(letter, topic=letter.topic).queue.topic == letter.topic


@pytest.mark.ours_alone
def test_dead_letters_come_to_their_group_alone(server: Server, topic: str) -> None:
    group, other = unique("CG"), unique("CG")
    with escrowmq.Admin(server.nameserver) as admin:
        assert list(admin.groups.redeliver_dead(group)) == []
        send(server, topic, [b"1", b"2", b"3"])
        with (
            escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer,
            escrowmq.Consumer(server.nameserver, group=other, topic=topic) as bystander,
        ):
            died: list[bytes] = []
            while len(died) < 3:
                for message in consumer.receive(timeout_s=5):
                    message.reject()
                    died.append(message.body)
            seen = [m for _ in range(3) for m in until("them", lambda: bystander.receive(1))]
            for message in seen:
                message.ack()
            dead = until("letters", lambda: list(admin.groups.redeliver_dead(group, dry_run=True)))
            until("all", lambda: len(list(admin.groups.redeliver_dead(group, dry_run=True))) == 3)
            assert dead[0].topic == topic
            found = list(admin.groups.redeliver_dead(group, limit=2))
            assert [letter.status for letter in found] == ["redelivered"] * 2
            text = run("group", "redeliver-dead", group, nameserver=server.nameserver).stdout
            assert text.splitlines()[0].startswith("MESSAGE\tTOPIC\tDIED")
            assert text.splitlines()[-1] == f"1 redelivered to {group} alone, 2 had been before"
            again: list[bytes] = []
            while len(again) < 3:
                for message in consumer.receive(timeout_s=5):
                    assert message.topic == topic
                    message.ack()
                    again.append(message.body)
            assert sorted(again) == [b"1", b"2", b"3"]
            assert bystander.receive(timeout_s=0.1) == []


def message_queue(message: escrowmq.ReceivedMessage) -> escrowmq.MessageQueue:
    return escrowmq.MessageQueue(message.topic, message.broker_name, message.queue_id)


def test_one_member_consumes_one_message_now(server: Server, topic: str) -> None:
    group = unique("CG")
    seen = Seen()
    send(server, topic, [b"1"], keys=["k"])
    consumer = escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen)
    with consumer, escrowmq.Admin(server.nameserver) as admin:
        seen.wait(1)
        (message,) = until("the index", lambda: admin.messages.find(topic, "k"))
        (member,) = admin.groups.members(group).members
        admin.messages.deliver(message, group=group, client_id=member.client_id)
        assert seen.bodies() == [b"1", b"1"]
        seen.failures_count = 1
        with pytest.raises(escrowmq.errors.MessageRefused, match="told to fail"):
            admin.messages.deliver(message, group=group, client_id=member.client_id)


def test_pages_are_asked_for_while_items_are_taken(
    own_server: Callable[..., Server], peer: str
) -> None:
    if peer == "java":
        pytest.skip("only EscrowMQ's brokers show pending transactions")
    server = own_server(transactionTimeOut=600_000)
    topic = new_topic(server)
    count = 450
    with escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        for number in range(count):
            with producer.transaction(topic, b"x", keys=[str(number)]) as tx:
                tx.detach()
    with escrowmq.Admin(server.nameserver) as admin:
        keys = [item.keys for item in admin.transactions.pending()]
        assert keys == [str(number) for number in range(count)]
        assert admin.transactions.count().count == count
        with pytest.raises(NotFound):
            admin.transactions.show("0" * 32)
        with pytest.raises(UsageError):
            admin.transactions.commit("what?")
        with pytest.raises(UsageError, match="min_age_ms=-5; at least 0 is"):
            admin.transactions.count(min_age_ms=-5)


def test_a_foreign_broker_shows_no_transactions(server: Server, peer: str) -> None:
    if peer != "java":
        pytest.skip("this broker does")
    with escrowmq.Admin(server.nameserver) as admin:
        with pytest.raises(NotSupported):
            admin.transactions.count()
        with pytest.raises(NotSupported):
            list(admin.transactions.pending())


def test_names_have_a_namespace(server: Server) -> None:
    topic, space = unique("T"), unique("NS")
    with escrowmq.Admin(server.nameserver, namespace=space) as admin:
        admin.topics.create(topic, queues=2)
        assert topic in admin.topics.names()
    with escrowmq.Admin(server.nameserver) as admin:
        assert f"{space}%{topic}" in admin.topics.names()
    seen = Seen(failures_count=1)
    group = unique("CG")
    consumer = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, namespace=space, handler=seen
    )
    with (
        consumer,
        escrowmq.Producer(server.nameserver, group="pg", namespace=space) as producer,
    ):
        producer.send(topic, b"1")
        seen.wait(2)
        assert {message.topic for message in seen.messages} == {topic}
        assert {queue.topic for queue in consumer.queues()} == {topic}


def test_nobody_is_there() -> None:
    with pytest.raises(NoNameServer):
        escrowmq.Admin("127.0.0.1:1")

    async def main() -> None:
        admin = escrowmq.aio.Admin("127.0.0.1:1")
        with pytest.raises(ClientClosed):
            await admin.topics.names(with_system=True)
        await admin.close()

    asyncio.run(main())


def test_a_prepared_message_is_found_under_its_own_topic(server: Server) -> None:
    """Whatever became of its transaction; consumers see the committed one alone."""
    topic = unique("T")
    with (
        escrowmq.Admin(server.nameserver) as admin,
        escrowmq.Producer(server.nameserver, group=unique("PG")) as producer,
    ):
        admin.topics.create(topic)
        ids = {}
        for body in (b"committed", b"dropped", b"open"):
            with producer.transaction(topic, body, keys=["k"]) as tx:
                if body == b"dropped":
                    tx.rollback()
                if body == b"open":
                    tx.unknown()
            ids[tx.results[0].message_id] = body
        for message_id, body in ids.items():

            def look(wanted: str = message_id) -> escrowmq.ReceivedMessage | None:
                try:
                    return admin.messages.prepared(wanted, topic=topic)
                except NotFound:
                    return None  # a Java broker's index is built a moment later

            found = until("it is found", look)
            assert (found.topic, found.body, found.message_id) == (topic, body, message_id)
        seen = until("the committed one", lambda: admin.messages.find(topic, "k"))
        assert [one.body for one in seen] == [b"committed"]
        with pytest.raises(NotFound, match="committed or not"):
            admin.messages.prepared("7F000001", topic=topic)
