"""The whole of it: a broker that forgets ENDs, a Redis server that is killed in the middle. Every
committed order is booked once, and no other one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from examples.compensating_shop import Shop

import escrowmq
from escrowmq.client.announced_commits import Compared
from escrowmq.compensation import (
    AnnouncementReader,
    Announcer,
    Compensator,
    Fate,
    Member,
    RedisSets,
    Report,
    Worker,
)
from escrowmq.errors import NotSupported
from tests.interop.process import until

from .conftest import SHARE
from .forgetful import is_forgotten
from .services import RedisServer, forgotten_commit, is_all_read

ORDERS = 60
FAR_MS = 3_600_000


class Pipeline:
    """All parts of one shop."""

    def __init__(self, nameserver: str, redis_url: str, database: str) -> None:
        self.nameserver = nameserver
        self.shop = Shop(database)
        self.sets = RedisSets(redis_url)
        self.admin = escrowmq.Admin(nameserver)
        for topic in ("paid", "escrow-announced"):
            self.admin.topics.create(topic, queues=2)
        self.producer = escrowmq.Producer(nameserver, group="orders")
        self.announcer = Announcer(self.producer)
        self.consumer = escrowmq.Consumer(
            nameserver, group="shop", topic="paid", handler=Worker(self.shop, self.sets)
        )
        self.reader = AnnouncementReader(nameserver, sets=self.sets, business=self.shop)
        self.committed: dict[str, str] = {}
        self.forgotten: set[str] = set()

    def close(self) -> None:
        self.reader.close()
        self.consumer.close()
        self.producer.close()
        self.admin.close()

    def order(self, number: int, chance: random.Random) -> None:
        """One local transaction: committed, rolled back, or broken off."""
        order_id = f"o{number:04d}"
        body = f"{order_id}:{number}".encode()
        kind = chance.choice(("commit", "commit", "commit", "rollback", "error"))
        try:
            with self.announcer.transaction("paid", body) as tx:
                if kind == "rollback":
                    tx.rollback()
                if kind == "error":
                    raise LookupError("out of stock")
        except LookupError:
            return
        if kind == "commit":
            self.committed[order_id] = tx.results[0].message_id
            if is_forgotten(body, SHARE):
                self.forgotten.add(order_id)

    def compensator(self, later_ms: int = FAR_MS) -> Compensator:
        now_ms = self.admin.messages.prepared(
            next(iter(self.committed.values())), topic="paid"
        ).stored_ms
        return Compensator(self.admin, self.sets, self.shop, now_ms=lambda: now_ms + later_ms)


@pytest.fixture
def pipeline(
    forgetful: Callable[[], str],
    redis_server: RedisServer,
    database: str,
) -> Iterator[Pipeline]:
    made = Pipeline(forgetful(), redis_server.url, database)
    yield made
    made.close()


def test_lost_commits_are_found_and_redone_once_though_redis_dies_in_the_middle(
    pipeline: Pipeline, redis_server: RedisServer
) -> None:
    chance = random.Random(6)
    for number in range(ORDERS):
        if number == ORDERS // 3:
            redis_server.kill()
        if number == 2 * ORDERS // 3:
            until("the announcements wait", lambda: pipeline.reader.is_paused)
            redis_server.start()
        pipeline.order(number, chance)
    there = pipeline.committed.keys() - pipeline.forgotten
    assert len(pipeline.forgotten) == 7
    until("what the broker knows is booked", lambda: set(pipeline.shop.booked()) >= there)
    until("all is announced", lambda: not pipeline.reader.is_paused and is_all_read(pipeline.admin))

    early = pipeline.compensator(later_ms=0).run(is_dry=False)
    assert {finding.fate for finding in early.findings} <= {Fate.WAITING, Fate.MISSING}
    dry = pipeline.compensator().run()
    assert found(dry, Fate.LOST) == sorted(pipeline.committed[o] for o in pipeline.forgotten)
    assert sorted(pipeline.shop.booked()) == sorted(there)

    report = pipeline.compensator().run(is_dry=False)
    assert found(report, Fate.REDONE) == sorted(pipeline.committed[o] for o in pipeline.forgotten)
    again = pipeline.compensator().run(is_dry=False)
    assert again.findings == []
    assert pipeline.shop.booked() == sorted(pipeline.committed)


def found(report: Report, fate: Fate) -> list[str]:
    return sorted(one.member.message_id for one in report.findings if one.fate is fate)


def test_a_redis_server_without_its_data_is_filled_again(
    pipeline: Pipeline, redis_server: RedisServer
) -> None:
    chance = random.Random(8)
    for number in range(ORDERS // 2):
        pipeline.order(number, chance)
    there = pipeline.committed.keys() - pipeline.forgotten
    until("what the broker knows is booked", lambda: set(pipeline.shop.booked()) >= there)
    until("all is announced", lambda: is_all_read(pipeline.admin))
    redis_server.kill()
    redis_server.lose_data()
    pipeline.order(ORDERS, chance)
    until("the announcements wait", lambda: pipeline.reader.is_paused)
    redis_server.start()
    wanted = sorted(pipeline.committed[o] for o in pipeline.forgotten)
    until(
        "the lost ones are found",
        lambda: found(pipeline.compensator().run(), Fate.LOST) == wanted,
    )
    pipeline.compensator().run(is_dry=False)
    assert pipeline.shop.booked() == sorted(pipeline.committed)


def test_an_announcement_that_a_recorded_rollback_contradicts_is_for_people(
    pipeline: Pipeline,
) -> None:
    body = b"o0002:2"
    assert not is_forgotten(body, SHARE)
    with pipeline.producer.transaction("paid", body) as tx:
        tx.rollback()
    ended = tx.results[0].message_id
    pipeline.committed["o0002"] = ended  # says its producer
    pipeline.announcer.announce(ended, topic="paid")
    until("it is announced", lambda: pipeline.sets.counts()[0] == 1)
    for is_dry in (True, False):
        report = pipeline.compensator().run(is_dry=is_dry)
        assert found(report, Fate.ROLLED_BACK) == [ended]
        assert report.counts["rolled back"] == len(report.findings) == 1
    assert pipeline.shop.booked() == []


def test_an_announcement_for_a_topic_that_nobody_has_is_missing(pipeline: Pipeline) -> None:
    pipeline.announcer.announce("F" * 32, topic="piad")
    until("it is announced", lambda: pipeline.sets.counts()[0] == 1)
    report = Compensator(pipeline.admin, pipeline.sets, pipeline.shop).run(is_dry=False)
    assert found(report, Fate.MISSING) == ["F" * 32]
    assert "piad" in report.findings[0].detail


def test_a_commit_waits_until_its_delay_is_over(pipeline: Pipeline) -> None:
    body = next(b"%d" % n for n in range(99) if not is_forgotten(b"%d" % n, SHARE))
    message = escrowmq.Message("paid", body, delay=FAR_MS / 1_000)
    with pipeline.announcer.transaction(message) as tx:
        pass
    pipeline.committed["late"] = tx.results[0].message_id
    until("it is announced", lambda: is_all_read(pipeline.admin))
    for later_ms, fate in ((FAR_MS - 1_000, Fate.WAITING), (FAR_MS + 90_000, Fate.LOST)):
        report = pipeline.compensator(later_ms).run()
        assert [finding.fate for finding in report.findings] == [fate]


def test_a_commit_is_young_by_the_clock_of_its_broker(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with forgotten_commit(tmp_path, ahead_ms=-FAR_MS) as (admin, message_id):
        sets = RedisSets(redis_server.url)
        sets.announce([str(Member(message_id, "paid"))])
        report = Compensator(admin, sets, Nobody()).run(is_dry=False)
        assert [finding.fate for finding in report.findings] == [Fate.WAITING]


class Nobody:
    """A business that nothing may be handed to."""

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        raise AssertionError(message)

    def done_since(self, mark: str | None) -> tuple[list[Member], str]:
        return [], mark or ""


def test_a_redone_commit_is_recorded_though_redis_fails_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run ended by an exception: no report, and no line about what was redone."""
    applied: list[str] = []
    sets = FailsOnce(["A@paid", "B@paid", "C@paid"])

    def apply(message: escrowmq.ReceivedMessage) -> bool:
        applied.append(message.message_id)
        return True

    def prepared(message_id: str, *, topic: str) -> Any:
        return SimpleNamespace(
            message_id=message_id, stored_ms=1, broker_name="broker-a", system={}
        )

    def show(*words: Any, **more: Any) -> Any:
        raise NotSupported("planted")

    ledger: Any = SimpleNamespace(apply=apply)
    admin: Any = SimpleNamespace(
        messages=SimpleNamespace(prepared=prepared),
        transactions=SimpleNamespace(show=show),
        brokers=SimpleNamespace(runtime=lambda _: {}),
    )
    with caplog.at_level("INFO", "escrowmq.audit"):
        report = Compensator(admin, sets, ledger, now_ms=lambda: 10**12).run(is_dry=False)
    assert applied == ["A", "B", "C"]
    assert report.counts["redone"] == 2
    assert [(str(one.member), one.fate) for one in report.findings if one.detail] == [
        ("B@paid", Fate.FAILED)
    ]
    of_b = [line for line in caplog.messages if "messageId=B" in line]
    assert ["fate=redone" in of_b[0], "fate=failed" in of_b[1]] == [True, True]


class FailsOnce:
    """Sets of which the second request to add fails."""

    def __init__(self, lost: list[str]) -> None:
        self._lost = lost
        self._count = 0

    def announce(self, members: Iterable[str]) -> None:
        raise AssertionError(members)

    def consume(self, members: Iterable[str]) -> None:
        self._count += 1
        if self._count == 2:
            raise redis.TimeoutError("planted")

    def compare(self) -> Iterator[Compared]:
        yield Compared(self._lost, 0)
