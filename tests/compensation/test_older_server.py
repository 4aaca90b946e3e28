"""A Redis server that comes back older than it was, from a snapshot or as a replica that lagged:
what it has forgotten is read again, so that no lost commit stays unknown."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import escrowmq
from escrowmq.client.announced_commits import Member
from escrowmq.compensation import AnnouncementReader, RedisSets, consuming
from tests.interop.process import until

from .services import RedisServer, is_all_read, start_forgetful

TOPIC = "escrow-announced"
QUEUES = 2
SOME = 20
"""Announcements of one round."""


class Book:
    """A business that notes ids, and its list of them."""

    def __init__(self) -> None:
        self.done: list[Member] = []

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        raise AssertionError(message)

    def done_since(self, mark: str | None) -> tuple[list[Member], str]:
        return self.done[int(mark or 0) :], str(len(self.done))


class World:
    """A topic of announcements, one server of the sets, and readers."""

    def __init__(self, nameserver: str, server: RedisServer) -> None:
        self.server = server
        self.sets = RedisSets(server.url)
        self.book = Book()
        self.members: list[str] = []
        self.admin = escrowmq.Admin(nameserver)
        self.admin.topics.create(TOPIC, queues=QUEUES)
        self._nameserver = nameserver
        self._producer = escrowmq.Producer(nameserver, group="orders")
        self._readers: list[AnnouncementReader] = []

    def close(self) -> None:
        self.close_readers()
        self._producer.close()
        self.admin.close()

    def read(self) -> AnnouncementReader:
        self._readers.append(
            AnnouncementReader(self._nameserver, sets=self.sets, business=self.book)
        )
        return self._readers[-1]

    def close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def announce(self) -> None:
        """Some commits; in the sets when this returns."""
        for _ in range(SOME):
            member = Member(f"id-{len(self.members)}", "paid")
            self._producer.send(TOPIC, str(member).encode())
            self.members.append(str(member))
        self.until_known()

    def until_known(self) -> None:
        """What was announced is known, and acknowledged; what was not done is lost."""
        lost = sorted(set(self.members) - {str(one) for one in self.book.done})
        until("all is announced", lambda: self.lost() == lost)
        until("all is acknowledged", lambda: is_all_read(self.admin))

    def lost(self) -> list[str] | None:
        """Announced and not consumed, by a comparison of its own; None while it is unreachable."""
        if not self.sets.is_there():
            return None
        return sorted(one for some in self.sets.compare() for one in some.lost)

    def restart(self) -> None:
        """kill -9, and back with what its last snapshot has."""
        self.server.kill()
        self.server.start()


@pytest.fixture
def world(forgetful: Callable[[], str], snapshots: RedisServer) -> Iterator[World]:
    made = World(forgetful(), snapshots)
    yield made
    made.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are kept every 200 ms."""
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 200)


@pytest.mark.usefixtures("soon")
def test_a_snapshot_under_an_idle_reader_is_noticed_each_time(world: World) -> None:
    world.read()
    world.announce()
    world.server.snapshot()
    for _ in range(3):
        world.announce()
        world.restart()
        world.until_known()


def test_a_snapshot_under_a_busy_reader_is_noticed_by_the_next_announcement(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 3_600_000)
    world.read()
    world.announce()
    world.server.snapshot()
    world.announce()
    world.restart()
    world.announce()


def test_a_snapshot_from_before_the_reader_started_is_noticed_at_its_start(world: World) -> None:
    world.read()
    world.announce()
    world.server.snapshot()
    world.announce()
    world.close_readers()
    world.restart()
    world.read()
    world.until_known()


@pytest.mark.usefixtures("soon")
def test_a_snapshot_from_before_the_first_announcement_is_noticed(world: World) -> None:
    reader = world.read()
    until("its queues are its own", lambda: len(reader._checked_queues) == QUEUES)
    world.server.snapshot()
    world.announce()
    world.restart()
    world.until_known()


@pytest.mark.usefixtures("soon")
def test_of_several_readers_each_goes_back_in_its_own_queues(world: World) -> None:
    first, second = world.read(), world.read()
    until(
        "each has a queue", lambda: len(first._checked_queues) == len(second._checked_queues) == 1
    )
    world.announce()
    world.server.snapshot()
    world.announce()
    world.restart()
    world.until_known()


@pytest.mark.usefixtures("soon")
def test_what_was_consumed_since_the_snapshot_is_noted_again(world: World) -> None:
    world.read()
    world.announce()
    until("the mark is kept", lambda: world.sets.read_mark() == "0")
    world.server.snapshot()
    world.book.done = [Member(*one.split("@")) for one in world.members]
    until("a later mark is kept", lambda: world.sets.read_mark() == str(SOME))
    world.restart()
    world.until_known()


def test_what_was_consumed_before_a_restart_is_noted_before_the_mark_moves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_MARK_INTERVAL_MS", 3_600_000)
    reader = world.read()
    world.announce()
    world.server.snapshot()
    world.book.done = [Member(*one.split("@")) for one in world.members]
    world.sets.consume(world.members)
    world.restart()
    reader._mark_at_ms = 0
    until("a mark is kept", lambda: world.sets.is_there() and world.sets.read_mark() == str(SOME))
    world.until_known()


def test_a_server_that_tells_nothing_of_itself_is_taken_as_it_is(snapshots: RedisServer) -> None:
    with redis.Redis.from_url(snapshots.url) as client:
        client.acl_setuser("some", enabled=True, nopass=True, keys="*", commands=["+@all", "-info"])
    sets = RedisSets(snapshots.url.replace("redis://", "redis://some:any@"))
    assert sets.server_id() == ""
    assert len(RedisSets(snapshots.url).server_id()) == 40


@pytest.mark.usefixtures("soon")
def test_a_replica_that_lagged_takes_the_masters_place(world: World, replica: RedisServer) -> None:
    world.read()
    world.announce()
    replica.follow(world.server)
    replica.stop_following()
    world.announce()
    world.server.kill()
    replica.take_place_of(world.server)
    world.until_known()


@pytest.mark.usefixtures("soon")
def test_what_the_topic_keeps_no_longer_is_told_and_the_rest_is_read(
    tmp_path: Path, snapshots: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    segments = "mappedFileSizeCommitLog=1048576"
    process, nameserver = start_forgetful(tmp_path, share=0, settings=[segments])
    world = World(nameserver, snapshots)
    reader = world.read()
    until("its queues are its own", lambda: len(reader._checked_queues) == QUEUES)
    snapshots.snapshot()
    world.announce()
    with escrowmq.Producer(nameserver, group="others") as producer:
        for _ in range(4):
            producer.send("others", random.Random(1).randbytes(500_000))
    world.announce()
    world.close()
    process.kill()
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    world.restart()
    world.members = world.members[SOME:]
    process, nameserver = start_forgetful(tmp_path, share=0, settings=[segments])
    after = World(nameserver, snapshots)
    try:
        after.members = world.members
        after.read()
        after.until_known()
        assert "neither on the Redis server nor in their topic" in caplog.text
        after.announce()
    finally:
        after.close()
        process.kill()


def test_places_of_an_older_release_are_taken_from_the_group(world: World) -> None:
    world.read()
    world.announce()
    world.close_readers()
    with redis.Redis.from_url(world.server.url) as client:
        assert client.delete("escrowmq:read") == 1
    world.read()
    world.announce()
    places = [world.sets.read_place(f"{TOPIC}/broker-a/{number}") for number in range(QUEUES)]
    assert sum(place or 0 for place in places) == 2 * SOME


def test_announcements_received_before_their_queue_was_compared_are_received_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.read()
    world.announce()
    world.close_readers()
    with redis.Redis.from_url(world.server.url) as client:
        assert client.delete("escrowmq:read") == 1
    received = threading.Event()
    read_again, take = AnnouncementReader._check_positions, AnnouncementReader._process_deliveries

    def read_again_later(reader: AnnouncementReader) -> None:
        if received.is_set():
            read_again(reader)

    def note_and_take(reader: AnnouncementReader, taken: list[escrowmq.Delivery]) -> None:
        received.set()
        take(reader, taken)

    monkeypatch.setattr(AnnouncementReader, "_check_positions", read_again_later)
    monkeypatch.setattr(AnnouncementReader, "_process_deliveries", note_and_take)
    world.read()
    world.announce()
