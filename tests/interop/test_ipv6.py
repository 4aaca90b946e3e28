"""Brokers that listen on an IPv6 address, alone on it: addresses of 16 bytes everywhere."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import CLIENTS
from .drivers import Driver, JavaDriver, unique
from .servers import EscrowServer, JavaBroker, JavaNameServer

HOST = "::1"
SETTINGS: dict[str, Any] = {
    "bindAddress": HOST,
    "brokerIP1": HOST,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 4_000,
}


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind((HOST, 0))
        except OSError:
            return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="no ::1 on this machine")


@pytest.fixture(name="nameserver", scope="module")
def run_broker(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the name server of a broker on ::1."""
    folder = tmp_path_factory.mktemp("ipv6")
    names: JavaNameServer | EscrowServer
    broker: JavaBroker | EscrowServer
    if peer == "java":
        names = JavaNameServer(folder / "namesrv")
        nameserver = names.address
        broker = JavaBroker(folder / "broker", nameserver, **{**SETTINGS, "brokerIP2": HOST})
    else:
        names = EscrowServer(folder / "namesrv", verb="nameserver")
        nameserver = names.address
        broker = EscrowServer(folder / "broker", verb="broker", nameserver=nameserver, **SETTINGS)
    yield nameserver
    broker.kill()
    names.kill()


def test_java_client_sends_and_receives(nameserver: str, java: JavaDriver) -> None:
    topic = unique("T")
    sent = java.producer(nameserver).send(topic, "hello", keys="k")
    host = socket.inet_pton(socket.AF_INET6, HOST).hex().upper()
    assert sent.offset_msg_id is not None
    assert (len(sent.offset_msg_id), sent.offset_msg_id[: len(host)]) == (56, host)
    (got,) = java.consumer(nameserver, topic).received(1)
    assert (got.text, got.keys, got.offset_msg_id) == ("hello", "k", sent.offset_msg_id)


def test_message_is_found_by_its_id_and_key(nameserver: str, java: JavaDriver) -> None:
    topic = unique("T")
    sent = java.producer(nameserver).send(topic, "hello", keys="k")
    admin = java.admin(nameserver)
    found = admin.call("viewMessage", topic, sent.offset_msg_id)
    assert (found["topic"], found["properties"]["KEYS"]) == (topic, "k")
    admin.close()


def test_transaction_is_checked_and_committed(nameserver: str, java: JavaDriver) -> None:
    topic = unique("T")
    producer = java.transaction_producer(nameserver)
    producer.transaction(topic, "late", keys="k", outcome="UNKNOWN", checks=["COMMIT"])
    producer.transaction(topic, "at once", keys="n", outcome="COMMIT")
    got = java.consumer(nameserver, topic).received(2, within_s=60)
    assert {one.text for one in got} == {"late", "at once"}


def test_failed_message_comes_again(nameserver: str, java: JavaDriver) -> None:
    topic = unique("T")
    consumer = java.consumer(nameserver, topic, failures={"k": 1})
    java.producer(nameserver).send(topic, "again", keys="k")
    assert [one.keys for one in consumer.received(2, within_s=60)] == ["k", "k"]


# Not the Go client: it takes an address apart as net.Dial does, to which RocketMQ's own form
# `::1:10911`, which both brokers register, has too many colons.
@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "go"], indirect=True)
def test_other_clients_send_and_receive(nameserver: str, client: Driver) -> None:
    topic = unique("T")
    client.producer(nameserver).send(topic, "hello", keys="k")
    (got,) = client.consumer(nameserver, topic).received(1)
    assert got.text == "hello"
