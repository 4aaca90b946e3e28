"""What became of a message, and what is wrong in a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

import escrowmq
from escrowmq import aio
from escrowmq.client.admin.diagnosis import _may_match_tag
from escrowmq.errors import NotFound, UsageError
from escrowmq.testing import Broker
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .commands import run
from .conftest import new_topic

pytestmark = pytest.mark.ours_alone
LONG_MS = 600_000


def state_of(admin: escrowmq.Admin, message_id: str, topic: str, group: str) -> str:
    found = admin.diagnosis.message(message_id, topic=topic)
    (delivery,) = [one for one in found.deliveries if one.group == group]
    return delivery.state


def wait_state(admin: escrowmq.Admin, message_id: str, topic: str, group: str, state: str) -> None:
    until(f"it is {state}", lambda: state_of(admin, message_id, topic, group) == state)


def test_each_fate_of_a_message_is_told(own_server: Callable[..., Server]) -> None:
    server = own_server(transactionTimeOut=LONG_MS)
    topic, group = new_topic(server), unique("G")
    with (
        escrowmq.Admin(server.nameserver) as admin,
        escrowmq.Producer(server.nameserver, group=unique("PG")) as producer,
    ):
        with escrowmq.Consumer(
            server.nameserver, group=group, topic=topic, tags="a || c", consume_from="first"
        ) as consumer:
            until("the group is there", lambda: admin.groups.members(group).members)
            eaten = producer.send(topic, b"eaten", tag="a", order_key="one")
            other = producer.send(topic, b"other", tag="b", order_key="one")
            held = producer.send(topic, b"held", tag="c", order_key="one")
            got = iter(consumer)
            assert next(got).body == b"eaten"
            assert next(got).body == b"held"  # acknowledges the one before
            for sent, state in ((eaten, "consumed"), (other, "filtered out"), (held, "in flight")):
                wait_state(admin, sent.message_id, topic, group, state)
        left = producer.send(topic, b"left", tag="a", order_key="one")
        found = admin.diagnosis.message(left.message_id, topic=topic)
        assert found.state == "visible"
        (delivery,) = found.deliveries
        assert delivery.state == "not read"
        assert "no consumer is connected" in delivery.detail
        admin.groups.update(group, is_enabled=False)
        assert state_of(admin, left.message_id, topic, group) == "stopped"

        later = producer.send(topic, b"later", delay=500)
        found = admin.diagnosis.message(later.message_id, topic=topic)
        assert (found.state, found.deliveries) == ("delayed", [])
        assert "delivered at 20" in found.facts[0]

        with producer.transaction(topic, b"half") as tx:
            tx.detach()
        found = admin.diagnosis.message(tx.results[0].message_id, topic=topic)
        assert found.state == "waiting"
        assert "was asked 0 times" in found.facts[0]
        admin.transactions.rollback(tx.results[0].message_id, topic=topic)
        found = admin.diagnosis.message(tx.results[0].message_id, topic=topic)
        assert found.state == "rolled_back"
        with pytest.raises(NotFound, match="was never stored"):
            admin.diagnosis.message("0" * 32, topic=topic)

    ended = run("message", "explain", left.message_id, "--topic", topic, "-n", server.nameserver)
    assert ended.returncode == 0, ended
    assert f"{left.message_id}: visible" in ended.stdout
    assert f"group {group}: stopped" in ended.stdout


def test_a_doctor_finds_what_is_wrong_and_nothing_where_all_is_well(
    own_server: Callable[..., Server],
) -> None:
    server = own_server()
    words = ("doctor", "-n", server.nameserver)
    ended = run(*words)
    assert (ended.returncode, ended.stdout) == (0, "nothing is wrong that could be seen\n"), ended
    topic, group, producers = new_topic(server), unique("G"), unique("PG")
    with escrowmq.Producer(server.nameserver, group=producers) as producer:
        with producer.transaction(topic, b"half") as tx:
            tx.detach()
        producer.send(topic, b"plain")
    with escrowmq.Admin(server.nameserver) as admin:
        admin.groups.create(group)
        admin.offsets.reset(group, topic, "first")
        until("parked", lambda: admin.transactions.count().parked)
    ended = run(*words, "--json")
    assert ended.returncode == 1, ended
    found = {one["subject"]: one for one in map(json.loads, ended.stdout.splitlines())}
    assert found[f"producer group {producers}"]["severity"] == "problem"
    assert "1 messages wait" in found[f"consumer group {group}"]["what"]
    assert "NEXT" in run(*words).stdout


def test_events_say_what_happened_and_who_did_it(own_server: Callable[..., Server]) -> None:
    server = own_server()
    with escrowmq.Admin(server.nameserver) as admin:
        (first,) = admin.diagnosis.events()
        assert first.what.startswith("started, build ")
        admin.brokers.configure(server.broker_name, {"transactionTimeOut": 2_345})
        newest, oldest = admin.diagnosis.events()
    assert oldest == first
    assert newest.what == "transactionTimeOut set to 2345 (was 1000)"
    assert newest.who.startswith("127.0.0.1")
    assert newest.at_ms >= first.at_ms
    ended = run("events", "-n", server.nameserver)
    assert ended.returncode == 0, ended
    assert ended.stdout.splitlines()[0] == "WHEN\tSUBJECT\tWHAT\tBY"
    assert "transactionTimeOut set to 2345" in ended.stdout


@pytest.mark.parametrize("message_id", ["01A4B5C6D7E8F90123456789ABCDEF0001", "my-own"])
def test_ids_of_other_clients_are_explained_too(message_id: str, escrowmq_broker: Broker) -> None:
    """Those of RocketMQ 5's clients have 34 characters: of a message that is delayed, pending or
    gone it was only said that no offset id has this size."""

    async def go() -> None:
        nameserver = escrowmq_broker.nameserver
        async with aio.Producer(nameserver, group="P") as producer, aio.Admin(nameserver) as admin:
            with pytest.raises(NotFound, match="no broker knows a message"):
                await admin.diagnosis.message(message_id, topic="T")
            with pytest.raises(NotFound, match="there is no message"):
                await admin.messages.get(message_id, topic="T")
            with pytest.raises(UsageError, match="an id that a producer got needs its topic"):
                await admin.messages.get(message_id)
            late = escrowmq.Message("T", b"late", delay=60)
            out = producer.dispatch.prepare(late, {"UNIQ_KEY": message_id})
            await producer.dispatch.send_prepared(late, out)
            found = await admin.diagnosis.message(message_id, topic="T")
            assert found.state == "delayed"

    escrowmq_broker.create_topic("T")
    asyncio.run(go())


def test_tags_are_judged_and_sql_is_not() -> None:
    assert _may_match_tag("*", "x")
    assert _may_match_tag("", "x")
    assert _may_match_tag("a || CARD", "CARD")
    assert not _may_match_tag("a || CARD", "b")
    assert not _may_match_tag("a", "")
    assert _may_match_tag("price > 5 AND TAGS = 'a'", "b")
