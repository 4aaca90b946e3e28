"""What the simulator found where a process runs out of descriptors, each cut down to its shortest
case: what cannot be opened just now is neither lost nor passed over."""

from __future__ import annotations

import msgspec
import pytest
from tests.harness.exchange import COMMIT, SMALL, Caller, Exchange

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.message import Topic
from escrowmq.codec.record import decode_records
from escrowmq.errors import StorageError
from escrowmq.store.store import PutStatus
from escrowmq.testing.disk import CrashLoss, DescriptorShortage
from escrowmq.txn.check_counts import FOLDER


@pytest.fixture
def exchange() -> Exchange:
    found = Exchange(BrokerSettings(revive_queues_count=1))
    found.create_topic("T", 1)
    found.gets_over_errors = True
    return found


def pop(caller: Caller) -> list[bytes]:
    ext = {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "32", "pollTime": "0",
        "invisibleTime": "10000", "bornTime": "0", "initMode": "0", "order": "false",
    }  # fmt: skip
    return [each.body for each in decode_records(caller.ask(Request.POP_MESSAGE, ext).body)]


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"DELAY": "1"}, "delay level 1 is delivered later"),
        ({"TIMER_DELAY_MS": "1000"}, "new delayed messages cannot be read"),
    ],
)
def test_a_delayed_message_waits_until_it_can_be_read(
    exchange: Exchange, wish: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was passed over as one that is not there, and never delivered."""
    caller = exchange.connect()
    assert caller.send("T", b"later", **wish).code == 0
    exchange.run_out_of_descriptors()
    exchange.advance(5_000)
    assert caplog.text.count(said) == 1
    exchange.find_descriptors()
    exchange.advance(60_000)
    assert caller.bodies("T") == [b"later"]
    assert exchange.core.broker.delays.deliverer.dropped_count == 0
    assert exchange.core.broker.timer.deliverer.dropped_count == 0


def test_a_popped_message_comes_again_when_it_can_be_read(exchange: Exchange) -> None:
    """Not acknowledged, it was taken for one that the topic has no more."""
    caller = exchange.connect()
    caller.send("T", b"handed out")
    assert pop(caller) == [b"handed out"]
    exchange.run_out_of_descriptors()
    exchange.advance(15_000)
    exchange.find_descriptors()
    exchange.advance(60_000)
    assert exchange.core.assembly.pops.ledger.dropped_count == 0
    assert pop(caller) == [b"handed out"]


def test_a_half_that_is_stored_is_pending_whatever_cannot_be_opened(exchange: Exchange) -> None:
    """The counts of checks were read behind the half's record: where that failed, the half stood
    in the log, and nobody was ever asked about it."""
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    caller.prepare("T", b"asked about", group="PG")
    exchange.advance(7_000)
    assert caller.take(Request.CHECK_TRANSACTION_STATE)
    files = exchange.disk.files
    exchange.disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
    for path, file in files.items():
        file.is_mapped = not path.startswith(FOLDER)
    half = caller.prepare("T", b"in the log", group="PG")
    assert half.queue_offset in exchange.core.transactions.engine.halves.pending
    assert caller.end(half, COMMIT).code == 0


def test_checks_that_are_counted_are_sent_whatever_fails_behind_them(exchange: Exchange) -> None:
    """Of two halves that were due together, the second could not be read; the first was counted
    as asked about, and was not."""
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    first = caller.prepare("T", b"one", group="PG")
    second = caller.prepare("T", b"two", group="PG")
    halves = exchange.core.transactions.engine.halves
    read = halves.open_half
    fails = True

    def spoilt(queue_offset: int) -> object:
        if fails and queue_offset == second.queue_offset:
            raise OSError(24, "Too many open files")
        return read(queue_offset)

    halves.open_half = spoilt  # type: ignore[method-assign,assignment]
    exchange.advance(7_000)
    asked = caller.take(Request.CHECK_TRANSACTION_STATE)
    assert len(asked) == halves.pending.row(first.queue_offset).checks == 1
    exchange.advance(1_000)
    assert halves.pending.row(second.queue_offset).checks == 0
    fails = False
    exchange.advance(2_000)
    assert len(caller.take(Request.CHECK_TRANSACTION_STATE)) == 1


def test_several_messages_are_not_ended_where_the_log_cannot_be_opened(exchange: Exchange) -> None:
    """They are answered as on a full disk: nothing was done, try again."""
    caller = exchange.connect()
    store = exchange.core.broker.store
    caller.send("T", b"x")
    messages = caller.messages("T")
    log = store.log
    exchange.run_out_of_descriptors()
    log.segments._files.clear()
    log._reserve._reserved_end = log.end_offset
    assert not store.has_settling_space(messages)
    exchange.find_descriptors()
    assert store.has_settling_space(messages)


def test_a_put_is_refused_where_its_file_cannot_be_opened_and_the_next_is_stored(
    exchange: Exchange,
) -> None:
    caller = exchange.connect()
    caller.send("T", b"before")
    store = exchange.core.broker.store
    message = caller.messages("T")[0]
    exchange.run_out_of_descriptors()
    put = store.put(message, exchange.now_ms)
    assert put.status is PutStatus.CREATE_FILE_FAILED
    assert "Too many open files" in put.reason
    with pytest.raises((OSError, StorageError), match="Too many open files"):
        store.get("T", 0, 0)
    exchange.find_descriptors()
    assert caller.send("T", b"behind").code == 0
    assert caller.bodies("T") == [b"before", b"behind"]
    assert store.refusal is None
    assert store.bounds(Topic.HALF, 0) == (0, 0)


def test_a_queue_that_cannot_be_opened_is_synced_later_and_the_log_now() -> None:
    """The round of syncs began with taking the queue for clean, and failed at its file: it was
    forgotten, and the end of every input failed with it."""
    settings = msgspec.structs.replace(SMALL, is_sync_flush=True)
    exchange = Exchange(BrokerSettings(revive_queues_count=1), settings)
    exchange.create_topic("T", 1)
    exchange.gets_over_errors = True
    caller = exchange.connect()
    caller.send("T", b"before")
    exchange.reopen()
    caller = exchange.connect()
    store = exchange.core.broker.store
    (queue,) = store.queues.queues_of("T")
    queue.mark_unsynced()
    log_file = store.log.segments.get_or_create(store.end_offset)
    caller.send("T", b"more")
    exchange.holds_syncs = True
    store.queues.close()
    exchange.disk.exhaust_descriptors(DescriptorShortage.SPARE_LEFT)
    log_file.is_mapped = True  # type: ignore[attr-defined]
    queue.mark_unsynced()
    exchange.advance(10_000)
    assert queue.is_dirty
    assert store.refusal is None
    exchange.find_descriptors()
    exchange.holds_syncs = False
    exchange.advance(10_000)
    assert not queue.is_dirty
    assert store.durable_offset == store.end_offset


def test_that_a_topic_was_deleted_is_noted_as_soon_as_it_can_be(exchange: Exchange) -> None:
    """It was tried once: a crash, however much later, brought the messages back."""
    caller = exchange.connect()
    caller.send("T", b"old")
    exchange.advance(1_000)
    exchange.disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
    exchange.core.broker.store.delete_topic("T")
    exchange.find_descriptors()
    exchange.advance(60_000)
    exchange.crash(CrashLoss.ALL)
    assert exchange.core.broker.store.bounds("T", 0) == (0, 0)
