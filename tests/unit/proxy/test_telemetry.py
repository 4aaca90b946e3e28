"""Telemetry, heartbeats, and where v5 clients stand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.answer import Refusal
from escrowmq.base.codes import Response
from escrowmq.base.guests import OnReply, RequestByValue
from escrowmq.http2.frames import WINDOW_DEFAULT
from escrowmq.http2.limits import Http2Limits
from escrowmq.proxy import clients
from escrowmq.proxy.gen import v2

from .client import World, message


def make_world() -> World:
    world = World()
    world.topic("T")
    return world


def settings(world: World, number: int, client: object) -> v2.Settings:
    (told,) = client.told(number)  # type: ignore[attr-defined]
    assert told.status.code == v2.OK
    found: v2.Settings = told.settings
    return found


def test_a_producers_settings_are_completed_at_once() -> None:
    world = make_world()
    client = world.connect()
    found = settings(world, client.produce("T"), client)
    policy = found.backoff_policy
    assert (policy.max_attempts, policy.exponential_backoff.multiplier) == (3, 2)
    assert (found.publishing.max_body_size, found.publishing.validate_message_type) == (
        4_194_304, True,
    )  # fmt: skip
    assert found.HasField("metric")
    assert not found.metric.on


def test_a_consumers_settings_are_completed_at_once() -> None:
    world = make_world()
    client = world.connect()
    found = settings(world, client.consume("CG", "T"), client)
    subscription = found.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (False, 32)
    assert subscription.long_polling_timeout.seconds == 20
    assert subscription.lite_subscription_quota
    assert subscription.max_lite_topic_size
    policy = found.backoff_policy
    assert (policy.max_attempts, len(policy.customized_backoff.next)) == (17, 18)
    assert policy.customized_backoff.next[0].seconds == 1


def test_a_groups_own_policy_is_told() -> None:
    world = make_world()
    body = {
        "groupName": "CG", "consumeMessageOrderly": True, "retryMaxTimes": 4,
        "groupRetryPolicy": {
            "type": "EXPONENTIAL",
            "exponentialRetryPolicy": {"initial": 1000, "max": 60000, "multiplier": 3},
        },
    }  # fmt: skip
    world.exchange.connect("operator").ask(200, {}, json.dumps(body).encode())
    client = world.connect()
    found = settings(world, client.consume("CG", "T"), client)
    assert found.subscription.fifo
    assert found.backoff_policy.max_attempts == 5
    exponential = found.backoff_policy.exponential_backoff
    assert (exponential.initial.seconds, exponential.max.seconds) == (1, 60)
    assert exponential.multiplier == 3


@pytest.mark.parametrize("policy", [
    {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_000, 10**30]}},
    {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [True, -5, "x", 1_000, 10**18]}},
    {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1_000, "max": 10**30}},
    {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1_000, "multiplier": 10**50}},
])  # fmt: skip
def test_consumers_are_let_in_whatever_operators_have_set(policy: dict[str, object]) -> None:
    world = make_world()
    body = {"groupName": "CG", "retryMaxTimes": 2**31 - 1, "groupRetryPolicy": policy}
    assert world.exchange.connect("operator").ask(200, {}, json.dumps(body).encode()).code == 0
    client = world.connect()
    found = settings(world, client.consume("CG", "T"), client).backoff_policy
    assert found.max_attempts == 2**31 - 1
    spans = [each.ToMilliseconds() for each in found.customized_backoff.next]
    assert spans in ([], [1_000, 365 * 24 * 3_600_000])
    exponential = found.exponential_backoff
    assert exponential.initial.ToMilliseconds() in (0, 1_000)
    assert exponential.max.ToMilliseconds() <= 365 * 24 * 3_600_000


def test_a_change_of_the_group_is_told_at_the_next_heartbeat() -> None:
    world = make_world()
    operator, client = world.exchange.connect("operator"), world.connect()
    number = client.consume("CG", "T")

    def beat() -> list[v2.TelemetryCommand]:
        client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)
        return client.told(number)

    assert len(beat()) == 1
    body = {"groupName": "CG", "consumeMessageOrderly": True, "retryMaxTimes": 4}
    operator.ask(200, {}, json.dumps(body).encode())
    _, told = beat()
    assert told.status.code == v2.OK
    assert told.settings.subscription.fifo
    assert told.settings.backoff_policy.max_attempts == 5
    assert len(beat()) == 2


def test_settings_come_again_whenever_the_client_likes() -> None:
    client = make_world().connect()
    number = client.produce("T")
    again = v2.Settings(client_type=v2.PRODUCER)
    again.publishing.topics.add(name="U")
    client.write(number, v2.TelemetryCommand(settings=again))
    assert len(client.told(number)) == 2


def test_settings_that_cannot_be_end_the_stream() -> None:
    client = make_world().connect()
    for broken, code, text in (
        (v2.Settings(), 3, "there is no publishing or subscription data in settings"),
        (v2.Settings(client_type=v2.LITE_PUSH_CONSUMER), 12, "lite topics are not served"),
        (v2.Settings(client_properties={"rocketmq.x": "1"}), 3, "client properties"),
        (v2.Settings(client_properties={str(n): "" for n in range(3)}), 3, "client properties"),
    ):
        stream = client.streams[client.telemetry(broken)]
        assert stream.code == code
        assert text in stream.fields["grpc-message"]
    system = v2.Settings()
    system.publishing.topics.add(name="TBW102")
    stream = client.streams[client.telemetry(system)]
    assert "cannot access system topic" in stream.fields["grpc-message"]


@pytest.mark.parametrize(("field", "size", "text"), [
    ("hostname", 300, "a host name of 300 characters; 255 are allowed"),
    ("version", 300_000, "262144 are allowed"),
    ("access_point", 9_000, "8192 are allowed"),
])  # fmt: skip
def test_settings_that_are_too_large_are_not_kept(field: str, size: int, text: str) -> None:
    world = make_world()
    client = world.connect()
    wanted = v2.Settings(client_type=v2.PRODUCER)
    wanted.publishing.topics.add(name="T")
    if field == "access_point":
        wanted.access_point.addresses.add(host="h" * size)
    else:
        setattr(wanted.user_agent, field, "h" * size)
    stream = client.streams[client.telemetry(wanted)]
    assert stream.code == 3
    assert text in stream.fields["grpc-message"]
    assert [each.settings for each in world.front.clients.registered_clients()] == [None]


def test_settings_of_all_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "GRPC_SETTINGS_KEPT_SIZE_MAX", 150)
    world = make_world()
    several = [world.connect(f"c{nth}") for nth in range(4)]
    streams = [client.streams[client.produce("T")] for client in several]
    served = sum(not stream.is_over for stream in streams)
    assert 0 < served < 4
    assert streams[-1].code == 8
    assert "150 are allowed" in streams[-1].fields["grpc-message"]
    several[0].produce("T")  # the same again takes no more
    assert world.front.clients.settings_size <= 150
    for client in several:
        client.leave()
    world.exchange.advance(130_000)
    assert world.front.clients.settings_size == 0


def test_refused_settings_leave_nothing() -> None:
    world = make_world()
    client = world.connect()
    first = client.consume("CG", "T")
    kept = settings(world, first, client)
    assert client.streams[client.consume("CG", "TBW102")].code == 3
    assert [each.settings for each in world.front.clients.registered_clients()] == [kept]


def test_the_first_command_has_to_be_settings() -> None:
    client = make_world().connect()
    number = client.begin("Telemetry")
    client.write(number, v2.TelemetryCommand(thread_stack_trace=v2.ThreadStackTrace(nonce="1")))
    assert client.streams[number].code == 3


def test_heartbeats_need_settings() -> None:
    client = make_world().connect()
    beat = client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse).status
    request, kind = v2.NotifyClientTerminationRequest(), v2.NotifyClientTerminationResponse
    for status in (beat, client.ask("NotifyClientTermination", request, kind).status):
        assert status.code == v2.UNRECOGNIZED_CLIENT_TYPE
        assert status.message == "cannot find client settings for this client"


def members(world: World, group: str) -> list[dict[str, object]]:
    reply = world.exchange.connect("operator").ask(203, {"consumerGroup": group})
    if reply.code:
        return []
    found: list[dict[str, object]] = json.loads(reply.body)["connectionSet"]
    return found


def test_v5_clients_stand_where_all_others_do() -> None:
    world = make_world()
    client = world.connect("v5-client")
    client.consume("CG", "T")
    (found,) = members(world, "CG")
    assert (found["clientId"], found["language"]) == ("v5-client", "PYTHON")
    for _ in range(20):
        world.exchange.advance(10_000)
        assert (
            client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse).status.code
            == v2.OK
        )
    assert len(members(world, "CG")) == 1
    client.ask(
        "NotifyClientTermination",
        v2.NotifyClientTerminationRequest(),
        v2.NotifyClientTerminationResponse,
    )
    assert members(world, "CG") == []
    assert len(world.front.clients) == 0


def test_a_stream_opened_anew_keeps_the_registrations() -> None:
    world = make_world()
    client = world.connect()
    client.consume("CG", "T")
    client.leave()
    again = world.connect()
    number = again.consume("CG", "T")
    assert len(members(world, "CG")) == 1
    assert len(again.told(number)) == 1


def test_a_producer_whose_new_settings_are_refused_stays_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world()
    world.topic("U")
    client = world.connect()
    first = client.produce("T", "U")
    ask = world.front.backend.make_request
    producers = world.exchange.core.broker.clients.producers
    refusals = [Refusal(Response.SYSTEM_BUSY, "planted")]

    def asked(guest: int, wish: RequestByValue, on_reply: OnReply | None, now_ms: int) -> int:
        if refusals and on_reply is not None:
            on_reply(refusals.pop())
            return 1
        return ask(guest, wish, on_reply, now_ms)

    monkeypatch.setattr(world.front.backend, "make_request", asked)
    assert client.streams[client.produce("T")].code
    assert set(producers) == {"T", "U"}
    assert not client.streams[first].is_over
    (member,) = producers["U"]
    assert world.exchange.core.broker.peers.is_reachable(member)
    client.produce("T")
    assert set(producers) == {"T"}


def test_a_stack_trace_goes_to_the_operator_who_asked() -> None:
    world = make_world()
    client = world.connect("v5-client")
    number = client.consume("CG", "T")
    operator = world.exchange.connect("operator")
    asked = operator.begin(307, {"consumerGroup": "CG", "clientId": "v5-client"})
    command = client.told(number)[-1].print_thread_stack_trace_command
    trace = v2.ThreadStackTrace(nonce=command.nonce, thread_stack_trace="at home")
    client.write(number, v2.TelemetryCommand(thread_stack_trace=trace))
    assert json.loads(asked.now.body)["jstack"] == "at home"


def test_a_message_is_consumed_directly_when_an_operator_wants_it() -> None:
    world = make_world()
    client = world.connect("v5-client")
    number = client.consume("CG", "T")
    client.send(message("T", message_id="id-1"))
    operator = world.exchange.connect("operator")
    (stored,) = operator.messages("T")
    name = f"{stored.store_host.hex()}{stored.log_offset:016x}".upper()
    asked = operator.begin(309, {"consumerGroup": "CG", "clientId": "v5-client", "msgId": name})
    command = client.told(number)[-1].verify_message_command
    assert command.message.system_properties.message_id == "id-1"
    result = v2.TelemetryCommand(verify_message_result=v2.VerifyMessageResult(nonce=command.nonce))
    result.status.code = v2.FAILED_TO_CONSUME_MESSAGE
    client.write(number, result)
    assert json.loads(asked.now.body)["consumeResult"] == "CR_LATER"


def test_clients_are_asked_to_go_elsewhere_when_the_front_ends() -> None:
    world = make_world()
    client = world.connect()
    number = client.produce("T")
    world.front.drain()
    world.exchange._perform()
    assert client.told(number)[-1].WhichOneof("command") == "reconnect_endpoints_command"


def test_assignments_are_by_queue_where_order_counts() -> None:
    world = World()
    world.topic("T", "FIFO", queues=3)
    client = world.connect()
    client.consume("CG", "T")
    request = v2.QueryAssignmentRequest()
    request.topic.name, request.group.name = "T", "CG"
    found = client.ask("QueryAssignment", request, v2.QueryAssignmentResponse)
    assert [each.message_queue.id for each in found.assignments] == [-1]
    world.exchange.connect("operator").ask(
        200, {}, b'{"groupName":"CG","consumeMessageOrderly":true}'
    )
    found = client.ask("QueryAssignment", request, v2.QueryAssignmentResponse)
    assert [each.message_queue.id for each in found.assignments] == [0, 1, 2]


def test_a_client_that_leaves_too_much_unread_cannot_be_asked_from_then_on() -> None:
    """Its stream had ended, and it was asked about halves all the same until it said something."""
    world = make_world()
    client = world.connect(is_slow=True)
    client.produce("T")
    (known,) = world.front.clients.registered_clients()
    dialogue: Any = world.exchange.core.broker.peers.by_id[client.id].dialogue
    dialogue.calls._connection._limits = Http2Limits(unsent_size_max=100)
    stream = known.stream
    assert stream is not None
    for _ in range(WINDOW_DEFAULT // 8):  # more than the window takes
        stream.order_reconnect()
    world.exchange._perform()
    assert known.stream is None
    assert not dialogue.calls.open_count
