"""A store with known transactions, in which some things are wrong on purpose; and what a
reconciliation says about it.

    python -m tests.spark.injected [--count 1000000] [--master local[2]]

It writes the store's files, reconciles them, and ends with 0 when exactly the injected differences
are named.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escrowmq.base.message import Message, Topic
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import encode_filler, encode_record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
NOW_MS = 1_795_000_000_000
LONG_AGO_MS = 7_200_000
YOUNG_MS = 300_000
TOO_YOUNG_MS = 10_000
QUEUES = 4
TOPICS = ("paid", "shipped")
GROUP = "mailer"
BROKER = "broker-a"
WRONG_SHARE = 0.002
"""Of the transactions, for each way to be wrong."""


class StoreWriter:
    """The log of a store, as brokers write it."""

    def __init__(self, folder: Path, *, segment_size: int = 64 << 20) -> None:
        self._folder = folder / "commitlog"
        self._folder.mkdir(parents=True)
        self._size = segment_size
        self._parts: list[bytes] = []
        self._first = 0
        self.end = 0
        self.offsets: Counter[tuple[str, int]] = Counter()

    def put(self, message: Message, *, stored_ms: int) -> tuple[int, int]:
        """Append a record; its queue offset and log offset."""
        place = (message.topic, message.queue_id)
        queue_offset = self.offsets[place]
        self.offsets[place] += 1
        encoded = encode_properties(message.properties)

        def record() -> bytes:
            return encode_record(
                message, properties=encoded, queue_offset=queue_offset, log_offset=self.end,
                stored_ms=stored_ms,
            )  # fmt: skip

        data = record()
        left = self._first + self._size - self.end
        if len(data) + 8 > left:
            self._parts.append(encode_filler(left).ljust(left, b"\0"))
            self.close()
            self.end += left
            self._first = self.end
            data = record()
        self._parts.append(data)
        log_offset = self.end
        self.end += len(data)
        return queue_offset, log_offset

    def close(self) -> None:
        """Write the segment out."""
        with (self._folder / f"{self._first:020d}").open("wb") as segment:
            segment.write(b"".join(self._parts))
            segment.truncate(self._size)
        self._parts = []


class Half:
    """A half message that was put."""

    def __init__(self, key: str, topic: str, place: tuple[int, int], **own: str) -> None:
        self.key = key
        self.topic = topic
        self.queue_offset, self.log_offset = place
        self.own = own


class Injected:
    """Writes the store. `expected` are the differences to be found: class, message id."""

    def __init__(
        self, folder: Path, *, count: int, seed: int = 1, now_ms: int = NOW_MS,
        segment_size: int = 64 << 20, young_ms: int = YOUNG_MS,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.now_ms = now_ms
        self.expected: set[tuple[str, str]] = set()
        self.fates: Counter[str] = Counter()
        self.rows: list[tuple[str, str, dt.datetime]] = []
        self._log = StoreWriter(folder, segment_size=segment_size)
        self._chance = random.Random(seed)
        self._numbers = iter(range(1 << 60))
        self._ops: list[tuple[Half, str]] = []
        self._finals_of: dict[str, tuple[str, int, int]] = {}
        self._now_ms = now_ms - LONG_AGO_MS
        self._step = 3_000_000 / count
        kinds = self._kinds(count)
        for kind in kinds:
            self._now_ms = now_ms - LONG_AGO_MS + int(next(self._clock) * self._step)
            kind()
        self._seal()
        self._late(count, young_ms)
        self._log.close()
        self._save_offsets()

    # -- what can happen ---------------------------------------------------------------------

    def _kinds(self, count: int) -> list[Callable[[], None]]:
        self._clock = iter(range(count + 1))
        wrong: list[Callable[[], None]] = [
            self.overdue, self.no_final, self.two_finals, self.after_rollback, self.no_half,
            self.no_row, self.only_row, self.sent_twice, self.expired, self.delayed, self.waits,
        ]  # fmt: skip
        each = max(2, int(count * WRONG_SHARE))
        kinds = [kind for kind in wrong for _ in range(each)]
        rest = count - len(kinds)
        kinds += [self.rolled_back] * (rest // 10)
        kinds += [self.committed] * (rest - rest // 10)
        self._chance.shuffle(kinds)
        return kinds

    def committed(self) -> None:
        half = self._half()
        self._row(half, self._final(half))
        self._end(half, "c")

    def rolled_back(self) -> None:
        self._end(self._half(), "r")

    def overdue(self) -> None:
        self._note("overdue", self._half(), fate="pending")

    def no_final(self) -> None:
        half = self._half()
        self._end(half, "c")
        self._note("committed-without-final", half)

    def two_finals(self) -> None:
        half = self._half()
        self._row(half, self._final(half))
        self._final(half)
        self._end(half, "c")
        self._note("two-finals", half)

    def after_rollback(self) -> None:
        half = self._half()
        self._row(half, self._final(half))
        self._end(half, "r")
        self._note("final-after-rollback", half)

    def no_half(self) -> None:
        self._half()  # so that it lies between halves
        self._end(self._last, "r")
        key = f"nobody-{next(self._numbers)}"
        nobody = Half(key, TOPICS[0], (0, self._last.log_offset + 1))
        self._row(nobody, self._final(nobody))
        self._note("final-without-half", nobody)

    def no_row(self) -> None:
        half = self._half()
        self._final(half)
        self._end(half, "c")
        self._note("message-without-row", half)

    def only_row(self) -> None:
        self.rolled_back()
        key = f"row-{next(self._numbers)}"
        self.rows.append((key, TOPICS[0], _moment(self._now_ms)))
        self.expected.add(("row-without-message", key))

    def sent_twice(self) -> None:
        """No answer came to the producer; the broker's check ended the first half."""
        first = self._half()
        second = self._half(first.key)
        self._row(second, self._final(second))
        self._end(first, "r")
        self._end(second, "c")

    def expired(self) -> None:
        half = self._half()
        self._put(Topic.CHECK_MAX_TIME, 0, self._properties(half))
        self._end(half, "x")

    def delayed(self) -> None:
        half = self._half(escrowDelay="true")
        self._put(Topic.SCHEDULE, 2, self._properties(half), sys_flag=8)
        self._row(half, self._final(half, sys_flag=0))
        self._end(half, "c")

    def waits(self) -> None:
        half = self._half(escrowDelay="true")
        due = {"TIMER_OUT_MS": str(self.now_ms + 86_400_000)}
        self._put(Topic.TIMER, 0, self._properties(half) | due, sys_flag=8)
        self._end(half, "c")

    def _late(self, count: int, young_ms: int) -> None:
        each = max(2, int(count * WRONG_SHARE))
        for age_ms, kind in ((young_ms, "pending"), (TOO_YOUNG_MS, "")):
            self._now_ms = self.now_ms - age_ms
            for _ in range(each):
                half = self._half()
                if kind:
                    self._note(kind, half, fate="pending")
                else:
                    self.fates["too young"] += 1

    # -- records -----------------------------------------------------------------------------

    def _put(
        self, topic: str, queue_id: int, properties: dict[str, str], *, body: bytes = b"body",
        sys_flag: int = 0, prepared: int = 0,
    ) -> tuple[int, int]:  # fmt: skip
        message = Message(
            topic=topic, body=body, queue_id=queue_id, properties=properties, sys_flag=sys_flag,
            born_ms=self._now_ms - 5, born_host=HOST, store_host=HOST,
            prepared_log_offset=prepared,
        )  # fmt: skip
        return self._log.put(message, stored_ms=self._now_ms)

    def _properties(self, half: Half) -> dict[str, str]:
        return {
            "UNIQ_KEY": half.key, "TRAN_MSG": "true", "PGROUP": f"{half.topic}-shop",
            "REAL_TOPIC": half.topic, "REAL_QID": "0", **half.own,
        }  # fmt: skip

    def _half(self, key: str = "", **own: str) -> Half:
        number = next(self._numbers)
        found = Half(key or f"{number:032X}", TOPICS[number % 2], (0, 0), **own)
        place = self._put(Topic.HALF, 0, self._properties(found))
        self._last = Half(found.key, found.topic, place, **own)
        return self._last

    def _final(self, half: Half, *, sys_flag: int = 8) -> tuple[str, int, int]:
        queue_id = self._chance.randrange(QUEUES)
        prepared = half.log_offset if sys_flag else 0
        place = self._put(
            half.topic, queue_id, self._properties(half), sys_flag=sys_flag, prepared=prepared
        )
        self._finals_of[half.key] = half.topic, queue_id, place[0]
        return half.topic, queue_id, place[0]

    def _row(self, half: Half, _: tuple[str, int, int]) -> None:
        self.rows.append((half.key, half.topic, _moment(self._now_ms + 50)))

    def _end(self, half: Half, letter: str) -> None:
        self.fates[{"c": "committed", "r": "rolled back", "x": "expired"}[letter]] += 1
        self._ops.append((half, letter))
        if len(self._ops) >= self._chance.randint(1, 20):
            self._seal()

    def _seal(self) -> None:
        if self._ops:
            body = "".join(f"{half.queue_offset}," for half, _ in self._ops).encode()
            letters = "".join(letter for _, letter in self._ops)
            self._put(Topic.OP, 0, {"TAGS": "d", "escrowOutcomes": letters}, body=body)
            self._ops = []

    def _note(self, kind: str, half: Half, *, fate: str = "") -> None:
        self.expected.add((kind, half.key))
        if fate:
            self.fates[fate] += 1

    def _save_offsets(self) -> None:
        """The group lacks the last messages of one queue."""
        table: dict[str, dict[str, int]] = {}
        for (topic, queue_id), end in self._log.offsets.items():
            if topic in TOPICS:
                table.setdefault(f"{topic}@{GROUP}", {})[str(queue_id)] = end
        committed = max(0, table[f"paid@{GROUP}"]["1"] - 3)
        table[f"paid@{GROUP}"]["1"] = committed
        for key, (topic, queue_id, queue_offset) in self._finals_of.items():
            if (topic, queue_id) == ("paid", 1) and queue_offset >= committed:
                self.expected.add(("not-consumed", key))
        config = self.folder / "config"
        config.mkdir()
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
        delivered = {"3": self._log.offsets[Topic.SCHEDULE, 2]}
        (config / "delayOffset.json").write_text(json.dumps({"offsetTable": delivered}))

    @property
    def finals(self) -> set[str]:
        """The ids of the messages that consumers can see."""
        return set(self._finals_of)

    # -- judged ------------------------------------------------------------------------------

    def rows_table(self, spark: SparkSession) -> DataFrame:
        """The business's rows."""
        return spark.createDataFrame(self.rows, "messageId string, topic string, at timestamp")

    def wrong(self, found: set[tuple[str, str]]) -> list[str]:
        """How what was found differs from what was injected."""
        lacks, extra = self.expected - found, found - self.expected
        told = [f"{len(lacks)} were not found, as {sorted(lacks)[:5]}"] if lacks else []
        return told + ([f"{len(extra)} are none, as {sorted(extra)[:5]}"] if extra else [])


def _moment(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)


def reconciler(spark: SparkSession, injected: Injected, out: Path, **more: Any) -> Any:
    """The job over the store, with everything that can be compared."""
    from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings
    from escrowmq.pipeline.reconcile.stored_messages import FileMessages

    settings = ReconcileSettings(groups=(GROUP,))
    return Reconciler(
        spark, FileMessages(spark, {BROKER: str(injected.folder)}), str(out), settings=settings,
        rows=lambda session, since: injected.rows_table(session), now_ms=lambda: injected.now_ms,
        **more,
    )  # fmt: skip


def named(table: DataFrame) -> set[tuple[str, str]]:
    """What a table of differences names."""
    return {(row["class"], row["messageId"]) for row in table.collect()}


def main() -> int:
    """Generate, reconcile, compare."""
    from escrowmq.pipeline.reconcile.lease import FileLease

    from .sessions import build_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        injected = Injected(folder / "store", count=chosen.count, seed=chosen.seed)
        print(f"{chosen.count} transactions written, {len(injected.expected)} injected", flush=True)
        spark = build_session(chosen.master, folder, {"spark.sql.shuffle.partitions": "8"})
        started = time.monotonic()
        job = reconciler(spark, injected, folder / "out")
        report = job.run(lease=FileLease(folder / "out"))
        wrong = injected.wrong(named(job.results.differences.read()))
        print(f"{time.monotonic() - started:.1f} s: {report.balance}", flush=True)
        spark.stop()
    print("; ".join(wrong) or "exactly the injected differences are named", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
