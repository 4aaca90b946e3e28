"""A report says what the judge finds, where it belongs, and passes nothing that is not proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.drill.history import (
    AcknowledgedEnd,
    AcknowledgedSend,
    Event,
    ReadMessage,
    SendAttempt,
)
from escrowmq.drill.report import (
    FINDINGS_MAX,
    DrillReport,
    FaultSpan,
    longest_gap_ns,
    make_rows,
    violations_in,
    with_verdict,
)

MS = 1_000_000


def spans() -> list[FaultSpan]:
    return [
        FaultSpan(
            fault=name, member="a", what="", expected="", at_ms=0, begin_ns=begin * MS,
            end_ns=(begin + 90) * MS, master_before="a", master_after="b", epoch_before=1,
            epoch_after=2, in_sync_ns=(begin + 50) * MS,
        )
        for name, begin in (("none", 100), ("freeze", 200))
    ]  # fmt: skip


def told() -> list[Event]:
    """Ten plain messages, of which the last five are sent during the fault; and two transactions,
    one committed and one rolled back, then."""
    events: list[Event] = []
    for number in range(10):
        key, begin, end = f"k{number}", (150 + 10 * number) * MS, (155 + 10 * number) * MS
        events += [
            SendAttempt(key, begin),
            AcknowledgedSend("T", key, 0, number, "id", "", begin, end),
        ]
    for key, outcome in (("c", "commit"), ("r", "rollback")):
        events.append(SendAttempt(key, 205 * MS))
        events.append(AcknowledgedSend("T", key, 0, 0, "id", key, 205 * MS, 210 * MS))
        events.append(AcknowledgedEnd(key, outcome, 210 * MS, 215 * MS))  # type: ignore[arg-type]
    return events


def final() -> list[Event]:
    keys = [*(f"k{number}" for number in range(10)), "c"]
    reads: list[Event] = [ReadMessage("T", 0, at, key, 100 * at) for at, key in enumerate(keys)]
    return [*reads, ReadMessage("T", 0, len(keys), "")]


def report_of(events: list[Event], reads: list[Event], **more: object) -> DrillReport:
    findings = violations_in(events, reads)
    report = DrillReport(
        drill="d", broker="g", members=["a", "b"], rate=1, begun_ms=0, took_ms=1,
        rows=make_rows(spans(), events, findings), findings=[], findings_count=0, notes=[],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return with_verdict(report, findings)


def test_a_sound_history_passes() -> None:
    report = report_of(told(), final())
    assert report.is_ok
    assert report.findings_count == 0
    assert report.verdict.startswith("14 acknowledgements hold: nothing was lost")
    none, freeze = report.rows
    assert (none.acknowledged, none.ends) == (5, 0)
    assert (freeze.acknowledged, freeze.ends) == (7, 2)
    assert none.in_sync_after_ms == freeze.in_sync_after_ms == 50
    assert none.longest_gap_ms == 55
    assert freeze.longest_gap_ms == 45


def without(reads: list[Event], key: str) -> list[Event]:
    return [e for e in reads if not (isinstance(e, ReadMessage) and e.key == key)]


def lose(events: list[Event], reads: list[Event]) -> list[Event]:
    return without(reads, "k9")


def lose_commit(events: list[Event], reads: list[Event]) -> list[Event]:
    return without(reads, "c")


def lose_what_was_read(events: list[Event], reads: list[Event]) -> list[Event]:
    """A consumer had it, and it is gone."""
    events.append(ReadMessage("T", 0, 10, "c", 1_000))
    return without(reads, "c")


def double(events: list[Event], reads: list[Event]) -> list[Event]:
    return [*reads, ReadMessage("T", 0, 11, "k9", 2_000)]


def show_aborted(events: list[Event], reads: list[Event]) -> list[Event]:
    return [*reads, ReadMessage("T", 0, 11, "r", 2_000)]


def invent(events: list[Event], reads: list[Event]) -> list[Event]:
    return [*reads, ReadMessage("T", 0, 11, "nobody's", 2_000)]


def give_twice(events: list[Event], reads: list[Event]) -> list[Event]:
    events += [
        SendAttempt("k91", 250 * MS),
        AcknowledgedSend("T", "k91", 0, 9, "id", "", 250 * MS, 251 * MS),
    ]
    return [*reads, ReadMessage("T", 0, 11, "k91", 2_000)]


def contradict(events: list[Event], reads: list[Event]) -> list[Event]:
    events.append(AcknowledgedEnd("c", "rollback", 216 * MS, 217 * MS))
    return reads


@pytest.mark.parametrize(
    ("plant", "column", "kind"),
    [
        (lose, "lost", "LOST"),
        (lose_commit, "lost", "LOST"),
        (lose_what_was_read, "lost", "LOST"),
        (double, "doubled", "DOUBLED"),
        (show_aborted, "wrongly_visible", "ABORTED"),
        (give_twice, "offsets_twice", "DIVERGING"),
        (contradict, "other", "CONTRADICTED"),
    ],
)
def test_what_is_planted_is_in_the_row_of_its_fault(
    plant: Callable[[list[Event], list[Event]], list[Event]], column: str, kind: str
) -> None:
    events = told()
    reads = plant(events, final())
    report = report_of(events, reads)
    assert not report.is_ok
    assert report.verdict.startswith("WRONG: ")
    assert kind in report.verdict
    none, freeze = report.rows
    assert none.violations_count == 0
    assert getattr(freeze, column) == 1
    assert any(line.startswith(kind) for line in report.findings)


def test_what_nobody_sent_is_wrongly_visible() -> None:
    events = told()
    report = report_of(events, invent(events, final()))
    assert sum(row.wrongly_visible for row in report.rows) == 1
    assert not report.is_ok


def test_a_loss_before_the_fault_is_in_the_row_before() -> None:
    none, freeze = report_of(told(), without(final(), "k0")).rows
    assert (none.lost, freeze.lost) == (1, 0)


def test_a_message_counts_where_it_was_acknowledged_or_else_attempted() -> None:
    events = told()
    events += [
        SendAttempt("late", 150 * MS),
        AcknowledgedSend("T", "late", 0, 12, "id", "", 150 * MS, 230 * MS),
    ]
    none, freeze = report_of(events, final()).rows
    assert (none.lost, freeze.lost) == (0, 1)
    events = [*told(), SendAttempt("unheard", 240 * MS)]
    twice: list[Event] = [ReadMessage("T", 0, at, "unheard", at) for at in (11, 12)]
    none, freeze = report_of(events, [*final(), *twice]).rows
    assert (none.doubled, freeze.doubled) == (0, 1)


def test_nothing_passes_that_is_not_proved() -> None:
    assert "it was interrupted" in report_of(told(), final(), is_interrupted=True).verdict
    unread = report_of(told(), final(), is_judged=False)
    assert "the history is not judged" in unread.verdict
    assert "none is lost" not in unread.verdict
    empty = report_of([], [])
    assert "nothing was acknowledged" in empty.verdict
    report = report_of(told(), final())
    report.rows[1].notes.append("not in sync again within 120 s: b")
    odd = with_verdict(report, [])
    assert odd.verdict == (
        "NOT PASSED: freeze: not in sync again within 120 s: b. Of 14 acknowledgements none is lost"
    )
    report = report_of(told(), final())
    report.notes = ["3 transactions are pending still"]
    assert not any(one.is_ok for one in (unread, empty, odd, with_verdict(report, [])))


def test_a_row_says_when_members_were_not_in_sync() -> None:
    late = spans()
    late[1].in_sync_ns = 0
    assert make_rows(late, told(), [])[1].in_sync_after_ms == -1


def test_a_report_lists_some_findings_and_counts_all() -> None:
    events: list[Event] = [
        AcknowledgedSend("T", f"k{n}", 0, n, "id", "", 1, 150 * MS) for n in range(FINDINGS_MAX + 1)
    ]
    report = report_of(events, [])
    assert report.findings_count == FINDINGS_MAX + 1
    assert len(report.findings) == FINDINGS_MAX
    assert report.rows[0].lost == FINDINGS_MAX + 1


def test_the_longest_gap_is_what_no_acknowledgement_interrupts() -> None:
    at = [1, 2, 3, 7, 8, 20]
    assert longest_gap_ns(at, 2, 15) == 7
    assert longest_gap_ns(at, 2, 7) == 4
    assert longest_gap_ns(at, 8, 9) == 1
    assert longest_gap_ns([], 8, 18) == 10


def test_a_drill_without_any_fault_has_a_report() -> None:
    """It ended before the first one, in a traceback."""
    findings = violations_in(told(), without(final(), "k0"))
    assert [finding.key for finding in findings if finding.kind.name == "LOST"] == ["k0"]
    assert make_rows([], told(), findings) == []


def test_a_pending_transaction_is_not_judged_by_an_answer_that_nobody_asked_for() -> None:
    events = told()
    for key, end_ns in (("asked", 0), ("told", 225 * MS)):
        events.append(SendAttempt(key, 205 * MS))
        events.append(AcknowledgedSend("T", key, 0, 0, "id", key, 205 * MS, 210 * MS))
        events.append(AcknowledgedEnd(key, "commit", 0, end_ns))
    pending = {"asked", "told"}
    assert [finding.key for finding in violations_in(events, final(), pending=pending)] == ["told"]
    assert len(violations_in(events, final())) == 2
