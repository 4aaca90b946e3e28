"""`escrowmq tx`, against a real broker."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import escrowmq
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .commands import run
from .conftest import new_topic
from .reading import wait_bodies

LONG_MS = 600_000


def asked(server: Server, *words: str, code: int = 0) -> list[Any]:
    """What a `--json` command printed."""
    ended = run(*words, "-n", server.nameserver, "--json")
    assert ended.returncode == code, ended
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture
def pending_server(own_server: Callable[..., Server], peer: str) -> Server:
    """A broker that asks nobody while a test looks at what is pending."""
    if peer == "java":
        pytest.skip("only EscrowMQ's brokers show pending transactions")
    return own_server(transactionTimeOut=LONG_MS)


def leave_pending(server: Server, topic: str, group: str, keys: list[str]) -> list[str]:
    """Transactions that nobody ended; their ids."""
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        ids = []
        for key in keys:
            with producer.transaction(topic, key.encode(), keys=[key]) as tx:
                ids.append(tx.detach())
        return ids


def test_pending_transactions_are_listed_counted_and_settled(pending_server: Server) -> None:
    server, topic, group = pending_server, new_topic(pending_server), unique("PG")
    ids = leave_pending(server, topic, group, ["a", "b", "c"])

    items = asked(server, "tx", "list", "--topic", topic)
    assert [item["keys"] for item in items] == ["a", "b", "c"]
    assert {item["broker"] for item in items} == {server.broker_name}
    assert asked(server, "tx", "list", "--group", "nobody") == []
    (counts,) = asked(server, "tx", "count")
    assert (counts["count"], counts["byTopic"], counts["byGroup"]) == (3, {topic: 3}, {group: 3})
    assert len(asked(server, "tx", "list", "--younger-than", "1h")) == 3
    assert asked(server, "tx", "list", "--older-than", "1h") == []

    assert asked(server, "tx", "commit", ids[0], "--reason", "test") == [{"outcome": "committed"}]
    message_id = items[1]["messageId"]
    assert asked(server, "tx", "rollback", message_id) == [{"outcome": "rolled_back"}]
    wait_bodies(server, topic, [b"a"])
    (shown,) = asked(server, "tx", "show", items[0]["id"])
    assert shown["state"] == "committed"
    assert (shown["endedBy"], shown["reason"]) == ("operator", "test")
    text = run("tx", "show", items[0]["id"], nameserver=server.nameserver).stdout
    assert "\n  by         an operator, 127.0.0.1:" in text.replace("\t", " ")
    assert "\n  reason     test\n" in text
    assert "committed" in [event["what"] for event in shown["events"]]
    assert [item["keys"] for item in asked(server, "tx", "list")] == ["c"]

    # what has ended stays as it is
    ended = run("tx", "rollback", ids[0], "-n", server.nameserver)
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (1, "", 1)


def test_people_get_columns(pending_server: Server) -> None:
    server, topic, group = pending_server, new_topic(pending_server), unique("PG")
    (transaction,) = leave_pending(server, topic, group, ["k"])
    listed = run("tx", "list", nameserver=server.nameserver).stdout.splitlines()
    assert listed[0].startswith("MESSAGE\tTOPIC\tGROUP\tSTATE")
    assert (topic in listed[1], group in listed[1]) == (True, True)
    assert run("tx", "count", nameserver=server.nameserver).stdout.startswith("1 pending")
    shown = run("tx", "show", transaction, nameserver=server.nameserver).stdout
    assert "stored" in shown
    assert group in shown
    committed = run("tx", "commit", transaction, nameserver=server.nameserver)
    assert committed.stdout == "committed\n"


def test_producers_are_asked_at_once(pending_server: Server) -> None:
    server, topic, group = pending_server, new_topic(pending_server), unique("PG")
    ids = leave_pending(server, topic, group, ["a", "b"])
    producer = escrowmq.Producer(
        server.nameserver, group=group, check=lambda _: escrowmq.Outcome.COMMIT
    )
    with producer:
        assert asked(server, "tx", "check", ids[0]) == [{"count": 1}]
        wait_bodies(server, topic, [b"a"])
        assert asked(server, "tx", "check", "--topic", topic) == [{"count": 1}]
        wait_bodies(server, topic, [b"a", b"b"])


def test_what_was_given_up_is_resumed(own_server: Callable[..., Server], peer: str) -> None:
    if peer == "java":
        pytest.skip("only EscrowMQ's brokers resume")
    server = own_server(transactionTimeOut=100, transactionCheckInterval=200, transactionCheckMax=1)
    topic, group = new_topic(server), unique("PG")
    answers = [escrowmq.Outcome.UNKNOWN]
    producer = escrowmq.Producer(server.nameserver, group=group, check=lambda _: answers[-1])
    with producer:
        with producer.transaction(topic, b"late") as tx:
            tx.detach()
        (item,) = until("it is given up", lambda: asked(server, "tx", "discarded"))
        assert (item["topic"], item["group"], item["state"]) == (topic, group, "expired")
        answers.append(escrowmq.Outcome.COMMIT)
        assert asked(server, "tx", "resume", item["offsetId"]) == [{"count": 1}]
        wait_bodies(server, topic, [b"late"])


def test_the_key_is_renewed_and_old_ids_stay_good(pending_server: Server) -> None:
    server, topic = pending_server, new_topic(pending_server)
    (transaction,) = leave_pending(server, topic, unique("PG"), ["a"])
    (first,) = asked(server, "tx", "rotate-key", "--reason", "test")
    (second,) = asked(server, "tx", "rotate-key", "--broker", server.broker_name)
    assert second["keys"][server.broker_name] == first["keys"][server.broker_name] + 1
    assert asked(server, "tx", "commit", transaction) == [{"outcome": "committed"}]


def test_what_cannot_be_ends_with_one_line(server: Server) -> None:
    unknown = run("tx", "show", "0" * 32, "-n", server.nameserver)
    nobody = run("tx", "list", "-n", "127.0.0.1:1")
    nowhere = run("tx", "list")
    no_id = run("tx", "commit", "what?", "-n", server.nameserver)
    for ended, code in ((unknown, 1), (nobody, 2), (nowhere, 2), (no_id, 2)):
        assert (ended.returncode, len(ended.stderr.splitlines())) == (code, 1), ended


def test_a_foreign_broker_cannot(server: Server, peer: str) -> None:
    if peer != "java":
        pytest.skip("this broker can")
    ended = run("tx", "list", "-n", server.nameserver)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended
