from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from escrowmq.txn.pending import BUCKET_MS, Pending, Row

TIMES = st.integers(0, 2_000)
NAMES = st.sampled_from(["A", "B", "C"])


def test_appointments_of_halves_that_ended_do_not_pile_up() -> None:
    pending = Pending(void_min=50)
    for number in range(1_000):
        row = Row(log_offset=0, stored_ms=0, due_ms=number, group="", topic="", origin="", checks=0)
        pending.add(number, row)
        pending.schedule(number, 10**9)  # parked: given up when it is too old
        pending.remove(number)
        pending.take_due(number, 100)
        assert sum(map(len, pending._buckets.values())) <= 60


class PendingAgainstModel(RuleBasedStateMachine):
    """The columns and a dict of rows, fed with the same."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = Pending(void_min=3)
        self.rows: dict[int, Row] = {}
        self.appointments: dict[int, int] = {}
        self.next_offset = 0
        self.now_ms = 0

    @rule(due_ms=TIMES, group=NAMES, topic=NAMES, origin=NAMES, checks=st.integers(0, 70_000))
    def add(self, due_ms: int, group: str, topic: str, origin: str, checks: int) -> None:
        row = Row(
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

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.rows)))
        self.pending.remove(offset)
        del self.rows[offset]
        self.appointments.pop(offset, None)

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
        assert set(pending) == set(self.rows)
        assert self.next_offset not in pending
        assert pending.log_offset(self.next_offset) == -1
        for offset, row in self.rows.items():
            found = pending.row(offset)
            found.due_ms = row.due_ms
            assert found == row
            assert (pending.group(offset), pending.topic(offset)) == (row.group, row.topic)
            assert (pending.checks(offset), pending.log_offset(offset)) == (
                row.checks,
                row.log_offset,
            )
        assert pending.oldest() == min(self.rows, default=None)


PendingAgainstModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
test_pending = PendingAgainstModel.TestCase
