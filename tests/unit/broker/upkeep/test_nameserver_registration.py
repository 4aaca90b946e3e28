from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.broker.upkeep import nameserver_registration
from escrowmq.codec.command import encode_command
from escrowmq.registry.core import RegistryCore
from tests.harness.exchange import Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange(BrokerSettings(name_servers="10.0.0.7:9876;[::1]:9877"))


def connect(exchange: Exchange, peer: int = -1) -> Caller:
    return exchange.connect("nameserver", peer=peer)


def topics_of(request: Command) -> dict[str, Any]:
    assert request.code == Request.REGISTER_BROKER
    wrapper = json.loads(request.body)["topicConfigSerializeWrapper"]
    found: dict[str, Any] = wrapper["topicConfigTable"]
    return found


def test_every_name_server_is_dialled_at_the_start(exchange: Exchange) -> None:
    assert [(dial.peer, dial.host, dial.port) for dial in exchange.dials] == [
        (-1, "10.0.0.7", 9876),
        (-2, "::1", 9877),
    ]


def test_broker_without_name_servers_dials_nobody_and_counts_as_known() -> None:
    exchange = Exchange()
    assert exchange.dials == []
    assert exchange.core.registration.is_registered


def test_name_server_is_told_the_broker_and_all_its_topics(exchange: Exchange) -> None:
    server = connect(exchange)
    (request,) = server.take()
    assert request.ext == {
        "brokerName": "broker-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": "0",
        "heartbeatTimeoutMillis": "120000",
        "enableActingMaster": "false",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    assert set(topics_of(request)) == set(exchange.core.broker.topics.names())
    assert not exchange.core.registration.is_registered
    server.answer(request)
    assert exchange.core.registration.is_registered


def test_refused_registration_does_not_make_the_broker_known(exchange: Exchange) -> None:
    server = connect(exchange)
    (request,) = server.take()
    server.answer(request, 1, remark="no")
    assert not exchange.core.registration.is_registered


@pytest.mark.parametrize("code", [0, 1], ids=["accepted", "refused"])
def test_there_is_an_outcome_once_each_name_server_has_answered_or_was_not_reached(
    exchange: Exchange, code: int
) -> None:
    registration, noted = exchange.core.registration, []
    registration.on_outcome = lambda: noted.append(registration.has_tried_all)
    server = connect(exchange)
    assert not registration.has_tried_all
    server.answer(server.take()[0], code)
    exchange.core.disconnected(-2, exchange.now_ms)
    assert noted == [False, True]


def test_broker_without_name_servers_waits_for_none() -> None:
    assert Exchange().core.registration.has_tried_all


def test_many_topics_are_registered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 75,000 topics the frame was too large: the broker vanished from its name servers."""
    monkeypatch.setattr(nameserver_registration, "_TOPICS_AT_ONCE", 3)
    exchange = Exchange(BrokerSettings(name_servers="10.0.0.7:9876"))
    requests = connect(exchange).take()
    topics = exchange.core.broker.topics
    assert [name for each in requests for name in topics_of(each)] == list(topics.names())
    assert {len(topics_of(each)) for each in requests[:-1]} == {3}
    versions = [
        json.loads(each.body)["topicConfigSerializeWrapper"]["dataVersion"] for each in requests
    ]
    # A name server that has the version of a registration does not read its topics.
    assert len({json.dumps(each) for each in versions}) == len(requests)
    assert versions[-1] == msgspec.to_builtins(topics.version)
    assert {(each.ext or {})["escrowPartial"] for each in requests} == {"true"}


def test_a_name_server_that_deletes_unnamed_topics_keeps_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With deleteTopicWithBrokerRegistration=true each new topic removed the routes of all others
    for up to 30 s: it was registered alone. Registrations in parts, and those of a slave that only
    wants the answer, removed them too."""
    monkeypatch.setattr(nameserver_registration, "_TOPICS_AT_ONCE", 3)
    exchange = Exchange(
        BrokerSettings(name_servers="10.0.0.7:9876", registers_single_topics=True, permission=4)
    )
    names = RegistryCore(
        NameServerSettings(deletes_topics_on_register=True), started_ms=exchange.now_ms
    )
    names.connected(1, "127.0.0.1", 1, exchange.now_ms)
    server = connect(exchange)

    def pass_on() -> list[int]:
        requests = server.take()
        for request in requests:
            names.receive(1, encode_command(request), exchange.now_ms)
            server.answer(request)
        return [request.code for request in requests]

    assert pass_on() == [Request.REGISTER_BROKER]
    exchange.create_topic("orders", queues=3)
    assert pass_on() == [Request.REGISTER_TOPIC_IN_NAMESRV]
    exchange.core.registration.register_again(exchange.now_ms)
    exchange.create_topic("paid")
    assert pass_on() == [Request.REGISTER_BROKER, Request.REGISTER_TOPIC_IN_NAMESRV]
    assert set(names.state.routes.topics()) == set(exchange.core.broker.topics.names())
    route = names.state.routes.route("orders")
    assert route is not None
    assert route.queue_datas is not None
    (queues,) = route.queue_datas
    assert (queues.broker_name, queues.write_queue_nums, queues.perm) == ("broker-a", 3, 4)


def test_only_a_master_registers_single_topics() -> None:
    """A slave learns of a topic from its first record: its registration replaced the master's, with
    the first queues alone."""
    exchange = Exchange(
        BrokerSettings(name_servers="10.0.0.7:9876", registers_single_topics=True, broker_id=1)
    )
    server = connect(exchange)
    (request,) = server.take()
    server.answer(request)
    exchange.create_topic("orders")
    assert server.take() == []
    exchange.advance(30_100)
    (request,) = server.take()
    assert "orders" in topics_of(request)


@pytest.mark.parametrize("code", [None, 1], ids=["no answer", "refused"])
def test_a_topic_that_was_not_registered_is_logged(
    caplog: pytest.LogCaptureFixture, code: int | None
) -> None:
    exchange = Exchange(BrokerSettings(name_servers="10.0.0.7:9876", registers_single_topics=True))
    server = connect(exchange)
    server.take()
    exchange.create_topic("orders")
    (request,) = server.take()
    if code is None:
        exchange.advance(31_000)
    else:
        server.answer(request, code, remark="no")
    assert "did not register topic orders: no" in caplog.text


def test_new_topic_is_told_at_once_and_alone(exchange: Exchange) -> None:
    server = connect(exchange)
    server.take()
    exchange.connect().send("Fresh")
    (request,) = server.take()
    assert set(topics_of(request)) == {"Fresh"}


def test_registration_is_repeated_with_all_topics(exchange: Exchange) -> None:
    server = connect(exchange)
    server.answer(server.take()[0])
    exchange.advance(29_900)
    assert server.take() == []
    exchange.advance(200)
    (request,) = server.take()
    assert "TBW102" in topics_of(request)


def test_lost_name_server_is_dialled_again_after_growing_spans(exchange: Exchange) -> None:
    server = connect(exchange)
    server.answer(server.take()[0])
    exchange.dials.clear()
    server.leave()
    assert not exchange.core.registration.is_registered
    spans = []
    for _ in range(7):
        start_ms = exchange.now_ms
        while not [dial for dial in exchange.dials if dial.peer == -1]:
            exchange.advance(100)
        spans.append(round((exchange.now_ms - start_ms) / 1_000))
        exchange.dials.clear()
        exchange.core.disconnected(-1, exchange.now_ms)
    assert spans == [1, 2, 4, 8, 16, 30, 30]


def test_a_dial_that_nobody_answers_wakes_the_broker_now_and_then_only(exchange: Exchange) -> None:
    woken_ms = []
    for _ in range(10):
        now_ms = exchange.core.registration.wake_at_ms()
        exchange.core.registration.wake(now_ms)
        woken_ms.append(now_ms)
    spans = [later - earlier for earlier, later in itertools.pairwise(woken_ms)]
    assert min(spans) >= 1_000
    assert len(exchange.dials) == 2  # each is still under way


def test_name_server_that_comes_back_is_told_everything_again(exchange: Exchange) -> None:
    server = connect(exchange)
    server.take()
    server.leave()
    exchange.connect().send("Fresh")
    (request,) = connect(exchange).take()
    assert {"Fresh", "TBW102"} <= set(topics_of(request))


def test_permission_of_the_broker_limits_that_of_its_topics(exchange: Exchange) -> None:
    server = connect(exchange)
    server.take()
    exchange.connect().ask(Request.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    (request,) = server.take()
    assert {config["perm"] for config in topics_of(request).values()} <= {0, 4}
    assert "BenchmarkTest" in topics_of(request)


def test_broker_that_leaves_says_so(exchange: Exchange) -> None:
    server = connect(exchange)
    server.take()
    exchange.core.unregister()
    exchange.advance(1)
    exchange._perform()
    (request,) = server.take(Request.UNREGISTER_BROKER)
    assert (request.ext or {})["brokerAddr"] == "10.0.0.1:10911"
