"""Foreign name server, own broker; own name server, foreign broker: a client sees no difference."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import wire
from .drivers import JavaDriver, unique
from .process import until
from .servers import EscrowServer, JavaBroker, JavaNameServer


@pytest.fixture(params=["foreign-broker", "foreign-names"])
def pair(
    request: pytest.FixtureRequest, peer: str, tmp_path: Path
) -> Iterator[tuple[str, JavaBroker | EscrowServer]]:
    """A name server's address and a broker of the other kind (of the same with --peer=java)."""
    wanted = str(request.param)
    names: JavaNameServer | EscrowServer
    broker: JavaBroker | EscrowServer
    address: str
    started: list[JavaNameServer | JavaBroker | EscrowServer] = []
    try:
        if peer == "escrow" and wanted == "foreign-broker":
            names = EscrowServer(tmp_path / "names", verb="nameserver")
            address = names.nameserver
        else:
            names = JavaNameServer(tmp_path / "names")
            address = names.address
        started.append(names)
        if peer == "escrow" and wanted == "foreign-names":
            broker = EscrowServer(
                tmp_path / "broker", verb="broker", nameserver=address, brokerName="broker-a"
            )
        else:
            broker = JavaBroker(tmp_path / "broker", address)
        started.append(broker)
        until("registered", lambda: "broker-a" in wire.registered_brokers(address), within_s=40)
        yield address, broker
    finally:
        for each in reversed(started):
            each.kill()


def test_client_works_through_the_pair(
    pair: tuple[str, JavaBroker | EscrowServer], java: JavaDriver
) -> None:
    nameserver, broker = pair
    topic = unique("auto")
    sent = java.producer(nameserver).send(topic, "through", keys="k")
    assert sent.status == "SEND_OK"
    consumer = java.consumer(nameserver, topic)
    assert consumer.received(1)[0].text == "through"
    listed = java.mqadmin("clusterList", "-n", nameserver)
    assert broker.address in listed
    made = unique("made")
    printed = java.mqadmin("updateTopic", "-n", nameserver, "-c", "DefaultCluster", "-t", made)
    assert "success" in printed
    until("route", lambda: wire.ask(nameserver, 105, {"topic": made}).code == 0)
    java.close_clients()
    broker.stop()
    until("unregistered", lambda: "broker-a" not in wire.registered_brokers(nameserver))
