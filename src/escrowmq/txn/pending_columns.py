"""Rows of pending halves by queue offset, in columns instead of objects: 38 bytes each. (A dict
beside such columns took 106 bytes more per half.)

Halves are added in rising order and removed in any order. So they are in pages of a few thousand
rows, each sorted. A removed row is only marked. A page with a quarter of its rows left is
compacted, and joined with its neighbour if both are small.

The newest page is searched first. If a page lacks no number, a half is found by counting from the
page's first row, otherwise by bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import Final

PAGE_SIZE: Final = 4096
_SPARSE_SHARE: Final = 4
GONE: Final = -1
"""The value in the source column that marks a removed row."""


Row = tuple[int, int, int]
"""Queue offset, source number and store time of a half."""


class RowPage:
    """A page of rows with rising queue offsets. `first` is the lowest offset that the page has ever
    had."""

    __slots__ = (
        "_head", "checks", "due_ms", "first", "live_count", "log_offsets", "offsets", "sources",
        "stored_ms",
    )  # fmt: skip

    def __init__(self, first: int) -> None:
        self.first = first
        self.live_count = 0
        self._head = 0
        self.offsets = array("q")
        self.log_offsets = array("q")
        self.stored_ms = array("q")
        self.due_ms = array("q")
        self.sources = array("i")
        self.checks = array("H")

    def columns(self) -> tuple[array[int], ...]:
        """Return all columns."""
        return (
            self.offsets, self.log_offsets, self.stored_ms, self.due_ms, self.sources, self.checks,
        )  # fmt: skip

    def index_of(self, queue_offset: int) -> int:
        """Return the index of a row; -1 if it is missing or removed."""
        offsets, at = self.offsets, queue_offset - self.first
        if not (0 <= at < len(offsets) and offsets[at] == queue_offset):
            at = bisect_left(offsets, queue_offset)
            if at == len(offsets) or offsets[at] != queue_offset:
                return -1
        return at if self.sources[at] != GONE else -1

    def insert(self, row: tuple[int, ...]) -> None:
        """Insert a row in order of its queue offset. It may have been in the page before."""
        at = bisect_left(self.offsets, row[0])
        if at < len(self.offsets) and self.offsets[at] == row[0]:
            assert self.sources[at] == GONE, row
            for column, value in zip(self.columns(), row, strict=True):
                column[at] = value
        else:
            for column, value in zip(self.columns(), row, strict=True):
                column.insert(at, value)
        self.live_count += 1
        # It may be before the rows that `oldest_offset` examines.
        self._head = 0

    def extend(self, rows: Sequence[list[int]]) -> None:
        """Append rows, column by column. Measured: 31 ns a number, where `array.extend` takes
        118."""
        for column, values in zip(self.columns(), rows, strict=True):
            column.fromlist(values)
        self.live_count += len(rows[0])

    def remove(self, at: int) -> None:
        """Mark the row at an index as removed."""
        self.sources[at] = GONE
        self.live_count -= 1

    def live_offsets(self) -> Iterator[int]:
        """Yield the queue offsets of rows that are not removed, in order."""
        return compress(self.offsets, map(GONE.__ne__, self.sources))

    def rows_after(
        self, queue_offset: int, count_max: int, sources: Container[int] | None, span_ms: range
    ) -> tuple[list[Row], int, int]:
        """Examine the first `count_max` rows after a queue offset. Return those of these sources
        (None: all) that were stored within a span, the number of examined rows, and the offset of
        the last."""
        begin = bisect_right(self.offsets, queue_offset)
        rows: list[Row]
        if begin == 0 and self.live_count <= count_max:
            count, last = self.live_count, self._last_live()
            each = zip(self.offsets, self.sources, self.stored_ms, strict=True)
            if sources is not None:  # GONE is not among them
                rows = [row for row in each if row[1] in sources]
            elif count == len(self.offsets):
                rows = list(each)
            else:
                rows = [row for row in each if row[1] != GONE]
        else:
            columns = (self.offsets[begin:], self.sources[begin:], self.stored_ms[begin:])
            present = (row for row in zip(*columns, strict=True) if row[1] != GONE)
            rows = list(islice(present, count_max))
            count, last = len(rows), rows[-1][0] if rows else queue_offset
            if sources is not None:
                rows = [row for row in rows if row[1] in sources]
        if rows and not (min(self.stored_ms) in span_ms and max(self.stored_ms) in span_ms):
            rows = [row for row in rows if row[2] in span_ms]
        return rows, count, last

    def _last_live(self) -> int:
        """Return the highest queue offset that is not removed; -1 if there is none."""
        for at in range(len(self.offsets) - 1, -1, -1):
            if self.sources[at] != GONE:
                return self.offsets[at]
        return -1

    def oldest_offset(self) -> int:
        """Return the lowest queue offset that is not removed. There must be one."""
        sources, at = self.sources, self._head
        while sources[at] == GONE:
            at += 1
        self._head = at
        return self.offsets[at]

    @property
    def is_sparse(self) -> bool:
        """Whether most rows are removed."""
        return self.live_count * _SPARSE_SHARE < len(self.offsets)

    def compacted(self) -> RowPage:
        """Return a copy without the removed rows."""
        found = RowPage(self.oldest_offset() if self.live_count else self.first)
        is_live = [source != GONE for source in self.sources]
        found.extend([list(compress(column, is_live)) for column in self.columns()])
        return found


class RowPages:
    """All pages of rows, in order. There is always one, for new rows."""

    def __init__(self, *, size: int = PAGE_SIZE) -> None:
        self._size = size
        self.last = RowPage(0)
        self._pages = [self.last]
        self._firsts = [0]
        self.count = 0

    def __iter__(self) -> Iterator[RowPage]:
        return iter(self._pages)

    def find(self, queue_offset: int) -> tuple[RowPage, int]:
        """Return the page and the index of a row; the index is -1 if the row is missing."""
        page = self.last
        at = queue_offset - page.first
        if 0 <= at < len(page.offsets) and page.offsets[at] == queue_offset:
            return page, at if page.sources[at] != GONE else -1
        if queue_offset < page.first:
            page = self._pages[max(bisect_right(self._firsts, queue_offset) - 1, 0)]
        return page, page.index_of(queue_offset)

    def count_stored_before(self, moment_ms: int) -> int:
        """Return how many halves were stored before a time. This assumes that they are ordered by
        time, which is wrong only after a clock was set back. A million halves take 250 look-ups."""
        count = 0
        for page in self._pages:
            if not page.stored_ms or page.stored_ms[0] >= moment_ms:
                break
            if page.stored_ms[-1] < moment_ms:
                count += page.live_count
            else:
                end = bisect_left(page.stored_ms, moment_ms)
                count += end - page.sources[:end].count(GONE)
        return count

    def offsets_after(self, queue_offset: int) -> Iterator[int]:
        """Yield the queue offsets after this one, in order."""
        nth = max(bisect_right(self._firsts, queue_offset) - 1, 0)
        for page in self._pages[nth:]:
            for found in page.live_offsets():
                if found > queue_offset:
                    yield found

    def matching_rows(
        self, after: int, count_max: int, sources: Container[int] | None, span_ms: range
    ) -> tuple[list[Row], int]:
        """Return rows after a queue offset, in order, of these sources (None: all) and stored
        within a span. Only the first `count_max` rows are examined. Also return the offset after
        which to continue; -1 at the end. Measured: 0.07 us a row, where `find` and a PendingRow
        take 2.5."""
        found: list[Row] = []
        left, last = count_max, after
        nth = max(bisect_right(self._firsts, after) - 1, 0)
        for page in self._pages[nth:]:
            rows, count, end = page.rows_after(after, left, sources, span_ms)
            found += rows
            if count:
                left, last = left - count, end
            if not left and page.rows_after(last, 1, None, span_ms)[1]:
                return found, last
        return found, -1

    def oldest_offset(self) -> int | None:
        """Return the lowest queue offset; None if there is none."""
        for page in self._pages:
            if page.live_count:
                return page.oldest_offset()
        return None

    def _new_page(self, queue_offset: int) -> RowPage:
        """Return the page for a row at the end: a new one if the last is full."""
        if not self.last.offsets:
            self._pages.pop()
            self._firsts.pop()
        self.last = RowPage(queue_offset)
        self._pages.append(self.last)
        self._firsts.append(queue_offset)
        if len(self._pages) > 1 and self._pages[-2].is_sparse:
            self._compact_page(len(self._pages) - 2)
        return self.last

    def append(
        self,
        queue_offset: int,
        log_offset: int,
        stored_ms: int,
        due_ms: int,
        source: int,
        checks: int,
    ) -> None:
        """Append a row. The arguments are positional, for speed: this is called for each half."""
        page = self.last
        if not 0 < len(page.offsets) < self._size:
            page = self._new_page(queue_offset)
        page.offsets.append(queue_offset)
        page.log_offsets.append(log_offset)
        page.stored_ms.append(stored_ms)
        page.due_ms.append(due_ms)
        page.sources.append(source)
        page.checks.append(checks)
        page.live_count += 1
        self.count += 1

    def extend(self, rows: Sequence[list[int]]) -> None:
        """Append rows, column by column."""
        begin, count = 0, len(rows[0])
        while begin < count:
            page = self.last
            if not 0 < len(page.offsets) < self._size:
                page = self._new_page(rows[0][begin])
            end = min(count, begin + self._size - len(page.offsets))
            page.extend([values[begin:end] for values in rows])
            begin = end
        self.count += count

    def insert(self, row: tuple[int, ...]) -> None:
        """Insert a row between existing ones."""
        nth = max(bisect_right(self._firsts, row[0]) - 1, 0)
        page = self._pages[nth]
        page.insert(row)
        page.first = self._firsts[nth] = min(page.first, row[0])
        self.count += 1

    def remove(self, page: RowPage, at: int) -> None:
        """Remove the row at an index."""
        page.sources[at] = GONE
        page.live_count -= 1
        self.count -= 1
        # Never the last page: `_compact_page` would replace it, and new rows would still be added
        # to the old one.
        if page is not self.last and page.is_sparse:
            self._compact_page(bisect_right(self._firsts, page.first) - 1)

    def count_pending_at(self, queue_offsets: Sequence[int], log_offsets: Sequence[int]) -> int:
        """Return how many of these halves, from the first on, are pending at these log offsets."""
        page = self.last
        for nth, queue_offset in enumerate(queue_offsets):
            at = queue_offset - page.first
            if not (0 <= at < len(page.offsets) and page.offsets[at] == queue_offset):
                page, at = self.find(queue_offset)
            if at < 0 or page.sources[at] == GONE or page.log_offsets[at] != log_offsets[nth]:
                return nth
        return len(queue_offsets)

    def remove_rows(self, queue_offsets: Iterable[int]) -> list[tuple[int, int]]:
        """Remove the rows of these halves, which must all be pending. Return source and store time
        of each. Measured: 0.5 us each, where `find` and `remove` take 2."""
        found, page, touched = [], self.last, {self.last}
        for queue_offset in queue_offsets:
            at = queue_offset - page.first
            if not (0 <= at < len(page.offsets) and page.offsets[at] == queue_offset):
                page, at = self.find(queue_offset)
                touched.add(page)
            source = page.sources[at]
            assert at >= 0 <= source, queue_offset
            page.remove(at)
            found.append((source, page.stored_ms[at]))
        self.count -= len(found)
        for one in touched:
            if one is not self.last and one.is_sparse:
                self._compact_page(bisect_right(self._firsts, one.first) - 1)
        return found

    def _compact_page(self, nth: int) -> None:
        """Compact a page with few rows left, and join it with a small neighbour."""
        page = self._pages[nth].compacted()
        before = self._pages[nth - 1] if nth else None
        if before is not None and len(before.offsets) + len(page.offsets) <= self._size // 2:
            before.extend([column.tolist() for column in page.columns()])
        elif page.live_count:
            self._pages[nth], self._firsts[nth] = page, page.first
            return
        del self._pages[nth], self._firsts[nth]
