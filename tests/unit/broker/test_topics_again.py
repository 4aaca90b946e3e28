"""Topics that are deleted and made again under the same name, across every kind of crash."""

import random

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.store_settings import StoreSettings
from escrowmq.store.queue_snapshot import read_snapshot
from escrowmq.testing.disk import _BLOCK_SIZE as BLOCK_SIZE
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.caller import Caller
from tests.harness.exchange import SMALL, Exchange

HOUR_MS = 3_600_000


def settings(*, units_per_file: int = 256, log_segment_size: int = 1 << 20) -> StoreSettings:
    return msgspec.structs.replace(
        SMALL,
        is_sync_flush=True,
        queue_segment_size=20 * units_per_file,
        log_segment_size=log_segment_size,
    )


def opened(**changes: int) -> tuple[Exchange, Caller]:
    exchange = Exchange(BrokerSettings(), settings(**changes), disk=SimDisk())
    exchange.create_topic("T", 1)
    exchange.create_topic("U", 1)
    return exchange, exchange.connect("p")


def send(caller: Caller, text: str, count: int) -> list[bytes]:
    bodies = [b"%s %d" % (text.encode(), number) for number in range(count)]
    for body in bodies:
        assert caller.send("T", body).code == 0
    return bodies


def delete(caller: Caller) -> None:
    assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0


@pytest.mark.parametrize("loss", list(CrashLoss))
@pytest.mark.parametrize(
    ("old", "new", "units_per_file"),
    [(5, 1, 2), (9, 3, 2), (1, 3, 256), (1, 1, 256), (3, 5, 4)],
)
def test_messages_of_a_topic_made_again_survive_a_crash(
    old: int, new: int, units_per_file: int, loss: CrashLoss
) -> None:
    exchange, caller = opened(units_per_file=units_per_file)
    send(caller, "old", old)
    delete(caller)
    exchange.create_topic("T", 1)
    bodies = send(caller, "new", new)
    for seed in range(3):
        exchange.crash(loss, seed=seed)
        caller = exchange.connect("p")
        assert caller.bodies("T") == bodies
        bodies += send(caller, f"later {seed}", 2)
        assert caller.bodies("T") == bodies


@pytest.mark.parametrize("loss", list(CrashLoss))
@pytest.mark.parametrize("after_ms", [0, HOUR_MS])
def test_a_deleted_topic_does_not_come_back_with_its_messages(
    loss: CrashLoss, after_ms: int
) -> None:
    exchange, caller = opened()
    send(caller, "old", 3)
    caller.send("U", b"u")
    exchange.advance(30_000)
    delete(caller)
    exchange.advance(after_ms)
    exchange.crash(loss)
    exchange.create_topic("T", 1)
    caller = exchange.connect("p")
    assert caller.bodies("T") == []
    bodies = send(caller, "new", 2)
    assert caller.bodies("T") == bodies
    exchange.crash(loss)
    assert exchange.connect("p").bodies("T") == bodies


def test_a_deleted_topic_does_not_come_back_when_its_queues_are_built_anew() -> None:
    exchange, caller = opened()
    send(caller, "old", 3)
    delete(caller)
    exchange.create_topic("T", 1)
    bodies = send(caller, "new", 2)
    exchange.disk.crash(random.Random(0), CrashLoss.NOTHING)
    for path in [path for path in exchange.disk.files if path.startswith("consumequeue/")]:
        del exchange.disk.files[path]
    exchange.crash()
    assert exchange.connect("p").bodies("T") == bodies


def test_a_deleted_topic_stays_away_though_its_messages_came_when_the_clock_was_days_ahead() -> (
    None
):
    """A start that believed the clock again forgot with the next loss of power that records of a
    later time stand in the log: a deletion was noted that did not cover them."""
    exchange, caller = opened()
    exchange.now_ms += 72 * HOUR_MS
    send(caller, "old", 3)
    exchange.now_ms -= 72 * HOUR_MS
    exchange.crash()
    noted = read_snapshot(exchange.disk)
    assert noted is not None
    assert noted.latest_ms == exchange.core.broker.store.deleted.latest_ms > exchange.now_ms
    exchange.connect("p").send("U", b"of the right time")
    exchange.crash()
    caller = exchange.connect("p")
    delete(caller)
    exchange.create_topic("T", 1)
    bodies = send(caller, "new", 2)
    exchange.disk.crash(random.Random(0), CrashLoss.NOTHING)
    for path in [path for path in exchange.disk.files if path.startswith("consumequeue/")]:
        del exchange.disk.files[path]
    exchange.crash()
    assert exchange.connect("p").bodies("T") == bodies


def test_a_log_cut_behind_a_deletion_does_not_hide_what_is_stored_there_later() -> None:
    """ASYNC_FLUSH: the power fails, and what was written when the topic was deleted is lost."""
    exchange = Exchange(BrokerSettings(), msgspec.structs.replace(SMALL), disk=SimDisk())
    exchange.create_topic("T", 1)
    caller = exchange.connect("p")
    send(caller, "old", 50)
    delete(caller)
    exchange.create_topic("T", 1)
    exchange.crash(CrashLoss.ALL)
    caller = exchange.connect("p")
    bodies = send(caller, "new", 3)
    exchange.advance(60_000)
    for seed in range(2):
        exchange.crash(CrashLoss.PREFIX, seed=seed)
        assert exchange.connect("p").bodies("T") == bodies


def test_notes_of_deleted_topics_go_with_their_records() -> None:
    exchange, caller = opened(log_segment_size=8192)
    send(caller, "old", 3)
    delete(caller)
    store = exchange.core.broker.store
    assert "T" in store.deleted.of_topic
    for _ in range(3):
        caller.send("U", b"x" * 5000)
    exchange.now_ms += 100 * HOUR_MS
    store.retention.request_cleanup()
    assert store.retention.clean_up(exchange.now_ms)
    exchange.reopen()
    assert exchange.core.broker.store.min_log_offset > 0
    assert not exchange.core.broker.store.deleted.of_topic


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(120))
def test_random_lives_of_a_topic_keep_what_was_acknowledged(seed: int) -> None:
    chance = random.Random(seed)
    exchange, caller = opened(units_per_file=chance.choice([2, 4, 256]), log_segment_size=8192)
    model: list[bytes] = []
    serial = 0
    done: list[str] = []
    for step in range(chance.randint(3, 25)):
        kind = chance.choices(["send", "other", "again", "gone", "time", "crash"],
                              [11, 2, 2, 1, 2, 2])[0]  # fmt: skip
        if kind == "send":
            for _ in range(chance.choice([1, 1, 2, 5, 30])):
                serial += 1
                assert caller.send("T", b"%d" % serial).code == 0
                model.append(b"%d" % serial)
        elif kind == "other":
            caller.send("U", b"u")
        elif kind in ("again", "gone"):
            delete(caller)
            model = []
            exchange.create_topic("T", 1)
            if kind == "again":
                serial += 1
                caller.send("T", b"%d" % serial)
                model = [b"%d" % serial]
        elif kind == "time":
            exchange.advance(chance.choice([10, 1500, 70_000]))
        else:
            loss = chance.choice(list(CrashLoss))
            kind += f" {loss.name}"
            exchange.crash(loss, seed=seed * 100 + step)
            caller = exchange.connect("p")
        done.append(kind)
        assert caller.bodies("T") == model, done


def test_a_deletion_that_cannot_be_noted_is_refused_and_nothing_is_done() -> None:
    """The note has no space, while the smaller table of topics has."""
    exchange, caller = opened()
    for number in range(80):  # their deletions make the note long
        topic = f"{number}".ljust(127, "x")
        exchange.create_topic(topic, 1)
        assert caller.send(topic, b"x").code == 0
        assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    old = send(caller, "old", 2)
    disk = exchange.disk
    exchange.advance(10_000)
    disk.room = disk.used + BLOCK_SIZE
    reply = caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert "the topic[T] is not deleted: " in str(reply.remark), reply
    assert reply.code == Response.SYSTEM_ERROR
    disk.room = None
    assert caller.bodies("T") == old
    exchange.crash(CrashLoss.NOTHING)
    caller = exchange.connect()
    assert caller.bodies("T") == old
    delete(caller)
    exchange.create_topic("T", 1)
    bodies = send(caller, "new", 1)
    exchange.crash(CrashLoss.NOTHING)
    assert exchange.connect().bodies("T") == bodies
