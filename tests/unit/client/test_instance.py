from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client import instance as module
from escrowmq.client.client_settings import Credentials, parse_client_options
from escrowmq.client.connection import Connection
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.client_bodies import ConsumerBody, HeartbeatBody
from escrowmq.codec.signature import sign_fields
from escrowmq.errors import (
    ClientClosed,
    ConnectFailed,
    NoNameServer,
    RequestTimeout,
    RouteMissing,
    UsageError,
    WrongThread,
)

from .peer import Link, Peer, a_peer


class Place:
    """A name server, a broker and what makes instances."""

    def __init__(self, names: Peer, broker: Peer) -> None:
        self.names = names
        self.broker = broker
        self.opened: list[ClientInstance] = []

    def instance(self, **settings: Any) -> ClientInstance:
        servers = settings.pop("servers", self.names.address)
        found = ClientInstance(parse_client_options(servers, settings))
        self.opened.append(found)
        return found

    def heartbeats(self) -> list[HeartbeatBody]:
        return [
            msgspec.json.decode(command.body, type=HeartbeatBody)
            for command in self.broker.requests
            if command.code == Request.HEART_BEAT
        ]


@contextlib.asynccontextmanager
async def a_place() -> AsyncIterator[Place]:
    async with a_peer() as names, a_peer() as broker:
        names.be_name_server(broker.address, topics=("T", "TBW102"))
        place = Place(names, broker)
        try:
            yield place
        finally:
            for instance in place.opened:
                await instance.close()


def run(test: Any) -> None:
    asyncio.run(test())


def test_a_watched_topic_leads_to_a_heartbeat_before_open_returns() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance(instance_name="me")
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            await instance.open()
            (beat,) = place.heartbeats()
            assert beat.client_id == f"{instance.host}@me"
            assert [group.group_name for group in beat.producers or ()] == ["PG"]

    run(go)


def test_a_broker_that_lost_us_hears_from_us_again_without_being_asked() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            instance.watch_topic("T")
            instance.heartbeats.add_consumer("CG", lambda: ConsumerBody(group_name="CG"))
            await instance.open()
            place.broker.links[0].transport.abort()
            await place.broker.until(lambda: len(place.heartbeats()) == 2)
            assert [group.group_name for group in place.heartbeats()[1].consumers or ()] == ["CG"]

    run(go)


def test_closing_unregisters_every_group() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            instance.heartbeats.add_producer("PG")
            instance.heartbeats.add_consumer("CG", lambda: ConsumerBody(group_name="CG"))
            await instance.open()
            await instance.close()
            left = [
                command.ext
                for command in place.broker.requests
                if command.code == Request.UNREGISTER_CLIENT
            ]
            assert [{**(ext or {})} for ext in left] == [
                {"clientID": instance.client_id, "producerGroup": "PG"},
                {"clientID": instance.client_id, "consumerGroup": "CG"},
            ]
            with pytest.raises(ClientClosed):
                await instance.open()

    run(go)


def test_a_topic_that_is_not_there_yet_borrows_the_template_route() -> None:
    async def go() -> None:
        async with a_place() as place:
            place.names.be_name_server(place.broker.address, topics=("TBW102",), queues_count=9)
            instance = place.instance()
            await instance.open()
            queues = await instance.queues_to_write("New")
            assert [(queue.topic, queue.queue_id) for queue in queues] == [
                ("New", index) for index in range(4)
            ]
            with pytest.raises(RouteMissing, match="New2"):
                await instance.route("New2")

    run(go)


def test_a_topic_that_comes_with_its_broker_is_not_taken_for_a_new_one() -> None:
    """The broker registers between the question about the topic and that about the template."""

    async def go() -> None:
        async with a_place() as place:
            names = place.names
            names.be_name_server(place.broker.address, topics=("TBW102", "Late"), queues_count=2)
            present = names.answers[Request.GET_ROUTEINFO_BY_TOPIC]
            asked = []

            def answer(link: Link, command: Command) -> None:
                asked.append((command.ext or {})["topic"])
                if len(asked) == 1:
                    link.reply(command, Response.TOPIC_NOT_EXIST, remark="not yet")
                else:
                    present(link, command)

            names.answers[Request.GET_ROUTEINFO_BY_TOPIC] = answer
            instance = place.instance()
            await instance.open()
            queues = await instance.queues_to_write("Late")
            assert [queue.queue_id for queue in queues] == [0, 1]
            assert asked == ["Late", "TBW102", "Late"]

    run(go)


def test_no_template_and_no_writable_queue_are_two_different_refusals() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            await instance.open()
            place.names.be_name_server(place.broker.address, topics=("T",), perm=4)
            with pytest.raises(RouteMissing, match="create it first"):
                await instance.queues_to_write("Other")
            with pytest.raises(RouteMissing, match="perm"):
                await instance.queues_to_write("T")
            assert len(await instance.queues_to_read("T")) == 2

    run(go)


def test_many_who_need_one_route_ask_once() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            await instance.open()
            await asyncio.gather(*(instance.queues_to_write("T") for _ in range(20)))
            assert place.names.codes() == [Request.GET_ROUTEINFO_BY_TOPIC]

    run(go)


def test_a_dead_name_server_is_passed_over_and_all_dead_ones_are_named() -> None:
    async def go() -> None:
        async with a_place() as place, a_peer() as other:
            dead = other.address
            other.close()
            for _ in range(4):  # whichever is tried first
                instance = place.instance(servers=[dead, place.names.address])
                await instance.open()
                await instance.route("T")
            place.names.close()
            with pytest.raises(NoNameServer) as raised:
                await instance.refresh_route("T")
            assert dead in str(raised.value)
            assert place.names.address in str(raised.value)
            assert instance.book.get("T") is not None, "the old route stays"

    run(go)


def test_a_name_server_that_is_down_at_the_start_is_asked_again() -> None:
    async def go() -> None:
        async with a_place() as place:
            port = int(place.names.address.rpartition(":")[2])
            place.names.close()
            instance = place.instance(route_interval_ms=50, heartbeat_interval_ms=50)
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            await instance.open()
            with pytest.raises(NoNameServer):
                await instance.route("T")
            await place.names.open(port)
            await place.broker.until(place.heartbeats)

    run(go)


def test_what_the_name_server_does_not_know_yet_is_asked_again_soon() -> None:
    async def go() -> None:
        async with a_place() as place:
            place.names.be_name_server(place.broker.address, topics=())
            instance = place.instance()
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            await instance.open()
            assert not place.heartbeats()
            place.names.be_name_server(place.broker.address, topics=("T",))
            await place.broker.until(place.heartbeats)

    run(go)


def test_a_request_of_a_broker_reaches_its_handler_and_others_are_refused() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            served: list[Command] = []

            def serve(connection: Connection, request: Command) -> None:
                served.append(request)
                connection.reply(request)

            instance.set_handler(307, serve)
            await instance.open()
            await instance.ask(place.broker.address, Request.HEART_BEAT)
            place.broker.links[0].ask(307, {})
            place.broker.links[0].ask(220, {})
            await place.broker.until(lambda: len(place.broker.replies) == 2)
            assert [reply.code for reply in place.broker.replies] == [0, 3]
            assert len(served) == 1

    run(go)


def test_requests_are_signed_and_carry_the_namespace() -> None:
    async def go() -> None:
        async with a_place() as place:
            who = Credentials("access", "secret", "token")
            instance = place.instance(credentials=who, namespace="ns", is_namespace_v2=True)
            await instance.open()
            await instance.ask(place.broker.address, 17, {"topic": "T"}, b"body")
            ext = dict(place.broker.requests[-1].ext or {})
            assert ext.pop("Signature") == sign_fields(ext, b"body", secret="secret")
            assert ext == {
                "topic": "T",
                "nsd": "true",
                "ns": "ns",
                "AccessKey": "access",
                "SecurityToken": "token",
            }
            assert "secret" not in repr(who)

    run(go)


def test_use_before_open_from_another_loop_and_after_close_is_refused() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            with pytest.raises(ClientClosed, match="not open"):
                instance.check_usable()
            await instance.open()
            instance.check_usable()

            async def elsewhere() -> None:
                instance.check_usable()

            with pytest.raises(WrongThread):
                await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            await instance.close()
            with pytest.raises(ClientClosed):
                instance.check_usable()

    run(go)


def test_a_broker_that_is_mute_to_heartbeats_is_dropped_and_dialled_anew() -> None:
    async def go() -> None:
        async with a_place() as place:
            silent = [True]

            def answer(link: Link, command: Command) -> None:
                if not silent[0]:
                    link.reply(command)

            place.broker.answers[Request.HEART_BEAT] = answer
            instance = place.instance(request_timeout_ms=50)
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            await instance.open()
            silent[0] = False
            await place.broker.until(lambda: len(place.heartbeats()) > 1)

    run(go)


def test_the_cluster_is_known_without_topics_when_asked_for() -> None:
    async def go() -> None:
        async with a_place() as place:
            addresses = f'{{0:"{place.broker.address}"}}'
            body = (
                f'{{"brokerAddrTable":{{"b":{{"brokerAddrs":{addresses},"brokerName":"b"}}}},'
                '"clusterAddrTable":{"c":["b"]}}'
            )
            place.names.answers[Request.GET_BROKER_CLUSTER_INFO] = lambda link, command: link.reply(
                command, body=body.encode()
            )
            instance = place.instance()
            instance.heartbeats.add_producer("PG")
            await instance.watch_all_brokers()
            await instance.open()
            assert len(place.heartbeats()) == 1
            assert instance.address_of("b") == place.broker.address
            with pytest.raises(RouteMissing, match="'z'"):
                instance.address_of("z")

    run(go)


def test_a_cluster_that_has_no_broker_yet_is_asked_again_soon() -> None:
    async def go() -> None:
        async with a_place() as place:
            brokers: list[str] = []

            def answer(link: Link, command: Command) -> None:
                table = {
                    name: {"brokerAddrs": {"0": place.broker.address}, "brokerName": name}
                    for name in brokers
                }
                link.reply(command, body=msgspec.json.encode({"brokerAddrTable": table}))

            place.names.answers[Request.GET_BROKER_CLUSTER_INFO] = answer
            instance = place.instance()
            instance.heartbeats.add_producer("PG")
            instance.wants_all_brokers = True
            await instance.open()
            assert not place.heartbeats()
            brokers.append("b")
            await place.broker.until(place.heartbeats)

    run(go)


def test_wrong_addresses_and_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for wrong in ("nowhere", "host:", "host:0", "host:99999", ":9876", "a:1;b"):
        with pytest.raises(UsageError, match="'host:port'"):
            parse_client_options(wrong, {})
    with pytest.raises(UsageError, match="NAMESRV_ADDR"):
        parse_client_options(None, {})
    with pytest.raises(UsageError, match="route_interval_ms=0"):
        parse_client_options("a:1", {"route_interval_ms": 0})
    with pytest.raises(UsageError, match="connect_timeout_ms"):
        parse_client_options("a:1", {"nonsense": 1})
    monkeypatch.setenv("NAMESRV_ADDR", "a:1; b:2,a:1")
    assert parse_client_options(None, {}).name_servers == ("a:1", "b:2")


def test_what_nobody_answers_is_a_connect_failure_and_never_a_hang() -> None:
    async def go() -> None:
        async with a_place() as place, a_peer() as other:
            gone = other.address
            other.close()
            instance = place.instance()
            await instance.open()
            with pytest.raises(ConnectFailed):
                await instance.send_one_way(gone, 15)
            assert instance.now() > 0

    run(go)


def test_a_one_way_request_waits_for_a_broker_that_takes_no_data() -> None:
    async def go() -> None:
        async with a_place() as place:
            instance = place.instance(request_timeout_ms=20)
            await instance.open()
            await instance.send_one_way(place.broker.address, 15)
            connection = instance.pool.get_ready(place.broker.address)
            assert connection is not None
            connection.pause_writing()
            with pytest.raises(RequestTimeout, match="nothing more was written"):
                await instance.send_one_way(place.broker.address, 15)
            connection.resume_writing()
            await instance.send_one_way(place.broker.address, 15)
            await place.broker.until(lambda: place.broker.codes().count(15) == 2)

    run(go)


def test_a_broker_that_is_taken_for_a_name_server_is_told_apart() -> None:
    async def go() -> None:
        async with a_peer() as broker:
            broker.answers[Request.GET_ROUTEINFO_BY_TOPIC] = lambda link, request: link.reply(
                request, Response.REQUEST_CODE_NOT_SUPPORTED, remark="not supported"
            )
            instance = ClientInstance(parse_client_options(broker.address, {}))
            await instance.open()
            with pytest.raises(NoNameServer, match="is not a name server; is it a broker's"):
                await instance.route("T")
            await instance.close()

    asyncio.run(go())


def test_a_broker_is_dialled_again_although_too_much_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refusal came out of a timer, and no other was set: nobody came back."""

    async def go() -> None:
        async with a_place() as place:
            instance = place.instance()
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            await instance.open()
            presence, address = instance.heartbeats, place.broker.address
            monkeypatch.setattr(module, "TASKS_MAX", 0)
            presence._start_connecting(address)
            assert address in presence._redials
            monkeypatch.undo()
            presence._start_connecting(address)
            assert address not in presence._redials

    run(go)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no eager tasks")
def test_work_that_ends_at_once_is_not_under_way() -> None:
    """A program that did not wait in between had 10,000 tasks, although all had ended."""

    async def nothing() -> int:
        return 1

    async def go() -> None:
        factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009 - mypy knows 3.11
        asyncio.get_running_loop().set_task_factory(factory)
        async with a_place() as place:
            instance = place.instance()
            await instance.open()
            count = len(instance._tasks)
            assert await instance.spawn(nothing()) == 1
            assert len(instance._tasks) == count

    run(go)
