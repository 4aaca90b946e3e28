from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from escrowmq.txn.half_shape import HalfShape
from escrowmq.txn.pending import BUCKET_MS, HalfRun, PendingHalves, PendingRow

from .ground import plain_half

TIMES = st.integers(0, 2_000)
NAMES = st.sampled_from(["A", "B", "C"])


def test_appointments_of_halves_that_ended_do_not_pile_up() -> None:
    pending = PendingHalves(void_min=50)
    for number in range(1_000):
        row = PendingRow(
            log_offset=0, stored_ms=0, due_ms=number, group="", topic="", origin="", checks=0
        )
        pending.add(number, row)
        pending.schedule(number, 10**9)  # parked: given up when it is too old
        pending.remove(number)
        pending.take_due(number, 100)
        assert sum(map(len, pending._buckets.values())) <= 60


class PendingAgainstModel(RuleBasedStateMachine):
    """The columns and a dict of rows, fed with the same."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingHalves(void_min=3, page_size=4)
        self.ended: dict[int, PendingRow] = {}
        self.rows: dict[int, PendingRow] = {}
        self.appointments: dict[int, int] = {}
        self.next_offset = 0
        self.now_ms = 0

    @rule(
        after=st.integers(-1, 40), count_max=st.integers(1, 9), since_ms=TIMES, lasting_ms=TIMES,
        group=st.none() | NAMES, topic=st.none() | NAMES,
    )  # fmt: skip
    def look_for(
        self,
        after: int,
        count_max: int,
        since_ms: int,
        lasting_ms: int,
        group: str | None,
        topic: str | None,
    ) -> None:
        behind = [number for number in sorted(self.rows) if number > after]
        examined = behind[:count_max]
        found, last = self.pending.matching_rows(
            after, count_max=count_max, group=group, topic=topic, since_ms=since_ms,
            until_ms=since_ms + lasting_ms,
        )  # fmt: skip
        assert last == (examined[-1] if len(behind) > count_max else -1)
        rows = [(number, self.rows[number]) for number in examined]
        assert [(number, stored_ms) for number, _, stored_ms in found] == [
            (number, row.stored_ms)
            for number, row in rows
            if group in (None, row.group) and topic in (None, row.topic)
            and since_ms <= row.stored_ms <= since_ms + lasting_ms
        ]  # fmt: skip
        for number, source, _ in found:
            assert self.pending.sources.source(source)[0] == self.rows[number].group

    @rule(due_ms=TIMES, group=NAMES, topic=NAMES, origin=NAMES, checks=st.integers(0, 70_000))
    def add(self, due_ms: int, group: str, topic: str, origin: str, checks: int) -> None:
        row = PendingRow(
            log_offset=self.next_offset * 100,
            stored_ms=self.now_ms,
            due_ms=self.now_ms + due_ms,
            group=group,
            topic=topic,
            origin=origin,
            checks=min(checks, 0xFFFF),
        )
        self.pending.add(self.next_offset, row)
        self.rows[self.next_offset] = row
        self.appointments[self.next_offset] = row.due_ms
        self.next_offset += 1

    @rule(count=st.integers(1, 3))
    def pass_over(self, count: int) -> None:
        """Halves that were never pending here."""
        self.next_offset += count

    @rule(count=st.integers(1, 11))
    def add_several(self, count: int) -> None:
        run = HalfRun(HalfShape("A", "B", None, is_plain=True, properties={}))
        for offset in range(self.next_offset, self.next_offset + count):
            run.add(offset, offset * 100, self.now_ms)
            self.rows[offset] = PendingRow(
                log_offset=offset * 100, stored_ms=self.now_ms, due_ms=self.now_ms + 7,
                group="A", topic="B", origin="", checks=0,
            )  # fmt: skip
            self.appointments[offset] = self.now_ms + 7
        self.pending.append_run(run, wait_ms=7)
        self.next_offset += count

    @rule(count=st.integers(1, 11), group=NAMES)
    def add_plain(self, count: int, group: str) -> None:
        offsets = range(self.next_offset, self.next_offset + count)
        halves = [
            plain_half(offset, b"b", stored_ms=self.now_ms + offset % 3) for offset in offsets
        ]
        self.pending.append_plain_halves((group, "B", "C", ""), halves, wait_ms=60)
        for one in halves:
            due_ms = self.appointments[one.queue_offset] = one.stored_ms + 60
            self.rows[one.queue_offset] = PendingRow(
                log_offset=one.log_offset, stored_ms=one.stored_ms, due_ms=due_ms,
                group=group, topic="B", origin="C", checks=0,
            )  # fmt: skip
        self.next_offset += count

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.ended)))
        row = self.ended.pop(offset)
        self.pending.add(offset, row)
        self.rows[offset] = row
        self.appointments[offset] = row.due_ms

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.rows)))
        self.pending.remove(offset)
        self.ended[offset] = self.rows.pop(offset)
        self.appointments.pop(offset, None)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        some = st.lists(st.sampled_from(sorted(self.rows)), unique=True, max_size=20)
        offsets = data.draw(some)
        taken = self.pending.remove_rows(offsets)
        for offset, (source, stored_ms) in zip(offsets, taken, strict=True):
            row = self.ended[offset] = self.rows.pop(offset)
            self.appointments.pop(offset, None)
            found = self.pending.sources.remove_halves(source)
            assert (found, stored_ms) == ((row.group, row.topic, row.origin, ""), row.stored_ms)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), span_ms=TIMES)
    def schedule(self, data: st.DataObject, span_ms: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.rows)))
        self.pending.schedule(offset, self.now_ms + span_ms)
        self.appointments[offset] = self.now_ms + span_ms

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def count(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.rows)))
        self.rows[offset].checks = min(self.rows[offset].checks + 1, 0xFFFF)
        assert self.pending.count_check(offset) == self.rows[offset].checks

    @rule(span_ms=TIMES, count_max=st.integers(1, 5))
    def take_due(self, span_ms: int, count_max: int) -> None:
        self.now_ms += span_ms
        taken = self.pending.take_due(self.now_ms, count_max)
        assert len(taken) == len(set(taken)) <= count_max
        due = {o for o, due_ms in self.appointments.items() if due_ms <= self.now_ms}
        assert set(taken) <= due
        assert len(taken) == count_max or set(taken) == due
        for offset in taken:
            del self.appointments[offset]

    @invariant()
    def nothing_is_due_later_than_the_wake_up(self) -> None:
        if self.appointments:
            first_ms = min(self.appointments.values())
            assert self.pending.wake_at_ms() <= max(first_ms, 0) + BUCKET_MS

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        pending = self.pending
        assert len(pending) == len(self.rows)
        assert list(pending) == sorted(self.rows)
        assert pending.offsets_after(3) == sorted(offset for offset in self.rows if offset > 3)
        assert not any(offset in pending for offset in self.ended)
        assert self.next_offset not in pending
        assert pending.log_offset(self.next_offset) == -1
        for offset, row in self.rows.items():
            found = pending.row(offset)
            found.due_ms = row.due_ms
            assert found == row
            assert (pending.group(offset), pending.topic(offset)) == (row.group, row.topic)
            assert (pending.checks_count(offset), pending.log_offset(offset)) == (
                row.checks,
                row.log_offset,
            )
        assert pending.oldest_offset() == min(self.rows, default=None)
        offsets = sorted(self.rows, key=lambda offset: offset % 5)
        places = [offset * 100 for offset in offsets]
        assert pending.count_there(offsets, places) == len(offsets)
        assert pending.count_there([*offsets, self.next_offset], [*places, -1]) == len(offsets)
        assert pending.count_there([*self.ended], [offset * 100 for offset in self.ended]) == 0
        places[1:2] = [7]
        assert pending.count_there(offsets, places) == min(1, len(offsets))


PendingAgainstModel.TestCase.settings = settings(
    max_examples=min(60, settings().max_examples), stateful_step_count=40, deadline=None
)
test_pending = PendingAgainstModel.TestCase


def half(group: str, number: int = 0) -> PendingRow:
    return PendingRow(log_offset=number, stored_ms=0, due_ms=0, group=group, topic="T", origin="c")


def test_names_that_clients_choose_are_given_back_with_their_last_half() -> None:
    pending = PendingHalves()
    for number in range(10_000):
        row = half(f"group-{number}", number)
        row.account = f"account-{number}"
        pending.add(number, row)
        assert pending.remove(number) == ("T", f"group-{number}", 0)
    assert (len(pending.sources), len(pending.sources.accounts)) == (0, 0)
    assert len(pending.sources._sources) == 1
    pending.add(10_000, half("A"))
    pending.add(10_001, half("A"))
    pending.remove(10_000)
    assert pending.group(10_001) == "A"
    assert len(pending.sources) == 1
    assert pending.end_offset == 10_002


def test_a_run_counts_each_of_its_halves() -> None:
    pending, run = PendingHalves(), HalfRun(HalfShape("G", "T", None, is_plain=True, properties={}))
    for number in range(3):
        run.add(number, number, 0)
    pending.append_run(run, wait_ms=1)
    for number in range(3):
        assert pending.remove(number) == ("T", "G", 0)
    assert len(pending.sources) == 0


def due(due_ms: int) -> PendingRow:
    return PendingRow(log_offset=0, stored_ms=0, due_ms=due_ms, group="", topic="", origin="")


def test_a_half_is_due_in_the_millisecond_of_its_deadline() -> None:
    for due_ms in (2 * BUCKET_MS, 2 * BUCKET_MS + 1):
        pending = PendingHalves()
        pending.add(0, due(due_ms))
        assert pending.take_due(due_ms - 1, 10) == []
        assert pending.take_due(due_ms, 10) == [0]


def test_a_deadline_that_was_put_off_holds_back_no_other() -> None:
    pending = PendingHalves()
    pending.add(0, due(100))
    pending.add(1, due(200))
    pending.schedule(0, 10_000)
    assert pending.take_due(300, 10) == [1]
    assert pending.take_due(10_000, 10) == [0]


def test_deadlines_that_count_are_kept_when_void_ones_are_dropped() -> None:
    pending = PendingHalves(void_min=0)
    for number in range(3):
        pending.add(number, due(100 + number))
    pending.remove(1)
    for _ in range(20):
        pending.schedule(0, 150)
    assert pending.take_due(50, 10) == []
    assert sum(map(len, pending._buckets.values())) == 2
    assert sorted(pending.take_due(200, 10)) == [0, 2]


def test_deadlines_move_with_the_clock_except_the_one_by_age() -> None:
    pending = PendingHalves()
    pending.add(0, due(100))
    pending.add(1, due(5_000))
    pending.clock_leapt(10_000, 7_000)
    assert pending.take_due(7_000, 10) == []
    assert pending.take_due(7_001, 10) == [0, 1], "older than 7,000 ms: nothing puts that off"
    pending = PendingHalves()
    pending.add(0, due(100))
    pending.clock_leapt(1_000, 7_000)
    assert pending.take_due(1_099, 10) == []
    assert pending.take_due(1_100, 10) == [0]


def test_a_half_that_is_not_pending_has_no_row() -> None:
    pending = PendingHalves()
    pending.add(5, due(100))
    for queue_offset in (4, 6):
        with pytest.raises(KeyError):
            pending.row(queue_offset)
        with pytest.raises(KeyError):
            pending.remove(queue_offset)
    assert list(pending) == [5]


def test_halves_that_are_due_together_are_taken_a_few_at_a_time() -> None:
    pending = PendingHalves()
    for number in range(5):
        pending.add(number, due(100))
    taken = [pending.take_due(200, 2) for _ in range(4)]
    assert taken == [[0, 1], [2, 3], [4], []]
