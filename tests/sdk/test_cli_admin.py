"""`escrowmq topic | group | offset | message | broker`, against a real broker."""

import pytest

import escrowmq
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .commands import run
from .test_cli_tx import asked
from .test_consume import FAST, Seen, numbered, send


def test_topics(server: Server) -> None:
    topic = unique("T")
    assert asked(server, "topic", "create", topic, "--queues", "2") == [{"topic": topic}]
    assert topic in asked(server, "topic", "list")[0]
    assert topic in run("topic", "list", nameserver=server.nameserver).stdout.split()
    (shown,) = asked(server, "topic", "show", topic)
    assert [info["readQueues"] for info in shown["brokers"]] == [2]
    updated = run("topic", "update", topic, "--permission", "r", nameserver=server.nameserver)
    assert updated.stdout == f"{topic} updated\n"
    assert "\tr" in run("topic", "show", topic, nameserver=server.nameserver).stdout
    asked(server, "topic", "delete", topic)
    asked(server, "topic", "show", topic, code=1)


def test_groups_and_offsets(server: Server, topic: str) -> None:
    group, other = unique("CG"), unique("CG")
    asked(server, "group", "create", group, "--attempts", "5")
    asked(server, "group", "create", group, "--attempts", "-5", code=2)
    asked(server, "group", "redeliver-dead", other, code=1)
    asked(server, "group", "create", other)
    assert asked(server, "group", "redeliver-dead", other) == []
    asked(server, "group", "update", group, "--no-broadcast")
    seen = Seen()
    send(server, topic, numbered(4))
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen, **FAST):
        seen.wait(4)
        (shown,) = asked(server, "group", "show", group)
        assert shown["brokers"][0]["attemptsMax"] == 5
        assert shown["brokers"][0]["mayBroadcast"] is False
        assert len(shown["online"]["members"]) == 1
        assert "member" in run("group", "show", group, nameserver=server.nameserver).stdout
    assert group in asked(server, "group", "list")[0]

    (lags,) = asked(server, "offset", "show", group, "--topic", topic)
    assert sum(lag["committed"] for lag in lags) == 4
    again = ("offset", "reset", group, topic, "--to", "2026-01-01T00:00:00Z")
    (shown,) = asked(server, *again, "--dry-run")
    assert [(row["before"], row["offset"]) for row in shown] == [(1, 0)] * 4
    (lags,) = asked(server, "offset", "show", group, "--topic", topic)
    assert sum(lag["committed"] for lag in lags) == 4
    text = run(*again, "--dry-run", nameserver=server.nameserver)
    assert text.stdout.splitlines()[0] == "TOPIC\tBROKER\tQUEUE\tBEFORE\tWOULD_BE"
    assert text.stderr == "to the first messages stored since 2026-01-01T00:00:00+00:00\n"
    (reset,) = asked(server, *again)
    assert reset == shown
    (one,) = asked(server, "offset", "reset", group, topic, "--to", "1", "--queue", "3")
    assert (one[0]["queue"]["queueId"]) == 3
    asked(server, "offset", "clone", group, other, "--topic", topic)
    (lags,) = asked(server, "offset", "show", other, "--topic", topic)
    assert {lag["committed"] for lag in lags} == {0, 1}
    wrong = run("offset", "reset", group, topic, "--to", "soon", nameserver=server.nameserver)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    asked(server, "group", "delete", group)
    asked(server, "group", "show", group, code=1)


def test_messages(server: Server, topic: str) -> None:
    (sent,) = asked(server, "message", "send", topic, "hello", "--key", "k1", "--tag", "t")
    found = until("the index", lambda: asked(server, "message", "find", topic, "k1"))
    assert [(one["body"], one["tag"], one["keys"]) for one in found] == [("hello", "t", ["k1"])]
    (shown,) = asked(server, "message", "show", sent["messageId"], "--topic", topic)
    assert shown == found[0]
    (by_offset_id,) = asked(server, "message", "show", shown["offsetId"])
    assert by_offset_id == shown
    place = [shown["broker"], str(shown["queueId"]), str(shown["queueOffset"])]
    assert asked(server, "message", "at", topic, *place) == [shown]
    text = run("message", "show", shown["offsetId"], nameserver=server.nameserver).stdout
    assert "'hello'" in text
    (again,) = asked(server, "message", "resend", shown["offsetId"])
    assert again["messageId"] != sent["messageId"]
    asked(server, "message", "show", "0" * 32, "--topic", topic, code=1)


def test_a_member_consumes_now(server: Server, topic: str) -> None:
    group = unique("CG")
    seen = Seen()
    send(server, topic, [b"x"], keys=["k"])
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        seen.wait(1)
        (found,) = until("the index", lambda: asked(server, "message", "find", topic, "k"))
        (shown,) = asked(server, "group", "show", group)
        member = shown["online"]["members"][0]["clientId"]
        words = ["--group", group, "--client", member]
        assert asked(server, "message", "deliver", found["offsetId"], *words) == [
            {"consumed": True}
        ]
        assert seen.bodies() == [b"x", b"x"]


def test_brokers(server: Server) -> None:
    (broker,) = asked(server, "broker", "list")
    assert (broker["name"], broker["address"]) == (server.broker_name, server.broker)
    (runtime,) = asked(server, "broker", "show", "--name", server.broker_name)
    assert "bootTimestamp" in runtime
    (config,) = asked(server, "broker", "config", "--name", server.broker_name)
    assert config["brokerName"] == server.broker_name
    asked(server, "broker", "set", "--name", server.broker_name, "transactionCheckMax=15")
    unknown = run("broker", "config", "--name", "nobody", nameserver=server.nameserver)
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("verb", ["topic", "group", "offset", "message", "tx"])
def test_a_verb_without_an_action_says_what_there_is(verb: str) -> None:
    ended = run(verb)
    assert ended.returncode == 2
    assert "usage" in ended.stderr
