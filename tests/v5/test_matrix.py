"""Clients of both protocols read what the other's have sent, and share topics and groups."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.interop import jars, wire
from tests.interop.drivers import JavaDriver
from tests.interop.process import until
from tests.interop.servers import EscrowServer

from .clients import JAVA, Client
from .places import topic

MISSING = jars.missing_tools("java", "javac", "mvn")
LONG = "x" * 20_000
COMPRESSIONS = ("ZLIB", "LZ4", "ZSTD")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]


@pytest.fixture(name="remoting", scope="module")
def make_remoting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    """The Java client of the remoting protocol."""
    driver = JavaDriver(jars.BROKER_RELEASE, tmp_path_factory.mktemp("remoting"))
    yield driver
    driver.stop()


def test_bodies_of_remoting_producers_are_read_whatever_packed_them(
    server: EscrowServer, client: Client, remoting: JavaDriver
) -> None:
    name = topic(server, f"{client.name}-packed")
    for kind in COMPRESSIONS:
        remoting.producer(server.nameserver, compressType=kind).send(name, kind + LONG)
    remoting.producer(server.nameserver).send(name, "plain")
    found = client.play(server, "receive", name, ESCROW_COUNT="4")
    assert found == sorted([f"{kind}*20000" for kind in COMPRESSIONS] + ["plain"])
    remoting.close_clients()


def test_bodies_of_v5_producers_are_read_by_remoting_consumers(
    server: EscrowServer, client: Client, remoting: JavaDriver
) -> None:
    name = topic(server, f"{client.name}-sent")
    assert client.play(server, "send", name) == ["sent"]
    consumer = remoting.consumer(server.nameserver, name)
    found = sorted(one.body.decode() for one in consumer.received(2))
    assert found == ["long" + LONG, "short"]
    remoting.close_clients()


def test_a_group_of_both_protocols_gets_each_message_once(
    server: EscrowServer, remoting: JavaDriver
) -> None:
    name, group = topic(server, "Shared"), "CG-Shared"
    pops = {"topic": name, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    assert wire.ask(server.address, 401, {}, json.dumps(pops).encode()).code == 0
    producer = remoting.producer(server.nameserver)
    sent: list[str] = []

    def send() -> None:
        sent.append(f"m{len(sent)}")
        producer.send(name, sent[-1])

    def is_shared() -> bool:
        send()
        return len(own.received()) > 10

    with JAVA.playing(server, "share", name) as program:
        send()
        program.wait_held()  # it has got one
        own = remoting.consumer(server.nameserver, name, group=group, clientRebalance=False)
        until("the other consumer is given messages too", is_shared)
        until(
            "all is handed out",
            lambda: wire.committed(server.address, group, name) == len(sent),
        )
        program.go_on()
        by_grpc = program.seen()
    by_remoting = [one.body.decode() for one in own.received(len(sent) - len(by_grpc))]
    assert sorted(by_remoting + by_grpc) == sorted(sent)
    remoting.close_clients()
