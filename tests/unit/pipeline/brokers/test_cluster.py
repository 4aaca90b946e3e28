"""What a driver asks brokers, and what it makes of answers that are none."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

pytest.importorskip("pyarrow")

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.command import encode_reply
from escrowmq.errors import (
    BrokerBusy,
    EscrowMQError,
    FlowControlled,
    NoNameServer,
    RemoteProtocolError,
)
from escrowmq.pipeline.brokers.cluster import Cluster
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.brokers.ranges import Positions
from tests.unit.pipeline.scripted import QUEUE, Broker


class Born(Broker):
    """A broker that says when its first message was stored."""

    ext: dict[str, str] | None = None

    def answer(self, request: Command) -> bytes | None:
        if request.code == Request.GET_EARLIEST_MSG_STORETIME and self.ext is not None:
            return encode_reply(request, 0, ext=self.ext)
        return super().answer(request)


@pytest.mark.parametrize(
    ("ext", "found"),
    [({"timestamp": "17"}, 17), ({"timestamp": "-1"}, -1), ({}, -1), (None, -1)],
    ids=["told", "an empty queue", "without a time", "not supported"],
)
def test_when_the_first_message_was_stored(ext: dict[str, str] | None, found: int) -> None:
    broker = Born()
    broker.ext = ext
    cluster = Cluster(ClusterAccess(name_servers=(broker.server.address,)), tries=1, try_again_ms=0)
    assert cluster.first_stored_ms([QUEUE]) == {QUEUE: found}
    cluster.close()
    broker.server.close()


def test_a_broker_that_is_taken_for_a_name_server_is_called_one() -> None:
    broker = Born()
    cluster = Cluster(ClusterAccess(name_servers=(broker.server.address,)), tries=2, try_again_ms=0)
    with pytest.raises(NoNameServer, match="is no name server; is that a broker's address"):
        cluster.refresh_brokers()
    cluster.close()
    broker.server.close()


class Moving(Cluster):
    """A cluster whose retention removes ten messages before each question about the oldest one, the
    first `times`."""

    def __init__(self, times: int) -> None:
        super().__init__(ClusterAccess(name_servers=("h:1",)), tries=1, try_again_ms=0)
        self._left = times
        self._low = 0

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        return dict.fromkeys(queues, self._low)

    def first_stored_ms(self, queues: Iterable[MessageQueue]) -> Positions:
        if self._left:
            self._left -= 1
            self._low += 10
        return dict.fromkeys(queues, 1_000 + self._low)


def test_the_oldest_message_is_one_message_though_retention_passes() -> None:
    assert Moving(times=0).first_messages([QUEUE]) == {QUEUE: (0, 1_000)}
    assert Moving(times=2).first_messages([QUEUE]) == {QUEUE: (20, 1_020)}
    assert Moving(times=9).first_messages([QUEUE]) == {}, "it is not known"
    assert Moving(times=1).first_messages([]) == {}


class Names(Broker):
    """A name server that is asked for all topics."""

    body = b""

    def answer(self, request: Command) -> bytes | None:
        if request.code == Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return encode_reply(request, 0, body=self.body)
        return super().answer(request)


@pytest.mark.parametrize("body", [b"{}", b'{"topicList":{"t":1}}', b'{"topicList":[1]}', b"[]"])
def test_an_answer_that_is_no_list_of_topics_is_not_taken_for_an_empty_one(body: bytes) -> None:
    broker = Names()
    cluster = Cluster(ClusterAccess(name_servers=(broker.server.address,)), tries=1, try_again_ms=0)
    broker.body = b'{"topicList":["t","other"]}'
    assert cluster.topics("t.*", lambda _: True) == ["t"]
    broker.body = body
    with pytest.raises(RemoteProtocolError, match="body: "):
        cluster.topics(".*", lambda _: True)
    cluster.close()
    broker.server.close()


class Keeping(Broker):
    """A broker that keeps offsets, or refuses to."""

    code = int(Response.SUCCESS)

    def answer(self, request: Command) -> bytes | None:
        if request.code == Request.UPDATE_CONSUMER_OFFSET:
            return encode_reply(request, self.code, remark="no room")
        return super().answer(request)

    def told(self) -> list[tuple[str, str]]:
        asked = [request.ext or {} for request in self.server.requests]
        return [(ext["queueId"], ext["commitOffset"]) for ext in asked if "commitOffset" in ext]


def test_the_first_offset_of_a_topic_is_kept_before_the_others_are_told() -> None:
    """RocketMQ's brokers lose one of two that are a group's first together."""
    broker = Keeping()
    cluster = Cluster(ClusterAccess(name_servers=(broker.server.address,)), tries=1, try_again_ms=0)
    places = {MessageQueue("t", "broker-a", number): 10 + number for number in range(4)}
    broker.code = Response.SYSTEM_ERROR
    with pytest.raises(EscrowMQError, match="no room"):
        cluster.commit_offsets("g", places)
    assert len(broker.told()) == 1
    broker.code = Response.SUCCESS
    cluster.commit_offsets("g", places)
    assert sorted(broker.told()[1:]) == [(str(number), str(10 + number)) for number in range(4)]
    cluster.close()
    broker.server.close()


class Busy(Broker):
    """A broker and name server that is busy for a while."""

    def __init__(self, code: int, times: int) -> None:
        super().__init__()
        self.code, self.left = code, times

    def answer(self, request: Command) -> bytes | None:
        if self.left:
            self.left -= 1
            return encode_reply(request, self.code, remark="[OVERLOAD]system busy")
        ext = {"offset": "7", "timestamp": "17"}
        if request.code == Request.GET_ROUTEINFO_BY_TOPIC:
            return super().answer(request)
        return encode_reply(request, 0, ext=ext)


@pytest.mark.parametrize("code", [Response.SYSTEM_BUSY, Response.FLOW_CONTROL])
def test_a_busy_broker_is_asked_again(code: int) -> None:
    """One such answer ended a streaming query; of the first message's time it made "unknown"."""
    for times in (1, 2):  # the name server's answer, then also the broker's
        broker = Busy(code, times)
        access = ClusterAccess(name_servers=(broker.server.address,))
        cluster = Cluster(access, tries=3, try_again_ms=0)
        assert cluster.end_offsets([QUEUE]) == {QUEUE: 7}
        for look in (cluster.first_offsets, cluster.end_offsets):
            broker.left = times
            assert look([QUEUE]) == {QUEUE: 7}
        broker.left = times
        assert cluster.first_stored_ms([QUEUE]) == {QUEUE: 17}
        broker.left = times
        assert cluster.committed_offsets("g", [QUEUE]) == {QUEUE: 7}
        broker.left = 3
        with pytest.raises((BrokerBusy, FlowControlled), match="system busy"):
            cluster.end_offsets([QUEUE])
        cluster.close()
        broker.server.close()
