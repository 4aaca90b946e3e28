"""Members in Go, in an older Java and in Python in one group: each queue has one reader."""

import collections
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import escrowmq
from tests.interop import jars
from tests.interop.drivers import Consumer, Driver, GoDriver, JavaDriver, unique
from tests.interop.process import until
from tests.interop.servers import Server

from .conftest import new_topic
from .test_consume import FAST, Seen

MISSING = jars.missing_tools("java", "javac", "mvn", "go")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]
QUEUES = 12
Reads = Callable[[], list[tuple[bytes, int]]]
"""Bodies that a member was given so far, and from which queue."""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    """The official Go client, and a Java client of an older release."""
    folder: Path = tmp_path_factory.mktemp("drivers")
    started: list[Driver] = [GoDriver(folder), JavaDriver("4.9.8", folder)]
    yield started
    for driver in started:
        driver.stop()


class Group:
    """Members by name, and rounds of one message to each queue."""

    def __init__(self, server: Server, topic: str, producer: escrowmq.Producer) -> None:
        self.members: dict[str, Reads] = {}
        self._broker_name = server.broker_name
        self._topic = topic
        self._producer = producer
        self._rounds_count = 0

    def round(self) -> dict[int, list[str]]:
        """Who was given the message of each queue."""
        self._rounds_count += 1
        mark = b"%d:" % self._rounds_count
        for queue_id in range(QUEUES):
            queue = escrowmq.MessageQueue(self._topic, self._broker_name, queue_id)
            self._producer.send(self._topic, mark + b"%d" % queue_id, queue=queue)

        def look() -> dict[int, list[str]] | None:
            found: dict[int, list[str]] = collections.defaultdict(list)
            for name, reads in self.members.items():
                for body, queue_id in reads():
                    if body.startswith(mark):
                        found[queue_id].append(name)
            return dict(found) if len(found) == QUEUES else None

        return until("a message of each queue", look)

    def is_shared(self, found: dict[int, list[str]]) -> bool:
        """Whether every queue has one reader, and every member as many queues."""
        readers = collections.Counter(name for names in found.values() for name in names)
        share = QUEUES // len(self.members)
        return dict(readers) == dict.fromkeys(self.members, share)

    def settle(self) -> None:
        """Rounds until the queues are shared out, and one more in which nothing changes."""
        until("fair shares", lambda: self.is_shared(self.round()), within_s=60)
        assert self.is_shared(self.round())


def test_queues_are_divided_without_overlap_or_gap_as_members_come_and_go(
    server: Server, foreign: list[Driver]
) -> None:
    topic, group_name = new_topic(server, queues=QUEUES), unique("CG")
    with escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        group = Group(server, topic, producer)
        ours: list[escrowmq.Consumer] = []
        for number in range(2):
            seen = Seen()
            ours.append(
                escrowmq.Consumer(
                    server.nameserver, group=group_name, topic=topic, handler=seen, **FAST
                )
            )
            group.members[f"ours {number}"] = reads_of_ours(seen)
        group.settle()
        theirs = {}
        for driver in foreign:
            member = driver.consumer(
                server.nameserver, topic, group=group_name,
                consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
            )  # fmt: skip
            theirs[driver.name] = member
            group.members[driver.name] = reads_of(member)
        group.settle()
        theirs["go"].close(wait=True)
        del group.members["go"]
        group.settle()
        ours[0].close()
        del group.members["ours 0"]
        group.settle()
        theirs["java-4.9.8"].close(wait=True)
        ours[1].close()


def reads_of_ours(seen: Seen) -> Reads:
    return lambda: [(message.body, message.queue_id) for message in list(seen.messages)]


def reads_of(member: Consumer) -> Reads:
    return lambda: [(message.body, message.queue_id) for message in member.received()]
