from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.effects import Hold, Send
from escrowmq.base.fixed_limits import ANSWERS_AHEAD_MAX, SERVED_AT_ONCE_MAX
from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader
from tests.harness.exchange import Exchange


def test_who_asks_for_much_at_once_has_to_read_before_the_rest_is_served() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    sender, reader = exchange.connect(), exchange.connect()
    for _ in range(4):
        assert sender.send("T", bytes(100_000), queue_id=0).code == 0
    data = b"".join(pull_frame(opaque) for opaque in range(60))
    taken = []
    core = exchange.core
    core.receive(reader.id, data + pull_frame(60)[:9], exchange.now_ms)
    while effects := core.take_effects():
        taken.append(sum(len(c) for e in effects if isinstance(e, Send) for c in e.chunks))
        if Hold(reader.id) in effects:
            core.receive(reader.id, b"", exchange.now_ms)
    assert sum(taken) > 60 * 200_000
    assert max(taken) < 2 * ANSWERS_AHEAD_MAX
    core.receive(reader.id, pull_frame(60)[9:], exchange.now_ms)
    (send,) = core.take_effects()
    assert isinstance(send, Send)


def test_large_answers_about_a_topic_of_many_queues_take_turns() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=16_000)
    client, core = exchange.connect(), exchange.core
    frame = encode_request(Request.GET_TOPIC_STATS_INFO, 1, ext={"topic": "T"})
    core.receive(client.id, frame * 8, exchange.now_ms)
    sends = 0
    while effects := core.take_effects():
        (send,) = [effect for effect in effects if isinstance(effect, Send)]
        assert ANSWERS_AHEAD_MAX < sum(map(len, send.chunks)) < 2 * ANSWERS_AHEAD_MAX
        sends += 1
        if Hold(client.id) in effects:
            core.receive(client.id, b"", exchange.now_ms)
    assert sends == 8


@pytest.mark.parametrize("is_read", [True, False])
def test_so_many_requests_of_one_input_are_served_before_it_is_the_others_turn(
    *, is_read: bool
) -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    client, core = exchange.connect(), exchange.core
    client.pull("T")  # the first makes the group
    count = 3 * SERVED_AT_ONCE_MAX
    frame = pull_frame if is_read else newest_frame
    data = b"".join(frame(opaque) for opaque in range(count))
    counts, found = [], FrameReader()
    core.receive(client.id, data, exchange.now_ms)
    while effects := core.take_effects():
        (send,) = [effect for effect in effects if isinstance(effect, Send)]
        counts.append([reply.opaque for reply in found.read_commands(b"".join(send.chunks))])
        if Hold(client.id) in effects:
            core.receive(client.id, b"", exchange.now_ms)
    assert [len(part) for part in counts] == [SERVED_AT_ONCE_MAX] * 3
    assert [opaque for part in counts for opaque in part] == list(range(count))


def newest_frame(opaque: int) -> bytes:
    return encode_request(Request.GET_MAX_OFFSET, opaque, ext={"topic": "T", "queueId": "0"})


def pull_frame(opaque: int) -> bytes:
    ext = {
        "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return encode_request(Request.PULL_MESSAGE, opaque, ext=ext)
