"""The reader of announcements, when its Redis server has lost its data at an odd moment: everything
is read again, or commits that were lost would be known to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis

import escrowmq
from escrowmq.base.message import SysFlag
from escrowmq.client.announced_commits import Member
from escrowmq.client.client_settings import Credentials
from escrowmq.compensation import AnnouncementReader, RedisSets, Worker, consuming
from escrowmq.testing import Account, Broker
from tests.interop.process import until

from .services import RedisServer, is_all_read

COUNT = 8
TOPIC = "escrow-announced"


class Idle:
    """A business that has done nothing: all that is announced is lost."""

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        raise AssertionError(message)

    def done_since(self, mark: str | None) -> tuple[list[Member], str]:
        return [], "0"


class Announced:
    """A topic with announcements, and readers of it."""

    def __init__(self, nameserver: str, server: RedisServer) -> None:
        self.server = server
        self.sets = RedisSets(server.url)
        self._nameserver = nameserver
        self._readers: list[AnnouncementReader] = []
        self.admin = escrowmq.Admin(nameserver)
        self.admin.topics.create(TOPIC, queues=2)
        self.send("id", COUNT)

    def send(self, name: str, count: int) -> None:
        """Announce so many commits."""
        with escrowmq.Producer(self._nameserver, group="orders") as producer:
            for number in range(count):
                producer.send(TOPIC, str(Member(f"{name}-{number}", "paid")).encode())

    def new_reader(self) -> AnnouncementReader:
        reader = AnnouncementReader(self._nameserver, sets=self.sets, business=Idle())
        self._readers.append(reader)
        return reader

    def close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def until_all_are_in_the_set(self) -> None:
        until("all are announced", lambda: self.sets.counts()[0] == COUNT)
        until("all are kept", lambda: is_all_read(self.admin))

    def read_once(self) -> None:
        """A reader reads all, and is closed."""
        self.new_reader()
        self.until_all_are_in_the_set()
        self.close_readers()

    def recreate_topic(self, count: int) -> None:
        """Delete the topic, create it again, and announce so many commits in it."""
        self.admin.topics.delete(TOPIC)
        self.admin.topics.create(TOPIC, queues=2)
        self.send("other", count)

    def lose_data(self) -> None:
        self.server.kill()
        self.server.lose_data()
        self.server.start()


@pytest.fixture
def announced(forgetful: Callable[[], str], redis_server: RedisServer) -> Iterator[Announced]:
    found = Announced(forgetful(), redis_server)
    yield found
    found.close_readers()
    found.admin.close()


def test_a_reader_that_starts_with_an_empty_server_reads_everything_again(
    announced: Announced,
) -> None:
    announced.read_once()
    announced.lose_data()
    announced.new_reader()
    announced.until_all_are_in_the_set()


def test_readers_with_nothing_to_do_notice_that_the_data_is_gone(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 200)
    announced.new_reader()
    announced.until_all_are_in_the_set()
    announced.lose_data()
    until("all are announced again", lambda: count_of(announced.sets) == COUNT)


def test_a_reader_that_notices_later_than_another_reads_its_queues_again(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 3_600_000)
    late = announced.new_reader()
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 200)
    announced.new_reader()
    until("each has a queue", lambda: len(late._consumer.queues()) == 1)
    announced.until_all_are_in_the_set()
    announced.lose_data()
    until("the one has noticed", lambda: announced.sets.is_there() and announced.sets.is_whole())
    late._mark_at_ms = 0
    until("all are announced again", lambda: count_of(announced.sets) == COUNT)


def count_of(sets: RedisSets) -> int:
    """How many are announced; connections of the server that died fail once."""
    return sets.counts()[0] if sets.is_there() else -1


ADMIN = Account("admin-1", "secret-34", is_admin=True)


def a_reader(right: str) -> Account:
    return Account("reader-1", "secret-12", topics={TOPIC: right}, groups={TOPIC: "SUB"})


def test_a_reader_whose_right_is_withdrawn_says_so_and_goes_on_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    """Its thread ended, and nobody noticed that nothing was announced any more."""
    sets = RedisSets(redis_server.url)
    with Broker(accounts=[a_reader("SUB"), ADMIN]) as broker:
        broker.create_topic(TOPIC)
        signs = Credentials("admin-1", "secret-34")
        with escrowmq.Producer(broker.nameserver, group="orders", credentials=signs) as producer:
            reader = AnnouncementReader(
                broker.nameserver,
                sets=sets,
                business=Idle(),
                credentials=Credentials("reader-1", "secret-12"),
            )
            producer.send(TOPIC, b"id-1@paid")
            until("one is announced", lambda: sets.counts()[0] == 1)
            broker.set_accounts([a_reader("DENY"), ADMIN])
            until("it fails", lambda: TOPIC in reader.failure)
            broker.set_accounts([a_reader("SUB"), ADMIN])
            producer.send(TOPIC, b"id-2@paid")
            until("the other is announced", lambda: sets.counts()[0] == 2)
            until("it works", lambda: not reader.failure)
            reader.close()


def test_a_queue_that_is_shorter_than_it_was_is_read_all_the_same(announced: Announced) -> None:
    """Its topic was deleted and created again; nothing in it was read before."""
    for number in range(2):
        announced.sets.note_begun(f"{TOPIC}/broker-a/{number}", 1_000)
    announced.new_reader()
    announced.until_all_are_in_the_set()


def test_a_topic_that_was_recreated_and_is_longer_is_read_from_its_beginning(
    announced: Announced,
) -> None:
    """As many announcements as the old one had were taken for those that were read before."""
    announced.read_once()
    announced.recreate_topic(3 * COUNT)
    announced.new_reader()
    until("all are announced", lambda: announced.sets.counts()[0] == 4 * COUNT)


def test_a_queue_that_is_assigned_after_the_check_is_checked_before_it_is_read(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced.read_once()
    announced.recreate_topic(3 * COUNT)
    check = AnnouncementReader._check_positions
    readers: list[AnnouncementReader] = []

    def check_too_early(reader: AnnouncementReader) -> None:
        if readers:
            check(reader)
        else:
            until("it has its queues", lambda: len(reader._consumer.queues()) == 2)
            readers.append(reader)

    monkeypatch.setattr(AnnouncementReader, "_check_positions", check_too_early)
    announced.new_reader()
    until("all are announced", lambda: announced.sets.counts()[0] == 4 * COUNT, within_s=20)


@pytest.mark.parametrize("count", [COUNT // 2, COUNT, 3 * COUNT])
def test_a_topic_that_is_recreated_while_it_is_read_is_read_from_its_beginning(
    announced: Announced, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The reader went on from where it was, or from the new end if that was before it."""
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 200)
    reader = announced.new_reader()
    announced.until_all_are_in_the_set()
    until("it knows the queues", lambda: len(reader._births) == 2)
    announced.recreate_topic(count)
    until("all are announced", lambda: announced.sets.counts()[0] == COUNT + count, within_s=20)


def test_a_reader_pauses_if_the_server_goes_before_a_queue_is_compared(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It received the same announcements ten times a second, and was not paused."""
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 3_600_000)
    reader = announced.new_reader()
    announced.until_all_are_in_the_set()
    assert not reader.is_paused
    announced.server.kill()
    reader._checked_queues.clear()
    until("it is paused", lambda: reader.is_paused, within_s=20)
    announced.send("other", COUNT)
    announced.server.start()
    until("all are announced", lambda: count_of(announced.sets) == 2 * COUNT)


def test_a_comparison_does_not_move_the_group(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that got the queue meanwhile, or after a crash, went on from its end."""
    places: list[object] = []
    seek = escrowmq.Consumer.seek

    def note(consumer: escrowmq.Consumer, queue: escrowmq.MessageQueue, where: Any) -> None:
        places.append(where)
        seek(consumer, queue, where)

    monkeypatch.setattr(escrowmq.Consumer, "seek", note)
    announced.read_once()
    announced.recreate_topic(3 * COUNT)
    announced.new_reader()
    until("all are announced", lambda: announced.sets.counts()[0] == 4 * COUNT)
    assert {place for place in places if place not in (0, "first")} == set()


class Failing:
    """Sets of which the next requests fail."""

    def __init__(self) -> None:
        self.fails = 0
        self.consumed: list[str] = []
        self.again: list[str] = []

    def consume_again(self, members: list[str]) -> None:
        self.again += members

    def consume(self, members: list[str]) -> None:
        if self.fails:
            self.fails -= 1
            raise redis.TimeoutError("planted")
        self.consumed += members


def test_a_worker_adds_later_what_the_server_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed lost for the comparison, because no reader had noticed the failure."""
    monkeypatch.setattr(consuming, "_MISSING_MAX", 2)
    sets = Failing()
    worker = Worker(Done(), sets)  # type: ignore[arg-type]
    sets.fails = 1
    worker(committed("A"))
    worker(committed("B"))
    assert sets.consumed == ["A@paid", "B@paid"]
    sets.fails = 3
    for name in "CDEF":
        worker(committed(name))
    assert sets.consumed[2:] == ["D@paid", "E@paid", "F@paid"]


def test_a_worker_says_of_a_redelivered_message_that_it_is_one() -> None:
    """Its announcement may be removed already, and then it stayed in its set for ever."""
    sets = Failing()
    worker = Worker(Done(), sets)  # type: ignore[arg-type]
    for name in "ABA":
        worker(committed(name))
    assert (sets.consumed, sets.again) == (["A@paid", "B@paid"], ["A@paid"])


class Done:
    """A business that has processed what it gets, once."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        is_new = message.message_id not in self._ids
        self._ids.add(message.message_id)
        return is_new


def committed(name: str) -> escrowmq.ReceivedMessage:
    found: Any = SimpleNamespace(message_id=name, topic="paid", sys_flag=SysFlag.COMMIT)
    return found  # type: ignore[no-any-return]
