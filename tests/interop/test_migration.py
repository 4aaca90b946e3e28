"""From a pair of RocketMQ's brokers to a broker of ours and back, under load, by the commands of
docs/replication.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from escrowmq.drill import history
from escrowmq.drill.history import AcknowledgedEnd, AcknowledgedSend, ReadMessage
from escrowmq.drill.judge import find_violations
from tests.crash.link import Link, read_queue
from tests.failover.clients import Clients, sending

from . import wire
from .ports import free_port
from .process import Process, until
from .servers import START_S, JavaBroker, JavaNameServer
from .test_replication import NEW_RELEASE

PAGE: Final = Path(__file__).parents[2] / "docs" / "replication.md"
TOPIC: Final = "moved"
READERS: Final = "CG-reader"
QUEUES: Final = 4
LEAST: Final = 20
SERVED_S: Final = 90.0
SETTINGS: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "haSendHeartbeatInterval": 1_000,
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 1_000,
}
JAVA: Final[dict[str, Any]] = SETTINGS | {
    "brokerName": "pair",
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    # RocketMQ writes that a transaction has ended up to three seconds later, and asks again about
    # one that is older than this and has not ended by what it finds then: it doubles it.
    "transactionTimeOut": 10_000,
    "release": NEW_RELEASE,
}
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": 1}


def commands() -> list[list[str]]:
    """The commands of the page that start ours: as a slave, as a master, as one that waits."""
    _, _, section = PAGE.read_text().partition("## From a pair of RocketMQ's to ours, and back")
    section, _, _ = section.partition("\n## ")
    found = [
        line.split() for line in re.findall(r"^    escrowmq (broker .*)$", section, re.MULTILINE)
    ]
    assert len(found) == 3
    return found


class Pair(msgspec.Struct):
    """A name server, and brokers of one name that come and go."""

    folder: Path
    nameserver: str
    stack: ExitStack
    port: int = msgspec.field(default_factory=free_port)

    @property
    def address(self) -> str:
        """Of ours."""
        return f"127.0.0.1:{self.port}"

    def java(self, name: str, **settings: Any) -> JavaBroker:
        """RocketMQ's broker in a folder of this name."""
        folder = self.folder / name
        broker = JavaBroker(folder, self.nameserver, store=folder / "store", **(JAVA | settings))
        self.stack.callback(broker.kill)
        until(f"{name} is registered", lambda: self.knows(broker.address), within_s=SERVED_S)
        return broker

    def ours(self, command: list[str]) -> Process:
        """Ours, by a command of the page."""
        told = {
            "127.0.0.1:9876": self.nameserver, "10931": str(self.port),
            "ours": str(self.folder / "ours"),
        }  # fmt: skip
        words = [told.get(word, word) for word in command]
        for key, value in SETTINGS.items():
            words += ["--set", f"{key}={value}"]
        line = [sys.executable, "-m", "escrowmq", *words]
        process = Process(line, folder=self.folder, name="escrowmq")
        self.stack.callback(process.kill)
        process.wait_line("escrowmq ready ", within_s=START_S)
        until("ours is registered", lambda: self.knows(self.address), within_s=SERVED_S)
        return process

    def knows(self, address: str) -> bool:
        """Whether the name server knows a broker at an address."""
        return address.encode() in wire.ask(self.nameserver, 106).body

    def wait_even(self, address: str) -> None:
        """Until the slave at an address has everything, as `cluster status` says."""

        def is_even() -> bool:
            command = [sys.executable, "-m", "escrowmq", "cluster", "status", "pair", "--json"]
            shown = subprocess.run(
                [*command, "-n", self.nameserver], capture_output=True, text=True, check=True
            )
            members = json.loads(shown.stdout)["members"]
            return any(m["address"] == address and m["behind"] == 0 for m in members)

        until("it is in step", is_even, within_s=SERVED_S)

    def wait_offsets(self, address: str) -> None:
        """Until a slave has readers' offsets that are not much older than this."""
        before = len(self.reads())
        until(
            "it has the readers' offsets",
            lambda: wire.committed(address, READERS, TOPIC) >= before // 2,
            within_s=SERVED_S,
        )

    def reads(self) -> list[ReadMessage]:
        """What the consumer was given so far."""
        return [
            e
            for e in history.read_events([self.folder / "reader.history"])
            if isinstance(e, ReadMessage)
        ]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    names = JavaNameServer(tmp_path / "names")
    with ExitStack() as stack:
        stack.callback(names.stop)
        yield Pair(tmp_path, names.address, stack)


def served(clients: Clients, since_ns: int) -> float:
    """Wait until all senders are served again; how long the first of them waited, in s."""
    clients.wait_since(since_ns, within_s=SERVED_S)
    after = [a.end_ns for s in clients.senders for a in s.tail.acknowledged()]
    return (min(ns for ns in after if ns > since_ns) - since_ns) / 1e9


def read_since(pair: Pair, count: int) -> None:
    """The consumer goes on at its offsets: it is given what is new, and of the rest no more than
    what it had read in the last seconds."""
    until("the reader goes on", lambda: len(pair.reads()) > count + LEAST, within_s=SERVED_S)
    before = {(r.queue, r.offset) for r in pair.reads()[:count]}
    again = [r for r in pair.reads()[count:] if (r.queue, r.offset) in before]
    assert len(again) < count / 2


@pytest.mark.long
def test_to_ours_and_back_nothing_acknowledged_is_lost_or_doubled(pair: Pair) -> None:
    as_slave, as_master, as_waiting_master = commands()
    master, slave = pair.java("m"), pair.java("s", **SLAVE)
    made = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES),
        "writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert wire.ask(master.address, 17, made).code == 0
    until("a route", lambda: wire.ask(pair.nameserver, 105, {"topic": TOPIC}).code == 0)
    with sending(pair, TOPIC, (NEW_RELEASE,)) as clients:  # type: ignore[arg-type]
        clients.wait_for(LEAST, within_s=SERVED_S)
        pair.wait_even(slave.address)
        slave.stop()
        command = ["cp", "-a", "--sparse=always", str(slave.store), str(pair.folder / "ours")]
        subprocess.run(command, check=True)
        ours = pair.ours(as_slave)
        clients.wait_for(LEAST, within_s=SERVED_S)
        pair.wait_even(pair.address)
        pair.wait_offsets(pair.address)

        stopped_ns, count = time.monotonic_ns(), len(pair.reads())
        master.kill()
        assert ours.stop() == 0
        ours = pair.ours(as_master)
        assert served(clients, stopped_ns) < 10
        clients.wait_for(LEAST, within_s=SERVED_S)
        read_since(pair, count)

        slave = pair.java("s", **SLAVE)
        pair.wait_even(slave.address)
        assert ours.stop() == 0
        ours = pair.ours(as_waiting_master)
        clients.wait_for(LEAST, within_s=SERVED_S)
        pair.wait_even(slave.address)
        pair.wait_offsets(slave.address)

        stopped_ns, count = time.monotonic_ns(), len(pair.reads())
        ours.kill()
        slave.kill()  # RocketMQ's stop takes a quarter of a minute
        master = pair.java("s", inSyncReplicas=1)
        served(clients, stopped_ns)
        clients.wait_for(LEAST, within_s=SERVED_S)
        read_since(pair, count)
        findings = judged(pair, clients, master.address)
    assert findings == []


def judged(pair: Pair, clients: Clients, master: str) -> list[str]:
    """What is wrong, of all that clients were told, when everything has its end."""
    for sender in clients.senders:
        sender.stop()
    events = [e for sender in clients.senders for e in sender.tail.look()]
    stored = {e.key for e in events if isinstance(e, AcknowledgedSend) and e.end_ns}
    wanted = {
        e.transaction for e in events if isinstance(e, AcknowledgedEnd) and e.outcome == "commit"
    }
    wanted = (
        wanted | {e.key for e in events if isinstance(e, AcknowledgedSend) and not e.transaction}
    ) & stored

    def has_all() -> bool:
        return wanted <= {each.key for each in pair.reads()}

    until("the reader has been given all", has_all, within_s=SERVED_S)
    final = pair.folder / "final.history"
    link = Link(master)
    with final.open("wb") as file:
        for queue in range(QUEUES):
            for each in read_queue(link, TOPIC, queue):
                place = queue, each.queue_offset, each.properties["KEYS"], each.log_offset
                history.append_event(file, ReadMessage(TOPIC, *place))
    link.close()
    return [
        str(finding) for finding in find_violations(history.read_events([*clients.files, final]))
    ]
