from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Effect, Hold, Send
from escrowmq.base.fixed_limits import ANSWERS_AHEAD_MAX, ASKED_AT_ONCE_MAX
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.registry.core import HANDLERS, RegistryCore
from escrowmq.registry.handler_values import RegistryAnswer, RegistryRequest, RegistryState
from tests.harness.exchange import Exchange as BrokerExchange

from .exchange import Exchange, MemoryDisk, frame, queues, register

# Requests to, and replies of, the name server of Apache RocketMQ 5.3.3 in one session over
# several connections, captured from the socket. `thrown` stands for the text of a Java exception.
PEER_ANSWERS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "peer_answers.json").read_text()
)


def canonical(body: str, *, is_address_free: bool) -> str:
    """The body with lists and brokers in one order: RocketMQ's is that of its hash tables."""
    quoted = re.sub(r"([{,])(-?\d+):", r'\1"#\2":', body)

    def ordered(value: Any) -> Any:
        if isinstance(value, list):
            return sorted(map(ordered, value), key=json.dumps)
        if not isinstance(value, dict):
            return value
        is_table = any(isinstance(each, dict) for each in value.values())
        if is_address_free:
            value.pop("brokerAddr", None)
        return {k: ordered(v) for k, v in (sorted(value.items()) if is_table else value.items())}

    return f"{len(body)} {json.dumps(ordered(json.loads(quoted)))}"


def test_a_session_is_answered_as_the_peer_answers_it() -> None:
    exchange = Exchange()
    for row in PEER_ANSWERS:
        if row.get("close"):
            exchange.lose(row["peer"])
            continue
        body = base64.b64decode(row["base64"]) if "base64" in row else row.get("text", "").encode()
        reply = exchange.ask_frame(frame(row["header"], body), row["peer"])
        expected = row["reply"]
        assert reply.code == expected["code"], row
        if "thrown" in expected:
            assert reply.remark, row
            continue
        assert reply.remark == expected.get("remark"), row
        assert reply.ext == expected.get("ext"), row
        is_address_free = row["header"]["code"] == 304
        ours, theirs = reply.body.decode(), expected.get("body", "")
        if ours != theirs:
            assert canonical(ours, is_address_free=is_address_free) == canonical(
                theirs, is_address_free=is_address_free
            ), row


def test_a_route_is_the_peer_s_to_the_byte() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4})
    new = exchange.ask(105, {"topic": "T"}, version=401)
    old = exchange.ask(105, {"topic": "T"}, version=400)
    asked = exchange.ask(105, {"topic": "T", "acceptStandardJsonOnly": "true"}, version=0)
    rest = (
        b'"127.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
        b'"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    assert new.body == b'{"brokerDatas":[{"brokerAddrs":{"0":' + rest
    assert old.body == b'{"brokerDatas":[{"brokerAddrs":{0:' + rest
    assert asked.body == new.body


def test_every_handler_survives_a_request_without_fields() -> None:
    exchange = Exchange()
    for code in HANDLERS:
        exts: tuple[dict[str, str] | None, ...] = (None, {})
        for ext in exts:
            assert exchange.ask(code, ext).code in (0, 1, 17, 22)


def test_a_one_way_request_is_carried_out_and_not_answered() -> None:
    exchange = Exchange()
    put = Command(code=100, opaque=7, flag=2, ext={"namespace": "n", "key": "k", "value": "v"})
    assert exchange.feed(encode_command(put)) == []
    assert exchange.ask(101, {"namespace": "n", "key": "k"}).ext == {"value": "v"}


def test_a_reply_is_passed_over() -> None:
    exchange = Exchange()
    assert exchange.feed(encode_command(Command(code=105, flag=1, opaque=7))) == []


def test_a_binary_request_is_answered() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4})
    request = Command(code=105, opaque=7, version=479, ext={"topic": "T"}, is_binary=True)
    reply = exchange.ask_frame(encode_command(request))
    assert (reply.code, reply.opaque) == (0, 7)


def test_replies_of_one_read_leave_together_and_in_order() -> None:
    exchange = Exchange()
    requests = b"".join(encode_command(Command(code=106, opaque=n)) for n in (1, 2, 3))
    (send,) = exchange.feed(requests)
    assert isinstance(send, Send)
    replies = FrameReader().read_commands(b"".join(send.chunks))
    assert [reply.opaque for reply in replies] == [1, 2, 3]


def test_a_broken_frame_closes_the_peer_and_unregisters_its_broker() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4})
    good = encode_command(Command(code=106, opaque=1))
    send, close = exchange.feed(good + b"\xff" * 8)
    assert isinstance(send, Send)
    assert isinstance(close, Close)
    assert close.peer == 1
    assert exchange.feed(good) == []
    assert queues(exchange, "T") == {}


def test_a_silent_broker_is_closed_and_unregistered() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4}, heartbeatTimeoutMillis="30000")
    beat = {"brokerAddr": "127.0.0.2:10911", "clusterName": "DefaultCluster", "brokerName": "x"}
    assert exchange.core.wake_at_ms() == 5_000
    for exchange.now_ms in (5_000, 30_000):
        exchange.core.wake(exchange.now_ms)
        assert exchange.core.take_effects() == []
    exchange.ask(904, beat)
    exchange.now_ms = 60_000
    exchange.core.wake(exchange.now_ms)
    assert queues(exchange, "T") == {"broker-a": 8}
    exchange.now_ms = 65_001
    exchange.core.wake(exchange.now_ms)
    (close,) = exchange.core.take_effects()
    assert isinstance(close, Close)
    assert close.peer == 1
    assert queues(exchange, "T") == {}
    exchange.core.disconnected(1, exchange.now_ms)


def test_no_broker_is_silent_because_the_clock_was_set_forward() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4}, heartbeatTimeoutMillis="30000")
    exchange.core.clock_leapt(600_000)
    exchange.now_ms = 630_000
    exchange.core.wake(exchange.now_ms)
    assert queues(exchange, "T") == {"broker-a": 8}
    exchange.now_ms = 635_001
    exchange.core.wake(exchange.now_ms)
    assert len(exchange.core.take_effects()) == 1
    assert queues(exchange, "T") == {}


def test_a_wake_before_its_time_does_nothing() -> None:
    core = RegistryCore(NameServerSettings(), started_ms=100)
    core.wake(101)
    assert core.wake_at_ms() == 5_100
    core.sync_finished(0, 0)
    core.sync_failed("", 0)
    assert core.take_effects() == []


def test_all_brokers_of_a_lost_connection_go_at_once() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4})
    register(exchange, {"T": 8, "U": 4}, name="broker-b", address="127.0.0.3:10911")
    register(exchange, {"T": 8, "U": 4}, name="broker-c", address="127.0.0.4:10911", peer=2)
    exchange.lose(1)
    assert queues(exchange, "T") == {"broker-c": 8}


def test_routes_wait_for_brokers_to_register_when_told_so() -> None:
    exchange = Exchange(NameServerSettings(waits_for_service=True, wait_seconds=45))
    register(exchange, {"T": 8, "U": 4})
    exchange.now_ms = 44_999
    assert exchange.ask(105, {"topic": "T"}).remark == "name server not ready"
    exchange.now_ms = 45_000
    assert exchange.ask(105, {"topic": "T"}).code == 0


def test_topics_that_are_not_registered_again_go_when_told_so() -> None:
    exchange = Exchange(NameServerSettings(deletes_topics_on_register=True))
    register(exchange, {"T": 8, "U": 4})
    register(exchange, {"T": 8, "W": 4}, counter=2)
    assert queues(exchange, "U") == {}
    assert queues(exchange, "W") == {"broker-a": 4}


def test_topics_that_a_partial_registration_does_not_contain_stay() -> None:
    broker = BrokerExchange(BrokerSettings(name_servers="10.0.0.7:9876"))
    link = broker.connect("nameserver", peer=-1)
    exchange = Exchange(NameServerSettings(deletes_topics_on_register=True))

    def pass_registrations_on() -> None:
        for request in link.take():
            assert exchange.ask(request.code, request.ext, request.body).code == 0
            link.answer(request)

    broker.create_topic("T")
    broker.create_topic("U")
    pass_registrations_on()
    broker.create_topic("W")
    pass_registrations_on()
    broker.core.registration.register_again(broker.now_ms)
    broker.advance(0)
    pass_registrations_on()
    assert set(exchange.core.state.routes.topics()) >= {"T", "U", "W"}


def test_a_full_disk_refuses_a_change_and_keeps_the_old_value() -> None:
    disk = MemoryDisk()
    exchange = Exchange(disk=disk)
    item = {"namespace": "n", "key": "k", "value": "v"}
    assert exchange.ask(100, item).code == 0
    disk.is_full = True
    refused = exchange.ask(100, {**item, "value": "w"})
    assert refused.code == 1
    assert "No space left" in (refused.remark or "")
    assert exchange.ask(101, item).ext == {"value": "v"}


def test_a_changed_setting_counts_at_once() -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4})
    assert exchange.ask(105, {"topic": "T"}).code == 0
    assert (
        exchange.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}).code == 0
    )
    assert exchange.ask(318, None, b"orderMessageEnable=true").code == 0
    assert b'"orderTopicConf":"b:4"' in exchange.ask(105, {"topic": "T"}).body
    refused = exchange.ask(318, None, b"scanNotActiveBrokerInterval=0")
    assert refused.code == 1
    assert "scanNotActiveBrokerInterval" in (refused.remark or "")
    assert b"orderMessageEnable=true\n" in exchange.ask(319).body


def test_an_internal_error_is_answered_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(state: RegistryState, asked: RegistryRequest) -> RegistryAnswer:
        raise ZeroDivisionError("boom")

    monkeypatch.setitem(HANDLERS, 106, fail)
    exchange = Exchange()
    assert exchange.ask(106).remark == "ZeroDivisionError('boom')"
    assert exchange.ask(206).code == 0


def test_a_zone_filter_of_an_unknown_topic_finds_nothing() -> None:
    exchange = Exchange()
    zone = {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "z"}
    assert exchange.ask(105, zone).code == 17


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_or_close_the_peer(data: bytes) -> None:
    exchange = Exchange()
    for effect in exchange.feed(data):
        assert isinstance(effect, Send | Close)


@given(
    st.sampled_from([*HANDLERS, 1]),
    st.dictionaries(
        st.sampled_from(
            [
                "topic", "brokerName", "brokerAddr", "clusterName", "brokerId", "compressed",
                "namespace", "key", "value", "bodyCrc32", "enableActingMaster", "cluster",
                "__ZONE_MODE", "__ZONE_NAME", "heartbeatTimeoutMillis",
            ]
        ),
        st.sampled_from(["", "0", "1", "-1", "true", "x", "é/", "99999999999999999999"]),
    ),
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b"{}", b"[]", b"null", b'{"queueDatas":[{"brokerName":"x"}]}', b"\0\0\0\0",
                b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{},"b":{"perm":1}}}}',
            ]
        ),
    ),
    st.sampled_from([-1, 0, 36, 37, 400, 479, 2**31 - 1]),
)  # fmt: skip
def test_any_request_is_answered(code: int, ext: dict[str, str], body: bytes, version: int) -> None:
    exchange = Exchange()
    register(exchange, {"T": 8, "U": 4}, name="x", address="y")
    reply = exchange.ask(code, ext, body, version=version)
    assert reply.code in (0, 1, 3, 16, 17, 22)
    assert exchange.ask(106).code == 0


def test_peer_that_does_not_end_a_frame_is_cut() -> None:
    exchange = Exchange()
    whole = encode_command(Command(code=106, opaque=1))
    exchange.feed(whole[:10])
    exchange.feed(whole, peer=2)
    closed: list[int] = []
    for now_ms in range(0, 100_000, 5_000):
        exchange.core.wake(now_ms)
        effects = exchange.core.take_effects()
        closed += [effect.peer for effect in effects if isinstance(effect, Close)]
    assert closed == [1]


def test_who_asks_for_much_at_once_has_to_read_before_the_rest_is_served() -> None:
    exchange = Exchange()
    register(exchange, {f"topic-{number}-" + "x" * 80: 1 for number in range(2_000)})
    data = encode_command(Command(code=206, opaque=1)) * 50
    effects: list[Effect] = list(exchange.core.take_effects())
    exchange.core.receive(1, data, 0)
    sizes = []
    while effects := exchange.core.take_effects():
        sizes.append(sum(len(c) for e in effects if isinstance(e, Send) for c in e.chunks))
        if Hold(1) in effects:
            exchange.core.receive(1, b"", 0)
    assert sum(sizes) > 50 * 150_000
    assert max(sizes) < 2 * ANSWERS_AHEAD_MAX


def test_many_small_requests_of_one_input_leave_the_others_their_turn() -> None:
    exchange = Exchange()
    core = exchange.core
    core.connected(1, "127.0.0.1", 40_001, 0)
    data = encode_command(Command(code=105, opaque=1, ext={"topic": "T"}))
    core.receive(1, data * (ASKED_AT_ONCE_MAX + 5), 0)
    counts = []
    while effects := core.take_effects():
        counts.append(sum(len(e.chunks) for e in effects if isinstance(e, Send)))
        if Hold(1) in effects:
            core.receive(1, b"", 0)
    assert counts == [ASKED_AT_ONCE_MAX, 5]


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**30])
def test_broker_id_that_no_client_can_read_is_not_taken(number: int) -> None:
    exchange = Exchange()
    assert register(exchange, {"T": 1, "U": 1}, address="10.0.0.1:1").code == 0
    reply = register(exchange, {"T": 1, "U": 1}, name="odd", peer=2, brokerId=str(number))
    assert reply.code == 1
    assert b"odd" not in exchange.ask(106).body
    assert b"odd" not in exchange.ask(105, {"topic": "T"}).body


@pytest.mark.parametrize("number", [1 << 31, 10**30])
def test_number_of_queues_that_no_client_can_read_is_not_taken(number: int) -> None:
    exchange = Exchange()
    assert register(exchange, {"T": 1, "U": 1}, address="10.0.0.1:1").code == 0
    assert register(exchange, {"T": number, "U": 1}, name="odd", peer=2).code == 1
    assert b"odd" not in exchange.ask(105, {"topic": "T"}).body
    route = {"queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": number}]}
    assert exchange.ask(217, {"topic": "T"}, json.dumps(route).encode()).code == 1
    assert str(number).encode() not in exchange.ask(105, {"topic": "T"}).body
