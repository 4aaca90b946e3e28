"""Pulls by offset, from a broker that does what brokers do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.subscription import parse_subscription
from escrowmq.codec.command import encode_reply
from escrowmq.codec.record import decode_records
from escrowmq.errors import (
    DataLost,
    PermissionDenied,
    RemoteProtocolError,
    RouteMissing,
    TransportError,
)
from escrowmq.pipeline.brokers.ranges import QueueRange
from escrowmq.pipeline.source import pulling
from escrowmq.pipeline.source.options import SourceOptions, parse_source_options
from escrowmq.pipeline.source.pulling import Puller, estimated_size
from tests.unit.pipeline.scripted import QUEUE, Broker

ALL = parse_subscription("t", version=0, wire_topic="t")
BRIEFLY = "400"
"""How many ms, where the wait is in vain."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.server.close()


def options_of(broker: Broker, **more: str) -> SourceOptions:
    options = {"nameServer": broker.server.address, "subscribe": "t", "pullTimeoutMs": "60000"}
    return parse_source_options(options | more, is_stream=False)


def offsets_of(broker: Broker, low: int = 0, high: int = 100, **more: str) -> list[int]:
    options = options_of(broker, **more)
    puller = Puller(options.access, options.pulling)
    with contextlib.closing(puller):
        return [
            message.queue_offset
            for data in puller.pull(QueueRange(QUEUE, low, high), ALL)
            for message in decode_records(data)
        ]


@pytest.mark.parametrize("limit", [1, 7, 32, 1_000])
@pytest.mark.parametrize("at_once", ["1", "4"])
def test_a_range_comes_whole_whatever_a_pull_gets(limit: int, at_once: str) -> None:
    broker = Broker(limit=limit)
    assert offsets_of(broker, 3, 98, pullsInFlight=at_once) == [*range(3, 98)]
    broker.server.close()


def test_several_pulls_are_under_way(broker: Broker) -> None:
    assert offsets_of(broker, pullBatchSize="10") == [*range(100)]
    pulls = [each for each in broker.server.requests if each.code == Request.PULL_MESSAGE]
    assert len(pulls) == 10, "none is asked for twice"


def test_a_busy_broker_is_asked_again(broker: Broker) -> None:
    def busy(request: Command) -> bytes:
        return broker.reply(request, Response.SYSTEM_BUSY, following=0)

    broker.script = [busy, broker.pulled, busy]
    assert offsets_of(broker) == [*range(100)]


def test_a_busy_broker_that_is_the_master_no_more_is_left(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a planned switch, the old master is a slave, and without slaveReadEnable its only
    answer is that it is busy. It was asked until the time was up, and the task failed."""
    monkeypatch.setattr(pulling, "_REST_S", 0.001)
    heir = Broker()

    def switch(request: Command) -> bytes:
        broker.addresses = heir.addresses
        return broker.reply(request, Response.SYSTEM_BUSY, following=0)

    broker.script = [broker.pulled, *[switch] * 10_000]
    assert offsets_of(broker, pullsInFlight="1", pullTimeoutMs="2000") == [*range(100)]
    heir.server.close()


def test_a_broken_connection_is_made_anew(broker: Broker) -> None:
    def lose(_: Command) -> None:
        return None

    broker.script = [broker.pulled, lose, lose]
    assert offsets_of(broker) == [*range(100)]


class Starting(Broker):
    """A broker that has no route for some time."""

    routes_missing = 0

    def answer(self, request: Command) -> bytes | None:
        if request.code == Request.GET_ROUTEINFO_BY_TOPIC and self.routes_missing:
            self.routes_missing -= 1
            return encode_reply(request, Response.TOPIC_NOT_EXIST, remark="no route")
        return super().answer(request)


def test_a_broker_without_a_route_is_waited_for() -> None:
    broker = Starting()
    broker.routes_missing = 2
    assert offsets_of(broker) == [*range(100)]
    broker.routes_missing = 1_000
    with pytest.raises(RouteMissing, match="no name server knows the topic 't'"):
        offsets_of(broker, pullTimeoutMs=BRIEFLY)
    broker.server.close()


def test_a_broker_that_stays_away_is_an_error(broker: Broker) -> None:
    broker.script = [lambda _: None] * 1_000
    with pytest.raises(TransportError):
        offsets_of(broker, pullTimeoutMs=BRIEFLY)


def test_messages_that_are_not_there_yet_are_waited_for(broker: Broker) -> None:
    def later(request: Command) -> bytes:
        return broker.reply(request, Response.PULL_NOT_FOUND, following=0)

    broker.script = [later, later]
    assert offsets_of(broker) == [*range(100)]


def test_messages_that_never_come_are_lost(broker: Broker) -> None:
    with pytest.raises(DataLost, match="messages 100 to 109 of queue 0 of t on broker-a"):
        offsets_of(broker, 90, 110, pullTimeoutMs=BRIEFLY)
    assert offsets_of(broker, 90, 110, failOnDataLoss="false", pullTimeoutMs=BRIEFLY) == [
        *range(90, 100)
    ]


def test_offsets_behind_the_first_are_lost() -> None:
    broker = Broker(low=50, count=50)
    with pytest.raises(DataLost, match=r"messages 40 to 49 .* the next one there is 50"):
        offsets_of(broker, 40, 60)
    assert offsets_of(broker, 40, 60, failOnDataLoss="false") == [*range(50, 60)]
    broker.server.close()


def test_offsets_far_beyond_the_end_are_lost(broker: Broker) -> None:
    with pytest.raises(DataLost, match="the queue ends at 100"):
        offsets_of(broker, 150, 160)
    assert offsets_of(broker, 150, 160, failOnDataLoss="false") == []


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize(("low", "count"), [(0, 40), (0, 20), (30, 70), (0, 0)])
def test_what_a_slave_lacks_is_read_from_its_master(
    broker: Broker, low: int, count: int, loss: str
) -> None:
    slave = Broker(low=low, count=count)
    broker.addresses[1] = slave.server.address
    more = {"readFrom": "slave", "failOnDataLoss": loss}
    assert offsets_of(broker, 20, 60, **more) == [*range(20, 60)]
    asked = [each for each in slave.server.requests if each.code == Request.PULL_MESSAGE]
    assert asked, "the slave is asked first"
    slave.server.close()


def test_only_what_the_master_lacks_is_lost(broker: Broker) -> None:
    slave = Broker(count=30)
    broker.addresses[1], broker.low = slave.server.address, 50
    with pytest.raises(DataLost, match=r"messages 30 to 49 .* the next one there is 50"):
        offsets_of(broker, 20, 60, readFrom="slave")
    slave.server.close()


def test_a_slave_that_may_not_be_read_skips_nothing(broker: Broker) -> None:
    slave = Broker()
    broker.addresses[1] = slave.server.address

    def disabled(request: Command) -> bytes:
        return slave.reply(request, Response.PULL_RETRY_IMMEDIATELY, following=32)

    slave.script = [disabled] * 100
    assert offsets_of(broker, readFrom="slave", failOnDataLoss="false") == [*range(100)]
    slave.server.close()


def test_a_gap_in_a_queue_is_told(broker: Broker) -> None:
    broker.holes = {*range(70)}
    with pytest.raises(DataLost, match="messages 0 to 69"):
        offsets_of(broker)
    assert offsets_of(broker, failOnDataLoss="false") == [*range(70, 100)]


def test_a_pull_that_goes_further_than_asked_repeats_nothing(broker: Broker) -> None:
    broker.holes = {*range(32, 70)}
    assert offsets_of(broker) == [*range(32), *range(70, 100)]


def test_a_refusal_is_raised_as_what_it_is(broker: Broker) -> None:
    broker.script = [lambda request: broker.reply(request, Response.NO_PERMISSION, following=0)]
    with pytest.raises(PermissionDenied):
        offsets_of(broker)


def test_an_answer_that_leads_back_is_no_answer(broker: Broker) -> None:
    broker.script = [lambda request: broker.reply(request, 0, following=0)]
    with pytest.raises(RemoteProtocolError, match="was answered with the next offset 0"):
        offsets_of(broker)


def test_the_size_of_what_comes_is_sampled(broker: Broker) -> None:
    size = estimated_size([QueueRange(QUEUE, 0, 100)], options_of(broker))
    assert 80 < size < 120
    pulls = [each for each in broker.server.requests if each.code == Request.PULL_MESSAGE]
    assert len(pulls) == 1
