"""Two masters of one name: the second is told when it comes, the first soon after."""

from __future__ import annotations

import logging

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.replica_settings import ReplicaSettings
from tests.harness.exchange import Caller, Exchange

GROUP = Request.GET_BROKER_MEMBER_GROUP
OURS = "10.0.0.1:10911"


def registered(replica: ReplicaSettings | None) -> tuple[Exchange, Caller]:
    """A broker whose name server has just let it in."""
    settings = BrokerSettings(name="b", name_servers="10.0.0.5:9876")
    broker = Exchange(settings, replica=replica)
    return broker, broker.connect(peer=-1)


def say(server: Caller, master: str) -> None:
    """The name server says who the master is, as RocketMQ's does."""
    (asked,) = server.take(GROUP)
    body = '{"brokerMemberGroup":{"brokerAddrs":{0:"%s",1:"10.0.0.7:10911"},"brokerName":"b"}}'
    server.answer(asked, body=(body % master).encode())


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.levelno == logging.ERROR]


def test_the_second_says_so_before_it_is_registered(caplog: pytest.LogCaptureFixture) -> None:
    _, server = registered(ReplicaSettings())
    codes = [request.code for request in server.received]
    assert codes.index(GROUP) < codes.index(Request.REGISTER_BROKER)
    say(server, "10.0.0.9:10911")
    (line,) = told(caplog)
    assert "10.0.0.9:10911 is registered as the master of b" in line
    assert "Stop one of them" in line


def test_the_first_says_so_soon_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    broker, server = registered(ReplicaSettings())
    say(server, OURS)
    assert told(caplog) == []
    for _ in range(7):
        broker.advance(7_000)
        say(server, "10.0.0.9:10911")
    assert len(told(caplog)) == 1
    broker.advance(30_000)
    server.take(GROUP)
    broker.advance(7_000)
    say(server, "10.0.0.9:10911")
    assert len(told(caplog)) == 2


@pytest.mark.parametrize("body", [b"", b"{", b'{"brokerMemberGroup":7}', b"{}"])
def test_answers_that_say_nothing(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    _, server = registered(ReplicaSettings())
    (asked,) = server.take(GROUP)
    server.answer(asked, body=body)
    assert told(caplog) == []


def test_a_broker_alone_does_not_ask() -> None:
    _, server = registered(None)
    assert server.take(GROUP) == []
