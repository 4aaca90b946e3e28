"""Masters and slaves, ours and RocketMQ's mixed: after quiet both have the same log and the same
queues, byte by byte, over restarts and kills of either."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from escrowmq import Credentials, Producer
from tests.harness.parameters import quick

from . import jars, wire
from .drivers import JavaDriver
from .process import until
from .servers import EscrowServer, JavaBroker, JavaNameServer

NEW_RELEASE: Final = "5.5.0"
"""The newest whose broker is published whole."""

JAVAS: Final = (f"java-{jars.BROKER_RELEASE}", f"java-{NEW_RELEASE}")
PAIRS: Final = [
    ("escrow", "escrow"), ("escrow", JAVAS[0]), ("escrow", JAVAS[1]), (JAVAS[0], "escrow"),
    (JAVAS[1], "escrow"),
]  # fmt: skip
"""Each role of RocketMQ with each of its releases."""


SETTINGS: Final[dict[str, Any]] = {
    "brokerName": "pair",
    "mappedFileSizeCommitLog": 1 << 20,
    "haSendHeartbeatInterval": 1_000,
}
QUIET_S: Final = 90

Broker = JavaBroker | EscrowServer
HA_STATUS, RUNTIME = 907, 28


@dataclasses.dataclass
class Group:
    """A name server, a master and a slave of one name, each of its kind."""

    folder: Path
    kinds: tuple[str, str]
    nameserver: str
    master_settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    slave_settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    brokers: dict[str, Broker] = dataclasses.field(default_factory=dict)

    def start(self, role: str) -> Broker:
        """Start one of them, again perhaps: on a new port, with the folder that it had."""
        is_slave = role == "slave"
        settings = SETTINGS | (
            {"brokerRole": "SLAVE", "brokerId": 1, **self.slave_settings}
            if is_slave
            else {"brokerRole": "ASYNC_MASTER", **self.master_settings}
        )
        kind = self.kinds[is_slave]
        folder = self.folder / role
        store = folder / "store"
        if kind == "escrow":
            folder.mkdir(exist_ok=True)
            self.brokers[role] = EscrowServer(
                folder, verb="broker", nameserver=self.nameserver, store=store, **settings
            )
        else:
            release = kind.partition("-")[2]
            self.brokers[role] = JavaBroker(
                folder, self.nameserver, store=store, release=release, **settings
            )
        # By its address: a slave of Java's is awaited by the name that its master has registered.
        address = self.brokers[role].address.encode()
        until(
            f"the {role} is registered",
            lambda: address in wire.ask(self.nameserver, wire.CLUSTER_INFO).body,
            within_s=QUIET_S,
        )
        return self.brokers[role]

    def end(self, role: str, *, kills: bool = False) -> None:
        """Stop one of them, or kill it."""
        broker = self.brokers.pop(role)
        if kills:
            broker.kill()
        else:
            broker.stop()

    def send(self, count: int, *, size: int = 700) -> None:
        """Messages, and transactions with both ends."""
        chance = random.Random(count)  # what cannot be compressed
        with Producer(self.nameserver, group="pair-producers") as producer:
            for number in range(count):
                producer.send("pairs", chance.randbytes(size), keys=[f"k{number}"])
                if number % 5 == 0:
                    with producer.transaction("pairs", b"committed"):
                        pass

    def figures(self, role: str) -> dict[str, str]:
        """What a broker says of itself; RocketMQ's says nothing while its log is empty."""
        reply = wire.ask(self.brokers[role].address, RUNTIME)
        table: dict[str, str] = json.loads(reply.body)["table"] if reply.code == 0 else {}
        return table

    def end_of(self, role: str) -> int:
        """Where its log ends; -1 while it does not tell."""
        return int(self.figures(role).get("commitLogMaxOffset", -1))

    def until_same(self) -> int:
        """Wait for quiet; where both logs end then."""

        def is_same() -> bool:
            return 0 < self.end_of("master") == self.end_of("slave")

        until("both logs end alike", is_same, within_s=QUIET_S)
        return self.end_of("master")

    def check_same(self, end: int) -> None:
        """Both have the same files of the log up to an offset, and the same queues."""
        ours, theirs = (self.folder / role / "store" for role in ("master", "slave"))
        names = {path.name for path in (theirs / "commitlog").iterdir() if int(path.name) < end}
        assert names
        size = SETTINGS["mappedFileSizeCommitLog"]
        for name in names:
            parts = [(s / "commitlog" / name).read_bytes() for s in (ours, theirs)]
            count = min(size, end - int(name))
            assert parts[0][:count] == parts[1][:count], name
        is_whole = "0" * 20 in names
        queues = {path.relative_to(theirs) for path in (theirs / "consumequeue").rglob("0*")}
        files = [path for path in queues if (theirs / path).is_file()]
        assert any(path.parts[1] == "pairs" for path in files)
        for path in files:
            found = [(s / path).read_bytes().rstrip(b"\0") for s in (ours, theirs)]
            assert found[0] == found[1] if is_whole else _ends_alike(*found), path


def _ends_alike(master: bytes, slave: bytes) -> bool:
    """Units of a queue whose first messages the slave does not have: gaps stand for them."""
    gap = bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
    at = 0
    while slave[at : at + 20] == gap:
        at += 20
    return master[at:] == slave[at:]


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """RocketMQ's name server, or ours."""
    started: dict[str, JavaNameServer | EscrowServer] = {}

    def address(kind: str) -> str:
        if kind not in started:
            folder = tmp_path_factory.mktemp("names")
            started[kind] = (
                EscrowServer(folder, verb="nameserver")
                if kind == "escrow"
                else JavaNameServer(folder)
            )
        found = started[kind]
        return found.nameserver if isinstance(found, EscrowServer) else found.address

    yield address
    for server in started.values():
        server.stop()


@pytest.fixture
def group(
    request: pytest.FixtureRequest, tmp_path: Path, nameserver: Callable[[str], str]
) -> Iterator[Group]:
    """A group of the kinds that the test names; its name server is of the master's."""
    kinds: tuple[str, str] = request.param
    found = Group(tmp_path, kinds, nameserver("escrow" if kinds[0] == "escrow" else "java"))
    yield found
    for role in [*found.brokers]:
        found.end(role, kills=True)


def _name(kinds: tuple[str, str]) -> str:
    return f"{kinds[1]}-behind-{kinds[0]}"


@pytest.mark.parametrize("group", quick(PAIRS[:1], of=PAIRS), indirect=True, ids=_name)
def test_the_copy_is_the_same_over_restarts_and_kills(group: Group) -> None:
    group.start("master")
    group.send(40)
    group.start("slave")
    group.send(10)
    group.check_same(group.until_same())
    # The slave is killed in the middle of a stream, the master after that.
    group.send(300, size=4_000)
    group.end("slave", kills=True)
    group.send(20)
    group.start("slave")
    group.check_same(group.until_same())
    group.end("master", kills=True)
    group.start("master")
    group.send(20)
    group.check_same(group.until_same())
    group.end("slave")
    group.send(20)
    group.start("slave")
    group.check_same(group.until_same())


@pytest.mark.parametrize("group", quick(PAIRS[:1], of=PAIRS), indirect=True, ids=_name)
def test_an_empty_slave_joins_a_master_of_several_files(group: Group) -> None:
    group.start("master")
    group.send(400, size=8_000)
    # RocketMQ's broker now and then does not tell, right behind so many messages.
    until("several files", lambda: group.end_of("master") > 3 << 20)
    group.start("slave")
    end = group.until_same()
    group.check_same(end)
    begin = int(group.figures("slave")["commitLogMinOffset"])
    size = SETTINGS["mappedFileSizeCommitLog"]
    if group.kinds == ("escrow", "escrow"):
        assert begin == 0, "between our own all is copied"
    else:
        assert begin == end - end % size
    group.end("slave")
    group.send(20)
    group.start("slave")
    group.check_same(group.until_same())


@pytest.mark.parametrize("group", quick(PAIRS[:2], of=PAIRS[:3]), indirect=True, ids=_name)
def test_senders_wait_for_a_slave_of_rocketmqs(group: Group) -> None:
    group.master_settings = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "slaveTimeout": 500,
    }
    group.start("master")
    with Producer(group.nameserver, group="waiting") as producer:
        assert producer.send("pairs", b"alone").status.name == "FLUSH_SLAVE_TIMEOUT"
        group.start("slave")
        until(
            "the slave counts",
            lambda: producer.send("pairs", b"both").status.name == "OK",
            within_s=QUIET_S,
        )
        group.end("slave", kills=True)
        assert producer.send("pairs", b"alone").status.name == "FLUSH_SLAVE_TIMEOUT"
        group.start("slave")
        until(
            "the slave counts again",
            lambda: producer.send("pairs", b"both").status.name == "OK",
            within_s=QUIET_S,
        )
    status = json.loads(wire.ask(group.brokers["master"].address, HA_STATUS).body)
    assert status["inSyncSlaveNums"] == 1


@pytest.mark.parametrize("group", quick(PAIRS[-1:], of=PAIRS[3:]), indirect=True, ids=_name)
def test_tables_of_rocketmqs_master_are_copied(group: Group) -> None:
    group.start("master")
    slave = group.start("slave")
    group.send(3)
    group.until_same()

    def has_topic() -> bool:
        return b'"pairs"' in wire.ask(slave.address, 21).body

    until("the topic is there", has_topic, within_s=10)
    reply = wire.ask(slave.address, 310, {"b": "pairs", "a": "g", "c": "T", "d": "4", "e": "0"})
    assert reply.code == 14
    assert "slave" in (reply.remark or "")


@pytest.mark.parametrize("group", [("escrow", "escrow")], indirect=True, ids=_name)
def test_mqadmin_sees_master_and_slave(group: Group, java: JavaDriver) -> None:
    master, slave = group.start("master"), group.start("slave")
    group.send(3)
    end = group.until_same()
    rows = java.mqadmin("clusterList", "-n", group.nameserver).splitlines()
    found = {(row.split()[2], row.split()[3]) for row in rows if " pair " in row}
    assert found == {("0", master.address), ("1", slave.address)}
    status = java.mqadmin("haStatus", "-n", group.nameserver, "-b", master.address)
    assert str(end) in status
    assert re.search(r"127\.0\.0\.1:\d+", status)
    status = java.mqadmin("haStatus", "-n", group.nameserver, "-b", slave.address)
    assert str(end) in status
    figures = java.mqadmin("brokerStatus", "-n", group.nameserver, "-b", slave.address)
    assert re.search(rf"commitLogMaxOffset\s*:\s*{end}", figures)


@pytest.mark.parametrize("group", [("escrow", "escrow")], indirect=True, ids=_name)
def test_a_half_that_no_slave_has_is_rolled_back_by_javas_producer(
    group: Group, java: JavaDriver
) -> None:
    group.master_settings = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "slaveTimeout": 500,
    }
    group.start("master")
    producer = java.transaction_producer(group.nameserver)
    sent = producer.transaction("pairs", "half", keys="half", outcome="COMMIT")
    assert sent.status == "FLUSH_SLAVE_TIMEOUT"
    assert producer.send("pairs", "plain", keys="plain").status == "FLUSH_SLAVE_TIMEOUT"
    consumer = java.consumer(group.nameserver, "pairs")
    assert [one.keys for one in consumer.received(1)] == ["plain"]
    group.start("slave")
    until(
        "the slave counts",
        lambda: producer.send("pairs", "both", keys="both").status == "SEND_OK",
        within_s=10,
    )
    sent = producer.transaction("pairs", "half", keys="whole", outcome="COMMIT")
    assert sent.status == "SEND_OK"
    until("it is delivered", lambda: "whole" in {one.keys for one in consumer.received()})
    assert "half" not in {one.keys for one in consumer.received()}


@pytest.mark.parametrize("group", [("escrow", "escrow")], indirect=True, ids=_name)
def test_javas_consumers_read_from_a_slave_while_the_master_is_gone(
    group: Group, java: JavaDriver
) -> None:
    group.slave_settings = {"slaveReadEnable": True}
    group.start("master")
    group.start("slave")
    group.send(10)
    group.until_same()
    group.end("master", kills=True)
    consumer = java.consumer(group.nameserver, "pairs")
    assert len(consumer.received(12)) == 12, "ten messages, and two of transactions"


@pytest.mark.parametrize("group", [("escrow", "escrow")], indirect=True, ids=_name)
def test_a_slave_proves_itself_where_there_are_accounts(group: Group) -> None:
    name, secret = "root", "a-secret-of-twenty-characters"
    user = json.dumps({"username": name, "password": secret})
    inner = json.dumps({"accessKey": name, "secretKey": secret})
    group.master_settings = {
        "authenticationEnabled": True,
        "initAuthenticationUser": user,
        "innerClientAuthenticationCredentials": inner,
        "escrowHaTickets": True,
    }
    group.slave_settings = {"innerClientAuthenticationCredentials": inner}
    group.start("master")
    signed = Credentials(name, secret)
    with Producer(group.nameserver, group="signed", credentials=signed) as producer:
        producer.send("pairs", b"body")
        slave = group.start("slave")
        until(
            "the slave has it",
            lambda: group.end_of("slave") > 0 and b'"pairs"' in wire.ask(slave.address, 21).body,
            within_s=10,
        )
    group.end("slave")
    group.slave_settings = {}
    slave = group.start("slave")
    until(
        "it says that it is not let in",
        lambda: b"gives this slave nothing" in wire.ask(slave.address, HA_STATUS).body,
        within_s=10,
    )
