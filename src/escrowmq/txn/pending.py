"""Pending half messages, in memory.

A pending half takes a row (38 bytes, see pending_columns.py) and a deadline (8); 1 M of them take
less than 50 MB. Deadlines are kept in buckets of time, not in a heap of tuples."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

import msgspec

from escrowmq.txn.half_shape import HalfShape
from escrowmq.txn.pending_columns import GONE, PAGE_SIZE, Row, RowPage, RowPages
from escrowmq.txn.plain_halves import PlainHalf

BUCKET_MS: Final = 50
"""The precision of deadlines."""

_VOID_SHARE: Final = 4
NEVER_MS: Final = (1 << 62) - 1


Source = tuple[str, str, str, str]
"""Identifies where halves come from: group, topic, sending client, and account."""


class HalfSources:
    """Numbers sources of halves, so that a column can hold them. A source is dropped with its last
    half, because clients can choose any number of names."""

    def __init__(self) -> None:
        self._numbers: dict[Source, int] = {}
        self._sources: list[Source | None] = []
        self._counts = array("i")
        self.accounts: Counter[str] = Counter()
        """The number of pending halves of each account, as far as accounts are known."""
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def add_halves(self, source: Source, count: int = 1) -> int:
        """Count further halves of a source. Return the source's number."""
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = self._add_source(source)
        self._counts[number] += count
        if source[3]:
            self.accounts[source[3]] += count
        return number

    def _add_source(self, source: Source) -> int:
        if self._free:
            number = self._free.pop()
            self._sources[number] = source
            return number
        self._sources.append(source)
        self._counts.append(0)
        return len(self._sources) - 1

    def source(self, number: int) -> Source:
        """Return the source with this number."""
        source = self._sources[number]
        assert source is not None, number
        return source

    def matching_numbers(self, *, group: str | None, topic: str | None) -> frozenset[int] | None:
        """Return the numbers of the sources of a group and a topic; None if neither is given."""
        if group is None and topic is None:
            return None
        return frozenset(
            number
            for source, number in self._numbers.items()
            if group in (None, source[0]) and topic in (None, source[1])
        )

    def remove_halves(self, number: int, count: int = 1) -> Source:
        """Uncount halves of a source, and drop the source with its last half. Return the source."""
        source = self._sources[number]
        assert source is not None, number
        self._counts[number] -= count
        if source[3]:
            self.accounts[source[3]] -= count
            if not self.accounts[source[3]]:
                del self.accounts[source[3]]
        if not self._counts[number]:
            del self._numbers[source]
            self._sources[number] = None
            self._free.append(number)
        return source


class PendingRow(msgspec.Struct, kw_only=True):
    """One pending half message."""

    log_offset: int
    stored_ms: int
    due_ms: int
    group: str
    topic: str
    origin: str
    """The client that sent it; empty after a restart."""
    account: str = ""
    """The account that sent it; empty without access control, and after a restart."""
    checks: int = 0
    """The number of delivered checks."""


class HalfRun:
    """Consecutive halves of one shape, to be added in one call."""

    __slots__ = ("log_offsets", "queue_offsets", "shape", "stored_ms")

    def __init__(self, shape: HalfShape | None = None) -> None:
        self.shape = shape
        self.queue_offsets: list[int] = []
        self.log_offsets: list[int] = []
        self.stored_ms: list[int] = []

    def add(self, queue_offset: int, log_offset: int, stored_ms: int) -> None:
        """Append a half."""
        self.queue_offsets.append(queue_offset)
        self.log_offsets.append(log_offset)
        self.stored_ms.append(stored_ms)

    def extend(
        self, queue_offsets: Iterable[int], log_offsets: list[int], stored_ms: list[int]
    ) -> None:
        """Append several halves."""
        self.queue_offsets += queue_offsets
        self.log_offsets += log_offsets
        self.stored_ms += stored_ms


class PendingHalves:
    """The index of pending halves, by half queue offset. Outdated deadlines are dropped when there
    are `void_min` more of them than four times the halves."""

    def __init__(self, *, void_min: int = 100_000, page_size: int = PAGE_SIZE) -> None:
        self._void_min = void_min
        self.pages = RowPages(size=page_size)
        """The rows of the halves. Other code only reads them."""
        self.count_there = self.pages.count_pending_at
        self.remove_rows = self.pages.remove_rows
        """Removes rows. The caller must then uncount their halves from the sources
        (`sources.take_update`)."""
        self._buckets: dict[int, array[int]] = {}
        self._bucket_heap: list[int] = []
        self._noted_count = 0
        self._highest = -1
        self.sources = HalfSources()

    def __len__(self) -> int:
        return self.pages.count

    def __contains__(self, queue_offset: int) -> bool:
        return self.pages.find(queue_offset)[1] >= 0

    def __iter__(self) -> Iterator[int]:
        return self.pages.offsets_after(-1)

    def add(self, queue_offset: int, row: PendingRow) -> None:
        """Add a half. Queue offsets rise, except when a half whose end was undone is added
        again."""
        source = self.sources.add_halves((row.group, row.topic, row.origin, row.account))
        checks, due_ms = min(row.checks, 0xFFFF), row.due_ms
        if queue_offset > self._highest:
            self._highest = queue_offset
            self.pages.append(queue_offset, row.log_offset, row.stored_ms, due_ms, source, checks)
        else:
            assert queue_offset not in self, queue_offset
            self.pages.insert((queue_offset, row.log_offset, row.stored_ms, due_ms, source, checks))
        self._add_deadline(queue_offset, due_ms)

    def append_plain_half(self, source: Source, half: PlainHalf, due_ms: int, checks: int) -> None:
        """Add a plain half that has the highest queue offset so far."""
        queue_offset = half.queue_offset
        assert queue_offset > self._highest, (queue_offset, self._highest)
        self._highest = queue_offset
        number = self.sources.add_halves(source)
        self.pages.append(
            queue_offset, half.log_offset, half.stored_ms, due_ms, number, min(checks, 0xFFFF)
        )
        self._noted_count += 1
        bucket = due_ms // BUCKET_MS
        (self._buckets.get(bucket) or self._bucket(bucket)).append(queue_offset)

    def append_run(self, run: HalfRun, *, wait_ms: int) -> None:
        """Add consecutive halves that were never checked. Measured: 0.5 us each, where `add` takes
        2.5."""
        assert run.shape is not None
        source = run.shape.group, run.shape.topic, "", ""
        self._extend(source, run.queue_offsets, run.log_offsets, run.stored_ms, wait_ms)

    def append_plain_halves(
        self, source: Source, halves: Sequence[PlainHalf], *, wait_ms: int
    ) -> None:
        """Add consecutive plain halves of one source that were never checked."""
        self._extend(
            source,
            [half.queue_offset for half in halves],
            [half.log_offset for half in halves],
            [half.stored_ms for half in halves],
            wait_ms,
        )

    def _extend(
        self,
        source: Source,
        offsets: list[int],
        log_offsets: list[int],
        stored_ms: list[int],
        wait_ms: int,
    ) -> None:
        assert offsets[0] > self._highest, (offsets[0], self._highest)
        count = len(offsets)
        number = self.sources.add_halves(source, count)
        dues_ms = [each_ms + wait_ms for each_ms in stored_ms]
        self.pages.extend((offsets, log_offsets, stored_ms, dues_ms, [number] * count, [0] * count))
        self._highest = offsets[-1]
        following = iter(offsets)
        for bucket, same in groupby([due_ms // BUCKET_MS for due_ms in dues_ms]):
            self._bucket(bucket).fromlist(list(islice(following, len(list(same)))))
        self._noted_count += count

    def _bucket(self, number: int) -> array[int]:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("q")
            heapq.heappush(self._bucket_heap, number)
        return bucket

    def _find_row(self, queue_offset: int) -> tuple[RowPage, int]:
        page, at = self.pages.find(queue_offset)
        if at < 0:
            raise KeyError(queue_offset)
        return page, at

    def row(self, queue_offset: int) -> PendingRow:
        """Return all data about a pending half. Raises KeyError if it is not pending."""
        page, at = self._find_row(queue_offset)
        group, topic, origin, account = self.sources.source(page.sources[at])
        return PendingRow(
            log_offset=page.log_offsets[at],
            stored_ms=page.stored_ms[at],
            due_ms=page.due_ms[at],
            group=group,
            topic=topic,
            origin=origin,
            account=account,
            checks=page.checks[at],
        )

    def remove(self, queue_offset: int) -> tuple[str, str, int]:
        """Remove a half. Return its topic, group and store time."""
        page, at = self._find_row(queue_offset)
        source, stored_ms = page.sources[at], page.stored_ms[at]
        self.pages.remove(page, at)
        group, topic, *_ = self.sources.remove_halves(source)
        return topic, group, stored_ms

    def offsets_after(self, queue_offset: int) -> list[int]:
        """Return the queue offsets of pending halves after this one, in order."""
        return list(self.pages.offsets_after(queue_offset))

    def matching_rows(
        self,
        after: int,
        *,
        count_max: int,
        group: str | None = None,
        topic: str | None = None,
        since_ms: int = 0,
        until_ms: int = NEVER_MS,
    ) -> tuple[list[Row], int]:
        """Return halves after a queue offset, in order, of a group and a topic, stored within a
        span. Only the first `count_max` are examined. Also return the offset after which to
        continue; -1 at the end."""
        span_ms = range(since_ms, until_ms + 1)
        wanted = self.sources.matching_numbers(group=group, topic=topic)
        return self.pages.matching_rows(after, count_max, wanted, span_ms)

    # -- columns -----------------------------------------------------------------------------

    def log_offset(self, queue_offset: int) -> int:
        """Return the log offset of a half's record; -1 if it is not pending."""
        page, at = self.pages.find(queue_offset)
        return -1 if at < 0 else page.log_offsets[at]

    def _source(self, queue_offset: int) -> Source:
        page, at = self._find_row(queue_offset)
        return self.sources.source(page.sources[at])

    def topic(self, queue_offset: int) -> str:
        """Return the topic of a half's message."""
        return self._source(queue_offset)[1]

    def group(self, queue_offset: int) -> str:
        """Return the producer group of a half."""
        return self._source(queue_offset)[0]

    def share_group_and_topic(self, one: int, other: int) -> bool:
        """Whether two halves have the same group and topic."""
        return self._source(one)[:2] == self._source(other)[:2]

    def checks_count(self, queue_offset: int) -> int:
        """Return the number of delivered checks of a half."""
        page, at = self._find_row(queue_offset)
        return page.checks[at]

    def count_check(self, queue_offset: int) -> int:
        """Count a delivered check of a half; return their number."""
        page, at = self._find_row(queue_offset)
        page.checks[at] = min(page.checks[at] + 1, 0xFFFF)
        return page.checks[at]

    def uncount_check(self, queue_offset: int) -> int:
        """Uncount a check that did not arrive; return the number of those that did."""
        page, at = self._find_row(queue_offset)
        page.checks[at] = max(page.checks[at] - 1, 0)
        return page.checks[at]

    # -- deadlines ---------------------------------------------------------------------------

    def schedule(self, queue_offset: int, due_ms: int) -> None:
        """Set a half's deadline, replacing any earlier one."""
        page, at = self._find_row(queue_offset)
        page.due_ms[at] = due_ms
        self._add_deadline(queue_offset, due_ms)

    def _add_deadline(self, queue_offset: int, due_ms: int) -> None:
        self._noted_count += 1
        self._bucket(due_ms // BUCKET_MS).append(queue_offset)

    def take_due(self, now_ms: int, count_max: int) -> list[int]:
        """Return a bounded number of due halves, and clear their deadlines."""
        taken: list[int] = []
        if self._noted_count > _VOID_SHARE * self.pages.count + self._void_min:
            self._drop_outdated_deadlines()
        while self._bucket_heap and self._bucket_heap[0] * BUCKET_MS <= now_ms:
            number = heapq.heappop(self._bucket_heap)
            later = array("q")
            bucket = self._buckets.pop(number)
            self._noted_count -= len(bucket)
            for nth, queue_offset in enumerate(bucket):
                if len(taken) == count_max:
                    later += bucket[nth:]
                    break
                page, at = self.pages.find(queue_offset)
                # The row has the valid deadline: outdated ones are left in their buckets.
                if at < 0 or page.due_ms[at] // BUCKET_MS != number:
                    continue
                if page.due_ms[at] > now_ms:
                    later.append(queue_offset)
                else:
                    # The caller must set the next deadline, or end the half.
                    page.due_ms[at] = NEVER_MS
                    taken.append(queue_offset)
            if later:
                self._noted_count += len(later)
                self._buckets[number] = later
                heapq.heappush(self._bucket_heap, number)
                break
        return taken

    def clock_leapt(self, by_ms: int, age_max_ms: int) -> None:
        """Shift the deadlines by the clock's jump. Deadlines that come from a half's age stay,
        because its store time in the log stays too."""
        for page in self.pages:
            for at, due_ms in enumerate(page.due_ms):
                if due_ms != NEVER_MS:
                    too_old_ms = page.stored_ms[at] + age_max_ms + 1
                    page.due_ms[at] = min(due_ms + by_ms, max(due_ms, too_old_ms))
        self._drop_outdated_deadlines()

    def _drop_outdated_deadlines(self) -> None:
        """Drop outdated deadlines. Those of parked halves could be days ahead."""
        self._buckets.clear()
        self._bucket_heap.clear()
        self._noted_count = 0
        for page in self.pages:
            for at, source in enumerate(page.sources):
                if source != GONE:
                    self._add_deadline(page.offsets[at], page.due_ms[at])

    def wake_at_ms(self) -> int:
        """The time at which `take_due` may return something next."""
        if not self._bucket_heap:
            return NEVER_MS
        # The end of the bucket's span: one wake-up serves all of it.
        return (self._bucket_heap[0] + 1) * BUCKET_MS

    @property
    def end_offset(self) -> int:
        """One more than the highest queue offset that was ever added."""
        return self._highest + 1

    def oldest_offset(self) -> int | None:
        """Return the lowest pending queue offset; None if there is none."""
        return self.pages.oldest_offset()
