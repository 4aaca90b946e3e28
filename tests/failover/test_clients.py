"""Clients go on when their master is killed, without a restart: those of other makers. (RocketMQ's
Java client and ours are in every test of this folder.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.authority import etcd_servers
from tests.interop import jars
from tests.interop.drivers import ClientError, Driver, GoDriver, JavaDriver, Producer
from tests.interop.process import until
from tests.v5.clients import ALL, Client

from .group import NAME, Group, running

pytestmark = [pytest.mark.interop, pytest.mark.crash]

ROUTE_S = 45.0
"""The Go client asks for routes each half minute."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with running(tmp_path, transactionTimeOut=600_000) as group:
        yield group


def goes_on(producer: Producer, topic: str) -> bool:
    try:
        return producer.send(topic, b"after").status == "SEND_OK"
    except ClientError:
        return False


KINDS = [
    pytest.param(GoDriver, id="go", marks=pytest.mark.long),
    pytest.param(
        lambda folder: JavaDriver("4.9.8", folder), id="java-4.9.8", marks=pytest.mark.long
    ),
]


@pytest.mark.parametrize("make", KINDS)
def test_a_client_sends_and_consumes_at_the_next_master(
    group: Group, tmp_path: Path, make: Callable[[Path], Driver]
) -> None:
    if missing := jars.missing_tools("go", "java", "javac", "mvn"):
        pytest.skip(f"not on this machine: {missing}")
    group.make_topic("orders")
    driver = make(tmp_path)
    try:
        producer = driver.producer(group.nameserver)
        consumer = driver.consumer(group.nameserver, "orders")
        producer.send("orders", b"before")
        assert [each.body for each in consumer.received(1)] == [b"before"]
        group.master().kill()
        until("a send", lambda: goes_on(producer, "orders"), within_s=ROUTE_S)
        # What the former master had handed out may be redelivered before.
        until("it is received", lambda: b"after" in [each.body for each in consumer.received()])
    finally:
        driver.stop()


def test_mqadmin_sees_who_is_in_sync(group: Group, tmp_path: Path) -> None:
    if missing := jars.missing_tools("java", "javac", "mvn"):
        pytest.skip(f"not on this machine: {missing}")
    java = JavaDriver("5.5.0", tmp_path)
    try:
        master = group.master().clients.address
        where = ("-a", master, "-b", NAME)
        shown = ""

        def is_answered() -> bool:
            nonlocal shown
            shown = java.mqadmin("getSyncStateSet", *where)
            return "RemotingTimeoutException" not in shown  # mqadmin waits three seconds, not more

        until("the broker answers mqadmin in time", is_answered)
        assert f"#MasterAddr\t{master}" in shown, shown
        assert shown.count("InSyncReplica:") - shown.count("NotInSyncReplica:") == 3
        shown = java.mqadmin("getBrokerEpoch", "-n", group.nameserver, "-b", NAME)
        assert "Epoch: EpochEntry{epoch=1, startOffset=0" in shown
    finally:
        java.stop()


BY_ONE_ADDRESS = ("node",)
GIVES_UP = ("rust",)
"""Its client neither takes a list of addresses nor tries an END again."""


class Place(msgspec.Struct):
    """As programs of tests/v5 want it."""

    grpc: str
    store: Path


def test_clients_of_rocketmq_5_end_a_transaction_of_the_former_master(
    group: Group, tmp_path: Path
) -> None:
    clients: list[Client] = [each for each in ALL if not each.missing and each.name not in GIVES_UP]
    for client in clients:
        client.start()  # it may have to be built
    listed = ";".join(member.grpc.address for member in group.members)
    with ExitStack() as stack:
        programs = {}
        for client in clients:
            group.make_topic(client.name, "TRANSACTION")
            # The client for Node.js knows no lists of addresses.
            grpc = group.grpc.address if client.name in BY_ONE_ADDRESS else listed
            place = Place(grpc, tmp_path / "v5" / "store")
            programs[client.name] = stack.enter_context(
                client.playing(place, "endedLater", client.name)  # type: ignore[arg-type]
            )
            # One after the other: a client gives a slow start up, as on a busy machine.
            programs[client.name].wait_held()
        master = group.master()
        master.kill()
        until("another master", lambda: group.master() is not master)
        for program in programs.values():
            program.go_on()
        assert {name: program.seen() for name, program in programs.items()} == {
            name: ["kept"] for name in programs
        }
