"""Batches of a streaming query over crashes at every moment: each row once, or the batch again.

The sink is what a Spark query is: it numbers its batches, writes each under new tokens until one is
decided for, and after any loss of its own memory begins with the last batch that it knows as
done. Whatever the broker's process or its power does meanwhile, every row is visible exactly once.
"""

from __future__ import annotations

import json
import random

import pytest
from tests.harness.exchange import Exchange

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.store_settings import StoreSettings
from escrowmq.testing.disk import CrashLoss, SimCrash, SimDisk

SEEDS = range(60)
BATCHES = 6
TOPICS = (("rows-0", 2), ("rows-1", 1))


def store_settings(*, is_sync: bool) -> StoreSettings:
    return StoreSettings(
        is_sync_flush=is_sync,
        log_segment_size=16_384,
        queue_segment_size=400,
        index_slots_count=32,
        index_entries_max=200,
        reserve_size=4_096,
        flush_interval_ms=50,
    )


class Run:
    """One world: a broker that dies now and then, and a sink that wants its batches out."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimDisk()
        self.is_sync = self.chance.random() < 0.7
        self.losses = list(CrashLoss) if self.is_sync else [CrashLoss.NOTHING]
        self.crashes_left = self.chance.randrange(1, 12)
        self.exchange = self._start()
        self.tokens_count = 0
        self.deaths = 0

    def _start(self) -> Exchange:
        exchange = Exchange(
            BrokerSettings(), store_settings(is_sync=self.is_sync), disk=self.disk,
            seed=self.chance.randrange(1 << 30),
        )  # fmt: skip
        for topic, queues in TOPICS:
            exchange.create_topic(topic, queues)
        return exchange

    def arm(self) -> None:
        """Let the machine stop at one of the next operations of its disk."""
        if self.crashes_left and self.chance.random() < 0.5:
            self.disk.stop_at = self.disk.steps_count + self.chance.randrange(1, 60)

    def die(self) -> None:
        """Start the broker again on what is left; it may die while it starts."""
        while True:
            self.deaths += 1
            self.crashes_left = max(0, self.crashes_left - 1)
            self.disk.crash(self.chance, self.chance.choice(self.losses))
            if self.crashes_left and self.chance.random() < 0.3:
                self.disk.stop_at = self.disk.steps_count + self.chance.randrange(1, 40)
            try:
                self.exchange = self._start()
            except SimCrash:
                continue
            self.disk.stop_at = None
            return

    def run(self) -> None:
        batch = 0
        while batch < BATCHES:
            try:
                self.arm()
                if self.write(batch, self.rows(batch)):
                    batch += 1
                if self.chance.random() < 0.2:
                    self.exchange.advance(self.chance.choice((10, 6_000)))
            except SimCrash:
                self.die()
            if batch and self.chance.random() < 0.1:
                batch -= 1  # the query lost its checkpoint of the last batch
        self.disk.stop_at = None
        self.exchange.advance(1_000_000)

    def rows(self, batch: int) -> list[str]:
        count = random.Random(batch).choice((0, 1, 7, 40))
        return [f"{batch}:{n}" for n in range(count)]

    def write(self, batch: int, rows: list[str]) -> bool:
        """One try at a batch: by several tasks, some of which fail and are tried again."""
        caller = self.exchange.connect("sink")
        epoch = f"query/{batch}"
        wanted: dict[str, int] = {}
        for part in (rows[::2], rows[1::2]):
            failures = self.chance.choice((0, 0, 1))
            for left in range(failures, -1, -1):
                self.tokens_count += 1
                token = f"t{self.tokens_count}"
                sent = part if not left else part[: self.chance.randrange(len(part) + 1)]
                for row in sent:
                    topic, queues = self.chance.choice(TOPICS)
                    reply = caller.send(
                        topic, row.encode(), queue_id=self.chance.randrange(queues),
                        TRAN_MSG="true", PGROUP="PG", UNIQ_KEY=f"{token}-{row}",
                        escrowEpoch=epoch, escrowToken=token,
                    )  # fmt: skip
                    if reply.code == 202:  # decided before; its answer was lost
                        break
                    assert reply.code == 0, reply.remark
                if not left:
                    wanted[token] = len(part)
        if self.chance.random() < 0.1:
            return False  # the driver dies before it decides
        body = {"group": "PG", "epoch": epoch, "tokens": wanted}
        asked = caller.begin(Request.ESCROW_DECIDE, body=json.dumps(body).encode())
        if not asked:
            self.exchange.advance(1_000)
        assert asked.now.code == 0, asked.now.remark
        seen = sorted(row for row in self.visible() if row.startswith(f"{batch}:"))
        assert seen == sorted(rows), "a batch that is decided is not there, whole and once"
        return True

    def visible(self) -> list[str]:
        reader = self.exchange.connect("reader")
        return [
            body.decode()
            for topic, queues in TOPICS
            for queue_id in range(queues)
            for body in reader.bodies(topic, queue_id)
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_is_visible_exactly_once(seed: int) -> None:
    run = Run(seed)
    run.run()
    assert sorted(run.visible()) == sorted(row for n in range(BATCHES) for row in run.rows(n))
    engine = run.exchange.core.transactions.engine
    assert len(engine.halves.pending) == 0
    assert run.deaths > 0 or run.crashes_left > 0
