"""Halves under tokens: what is in doubt is sent again under another."""

from __future__ import annotations

import collections
import os
import socket
from collections.abc import Callable

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.message import Message
from escrowmq.codec.command import encode_reply
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.routes import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRoute,
    encode_cluster_info,
    encode_route,
)
from escrowmq.errors import (
    SLAVE_REMARK,
    SWITCHING_REMARK,
    ConnectionLost,
    InvalidMessage,
    NotMaster,
    PermissionDenied,
    UsageError,
)
from escrowmq.pipeline.brokers.link import BrokerLink
from escrowmq.pipeline.sink import halves
from escrowmq.pipeline.sink.halves import EpochDecided, HalfSender
from escrowmq.pipeline.sink.options import parse_sink_options
from escrowmq.pipeline.sink.rows import AddressedMessage
from tests.unit.pipeline.scripted import ScriptedServer

Script = Callable[[Command], bytes | None]


class Broker:
    """Takes halves, and answers the next ones as `script` says."""

    def __init__(self) -> None:
        self.script: list[Script] = []
        self.stored: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.looks_without = 0
        """So many looks at the cluster do not find it."""
        self.looks_stale: list[str] = []
        """The addresses that the next looks find."""
        self.server = ScriptedServer(self.answer)
        self.master = self.server.address
        """Who is the master now, as far as this name server knows."""

    def answer(self, request: Command) -> bytes | None:
        """The reply to any request."""
        broker = BrokerData({0: self.master}, "broker-a", "c")
        if request.code == Request.GET_ROUTEINFO_BY_TOPIC:
            route = TopicRoute(
                broker_datas=[broker], queue_datas=[QueueData("broker-a", 6, 4, 0, 4)]
            )
            return encode_reply(request, 0, body=encode_route(route, is_standard=True))
        if request.code == Request.GET_BROKER_CLUSTER_INFO and self.looks_without:
            self.looks_without -= 1
            return encode_reply(request, 0, body=encode_cluster_info(ClusterInfo({}, {})))
        if request.code == Request.GET_BROKER_CLUSTER_INFO:
            if self.looks_stale:
                broker = BrokerData({0: self.looks_stale.pop()}, "broker-a", "c")
            info = ClusterInfo({"broker-a": broker}, {"c": ["broker-a"]})
            return encode_reply(request, 0, body=encode_cluster_info(info))
        return self.script.pop(0)(request) if self.script else self.store(request)

    def store(self, request: Command) -> bytes:
        """Keep a half."""
        self.stored.append(parse_properties((request.ext or {})["i"]))
        self.bodies.append(request.body)
        return encode_reply(request, 0, ext={"queueId": "0", "queueOffset": "0", "msgId": "x"})

    def lose_after_storing(self, request: Command) -> None:
        """It is stored, and nobody is told."""
        self.store(request)

    def refuse(self, code: int, remark: str = "") -> Script:
        """An answer with a code."""
        return lambda request: encode_reply(request, code, remark=remark)

    def hand_over_to(
        self, heir: Broker, remark: str, *, code: int = Response.SERVICE_NOT_AVAILABLE
    ) -> None:
        """Refuse what comes next, as a member of a group that is the master no more."""

        def refuse(request: Command) -> bytes:
            self.master = heir.server.address
            return encode_reply(request, code, remark=remark)

        self.script = [refuse] * 100


@pytest.fixture
def broker() -> Broker:
    return Broker()


def sender_to(broker: Broker, *, retries: int = 2, at_once: int = 4) -> HalfSender:
    options = {
        "nameServer": broker.server.address,
        "topic": "t",
        "transactional": "true",
        "producerGroup": "g",
        "retries": str(retries),
        "sendsInFlight": str(at_once),
    }
    parsed = parse_sink_options(options, is_stream=False, columns=["body"])
    return HalfSender(parsed, broker_name="broker-a", epoch="q/7")


def rows(count: int, **more: object) -> list[AddressedMessage]:
    return [AddressedMessage(Message("t", b"%d" % number), **more) for number in range(count)]  # type: ignore[arg-type]


def test_large_rows_leave_a_few_at_a_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that were in flight were written at once, within the timeout of one send: over a network
    of 20 MB/s, 64 rows of 1 MiB never arrived."""
    written: list[int] = []
    flush = BrokerLink.flush

    def watch(link: BrokerLink) -> None:
        written.append(sum(map(len, link._out)))
        flush(link)

    monkeypatch.setattr(BrokerLink, "flush", watch)
    monkeypatch.setattr(halves, "IN_FLIGHT_SIZE_MAX", 100_000)
    sender = sender_to(broker, at_once=64)
    large = [AddressedMessage(Message("t", os.urandom(30_000))) for _ in range(20)]
    assert sender.send([*large, *rows(50)])[1] == len(broker.stored) == 70
    assert max(written) < 110_000
    sender.send([AddressedMessage(Message("t", os.urandom(500_000))) for _ in range(2)])
    sender.close()
    assert max(written) < 510_000, "one that is larger leaves alone"


def test_halves_carry_epoch_token_and_group(broker: Broker) -> None:
    sender = sender_to(broker)
    token, count = sender.send(rows(10))
    other, _ = sender.send(rows(1))
    sender.close()
    assert count == 10
    assert other != token
    for half in broker.stored[:10]:
        assert half["escrowEpoch"] == "q/7"
        assert half["escrowToken"] == token
        assert half["PGROUP"] == "g"
        assert half["TRAN_MSG"] == "true"
        assert half["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "900"
    assert len({half["UNIQ_KEY"] for half in broker.stored}) == 11


def test_what_is_in_doubt_is_sent_again_under_another_token(broker: Broker) -> None:
    broker.script = [broker.store, broker.store, broker.lose_after_storing]
    sender = sender_to(broker)
    token, count = sender.send(rows(10))
    sender.close()
    counts = collections.Counter(half["escrowToken"] for half in broker.stored)
    assert counts.pop(token) == count == 10
    assert [*counts.values()] == [3], "of which nobody will ever decide"


def test_a_broker_that_is_starting_is_waited_for(broker: Broker) -> None:
    broker.looks_without = 5
    sender = sender_to(broker)
    assert sender.send(rows(3))[1] == 3
    sender.close()


@pytest.mark.parametrize("remark", [f"not now: {SLAVE_REMARK}", f"{SWITCHING_REMARK} b; try again"])
def test_after_a_planned_switch_the_halves_go_to_the_new_master(
    broker: Broker, remark: str
) -> None:
    """The first refusal failed the task, and where tasks are not repeated, the query."""
    heir = Broker()
    broker.hand_over_to(heir, remark)
    broker.script.insert(0, broker.store)
    sender = sender_to(broker, retries=0)
    token, count = sender.send(rows(10))
    sender.close()
    assert count == 10
    assert [half["escrowToken"] for half in heir.stored] == [token] * 10
    assert sender.tokens[-1] == token
    assert len(broker.stored) == 1
    assert broker.stored[0]["escrowToken"] != token


TOO_FEW = "1 of the group's members are in sync, and escrowMinCopies=2 wants as many"


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (Response.SERVICE_NOT_AVAILABLE, TOO_FEW),
        (Response.FLUSH_SLAVE_TIMEOUT, "no copy confirms it"),
    ],
)
def test_a_group_that_has_lost_its_master_is_waited_for(
    broker: Broker, code: int, remark: str
) -> None:
    """A new master refuses until enough copies follow it, and one that is cut off gets no copy's
    answer. The task failed at the first, or after three attempts."""
    heir = Broker()
    broker.hand_over_to(heir, "", code=code)
    broker.script = [*[broker.refuse(code, remark)] * 5, *broker.script]
    sender = sender_to(broker)
    token, count = sender.send(rows(10))
    sender.close()
    assert [half["escrowToken"] for half in heir.stored] == [token] * count


def test_a_broker_that_is_listed_and_cannot_be_reached_is_waited_for(broker: Broker) -> None:
    """Name servers list a broker whose machine is off for two minutes, or until another is the
    master. The task failed within a second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        broker.looks_stale = [f"127.0.0.1:{free.getsockname()[1]}"] * 8
    sender = sender_to(broker)
    assert sender.send(rows(3))[1] == 3
    sender.close()
    assert not broker.looks_stale


def test_a_group_without_a_master_fails_the_attempt_after_a_while(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "RESTART_WAIT_MS", 200)
    broker.script = [broker.refuse(Response.SERVICE_NOT_AVAILABLE, SLAVE_REMARK)] * 100
    sender = sender_to(broker)
    with pytest.raises(NotMaster, match=SLAVE_REMARK):
        sender.send(rows(3))
    sender.close()


def test_a_broker_that_stays_away_fails_the_attempt(broker: Broker) -> None:
    broker.script = [lambda _: None] * 100
    sender = sender_to(broker, retries=1)
    with pytest.raises(ConnectionLost):
        sender.send(rows(3))
    sender.close()


def test_a_busy_broker_is_offered_the_same_half_again(broker: Broker) -> None:
    busy = broker.refuse(Response.SYSTEM_BUSY)
    broker.script = [broker.store, busy, busy, broker.store]
    sender = sender_to(broker)
    token, _ = sender.send(rows(6))
    sender.close()
    assert [half["escrowToken"] for half in broker.stored] == [token] * 6
    assert len({half["UNIQ_KEY"] for half in broker.stored}) == 6


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_busy_broker_does_not_disturb_the_order_of_a_key(broker: Broker, refusals: int) -> None:
    busy = broker.refuse(Response.SYSTEM_BUSY)
    broker.script = [broker.store, *[busy, broker.store] * refusals]
    sender = sender_to(broker, retries=0)
    wanted = [AddressedMessage(Message("t", b"%d" % n, order_key="odd" if n % 2 else "even"))
              for n in range(12)]  # fmt: skip
    token, count = sender.send(wanted)
    sender.close()
    stored = [int(body) for half, body in zip(broker.stored, broker.bodies, strict=True)
              if half["escrowToken"] == token]  # fmt: skip
    assert len(stored) == count == 12
    for parity in (0, 1):
        numbers = [number for number in stored if number % 2 == parity]
        assert numbers == sorted(numbers)


def test_a_half_that_is_stored_less_safely_is_not_counted(broker: Broker) -> None:
    broker.script = [broker.store, broker.refuse(Response.FLUSH_DISK_TIMEOUT)]
    sender = sender_to(broker)
    token, count = sender.send(rows(4))
    sender.close()
    assert sum(half["escrowToken"] == token for half in broker.stored) == count == 4


def test_an_epoch_that_is_decided_takes_no_more(broker: Broker) -> None:
    broker.script = [broker.refuse(Response.TRANSACTION_STATE_UNKNOW, "in whatever words")]
    sender = sender_to(broker)
    with pytest.raises(EpochDecided, match="in whatever words"):
        sender.send(rows(3))
    sender.close()


def test_refusals_are_raised_as_what_they_are(broker: Broker) -> None:
    broker.script = [broker.refuse(Response.NO_PERMISSION, "no")]
    sender = sender_to(broker)
    with pytest.raises(PermissionDenied):
        sender.send(rows(1))
    with pytest.raises(UsageError, match=r"queueId=9 .* is not a queue of t on broker-a"):
        sender.send(rows(1, queue_id=9))
    with pytest.raises(InvalidMessage, match="the body is empty"):
        sender.send([AddressedMessage(Message("t", b""))])
    sender.close()
