"""What a broker keeps in memory does not grow with what it has done."""

from __future__ import annotations

import gc
import json
import multiprocessing
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import pytest

import escrowmq
from escrowmq.base.codes import Request
from escrowmq.base.store_settings import StoreSettings
from escrowmq.txn import bundle
from tests.harness.exchange import COMMIT, ROLLBACK, UNKNOWN, Caller, Exchange, half_of_check
from tests.harness.parameters import quick
from tests.unit.broker.consumer import Got, PopConsumer
from tests.unit.broker.world import World

PACKAGE: Final = Path(escrowmq.__file__).parent
STEPS: Final = 150
OPERATIONS: Final = 16
"""Of one step, at least."""

STORE: Final = StoreSettings(log_segment_size=1 << 24, reserve_size=0)


class Mix:
    """Sends, transactions of each end, pulls, offsets, delays, checks."""

    def __init__(self) -> None:
        self.exchange = Exchange(store_settings=STORE)
        self.producer = self.exchange.connect("producer")
        self.consumer = self.exchange.connect("consumer")
        for topic in ("T", "X"):
            self.exchange.create_topic(topic)
        self.offset = 0
        self.steps_count = 0

    def step(self) -> None:
        self.steps_count += 1
        producer, consumer, number = self.producer, self.consumer, self.steps_count
        producer.heartbeat(producer="PG")
        consumer.heartbeat(consumer="CG", topics={"T": "*"})
        for nth in range(4):
            producer.send("X", b"x", KEYS=f"k{number}", UNIQ_KEY=f"U{number}.{nth}")
        producer.send("X", b"later", DELAY="1")
        producer.send("X", b"later", TIMER_DELAY_SEC="2")
        for verdict in (COMMIT, ROLLBACK):
            producer.end(producer.prepare("T", b"paid", KEYS=f"t{number}"), verdict)
        reply = consumer.pull("T", self.offset, group="CG")
        self.offset = int((reply.ext or {})["nextBeginOffset"])
        offset = {"consumerGroup": "CG", "topic": "T", "queueId": "0"}
        consumer.tell(Request.UPDATE_CONSUMER_OFFSET, {**offset, "commitOffset": str(self.offset)})
        stranger = self.exchange.connect(f"stranger-{number}")
        stranger.send("X", b"x")
        stranger.leave()
        self.exchange.core.measure(self.exchange.now_ms)
        for caller in (producer, consumer):
            forget(caller)
        self.exchange.advance(500)


def forget(caller: Caller) -> None:
    """What the harness keeps of each request is not the broker's."""
    caller._asked.clear()
    caller.received.clear()


class Pops:
    def __init__(self) -> None:
        self.world = World()
        self.world.topic()
        self.consumer = PopConsumer(self.world)

    def step(self) -> None:
        for _ in range(OPERATIONS // 2):
            self.world.send("a")
            got: list[Got] = self.consumer.pop()
            self.consumer.ack(*got)
        self.world.run(500)


class Packs:
    """Transactions of several messages, more than are remembered."""

    def __init__(self) -> None:
        self.exchange = Exchange(store_settings=STORE)
        self.producer = self.exchange.connect("producer")
        self.exchange.create_topic("T")
        self.steps_count = 0

    def step(self) -> None:
        self.steps_count += 1
        self.producer.heartbeat(producer="PG")
        for nth in range(OPERATIONS // 4):
            name = f"{self.steps_count}.{nth}"
            halves = [
                self.producer.prepare("T", wants_id=True, escrowTransaction=name) for _ in range(2)
            ]
            self.producer.end(halves[0], COMMIT)
        forget(self.producer)
        self.exchange.advance(500)


def kept(step: Callable[[], None], steps_count: int) -> tuple[int, int]:
    """Bytes that our own lines hold after so many further steps, the disk in memory aside; and
    objects of our own types: what else is in the process, tests before this one have left."""
    for _ in range(steps_count):
        step()
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces(
        [
            tracemalloc.Filter(True, f"{PACKAGE}/*"),
            tracemalloc.Filter(False, f"{PACKAGE}/testing/*"),
            # Rows of halves stand in pages of 4096 that are thrown away whole (155,648 bytes).
            tracemalloc.Filter(False, f"{PACKAGE}/txn/pending_columns.py"),
        ]
    )
    # Types of others' compiled modules may have something else for a module.
    modules = (str(type(each).__module__) for each in gc.get_objects())
    ours = sum(module.startswith("escrowmq.") for module in modules)
    return sum(trace.size for trace in snapshot.traces), ours


Kept = tuple[int, int]


def kept_early_and_late(kind: Callable[[], Mix | Pops | Packs]) -> tuple[Kept, Kept]:
    """Bytes and objects that are kept after some operations, and after four times as many."""
    vars(bundle)["BUNDLES_REMEMBERED_MAX"] = STEPS
    mix = kind()
    tracemalloc.start()
    return kept(mix.step, STEPS), kept(mix.step, 3 * STEPS)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", quick([Mix], of=[Mix, Pops, Packs]))
def test_four_times_as_many_operations_keep_no_more(
    kind: Callable[[], Mix | Pops | Packs],
) -> None:
    """In a process of its own: what threads of other tests keep would be counted, too."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        early, late = pool.submit(kept_early_and_late, kind).result()
    before_size, before_count = early
    size, count = late
    assert before_size > 10_000, "nothing of ours is seen"
    grown_size = (size - before_size) / (3 * STEPS * OPERATIONS)
    assert grown_size < 2, f"{grown_size:.1f} bytes an operation"
    assert count - before_count < 200, f"{count - before_count} objects"


def test_what_became_of_transactions_lately_has_a_bound() -> None:
    """Two events a check, and as many as two a half that somebody asks about."""
    exchange = Exchange()
    producer = exchange.connect("producer")
    producer.heartbeat(producer="PG")
    events = exchange.core.transactions.engine.halves.events
    room = events._events.maxlen
    assert room == 20_000
    producer.prepare("T", b"open")
    exchange.advance(6_100)
    (check,) = producer.take(Request.CHECK_TRANSACTION_STATE)
    half = half_of_check(check)
    for _ in range(room + 10):
        events.add(exchange.now_ms, half.queue_offset, "asked")
    producer.begin_end(half, UNKNOWN, is_from_check=True)
    assert len(events._events) == room
    assert events.events_of(half.queue_offset)[-1].what == "said unknown"


def test_long_words_about_how_a_group_consumes_are_cut() -> None:
    """They were kept for each group, of any length."""
    client = Exchange().connect()
    consumer = dict.fromkeys(("consumeType", "messageModel", "consumeFromWhere"), "x" * 1_000)
    assert client.heartbeat(consumerDataSet=[{"groupName": "CG", **consumer}]).code == 0
    reply = client.ask(Request.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "CG"})
    shown = json.loads(reply.body)
    assert shown["consumeType"] == shown["messageModel"] == shown["consumeFromWhere"] == "X" * 64
