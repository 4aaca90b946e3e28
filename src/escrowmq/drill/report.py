"""The result of a drill: a row for each fault, and a verdict."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Final

import msgspec

from escrowmq.drill.history import (
    AcknowledgedEnd,
    AcknowledgedSend,
    Event,
    ReadMessage,
    SendAttempt,
)
from escrowmq.drill.judge import Violation, ViolationKind, find_violations

FINDINGS_MAX: Final = 100
"""Findings that a report lists; all are counted."""

_MS_NS: Final = 1_000_000


class FaultSpan(msgspec.Struct, kw_only=True):
    """The time of one injected fault. Times are of the monotonic clock in ns, as in a history."""

    fault: str
    member: str
    what: str
    expected: str
    at_ms: int
    """When the fault was injected, in ms since the epoch."""
    begin_ns: int
    end_ns: int = 0
    master_before: str
    epoch_before: int
    master_after: str = ""
    epoch_after: int = 0
    in_sync_ns: int = 0
    """When all members were in sync again; 0 if they were not."""
    notes: list[str] = []
    """Problems of the drill itself during this fault."""


class FaultRow(msgspec.Struct, kw_only=True, rename="camel"):
    """One fault and its effects; -1 if an effect did not occur."""

    fault: str
    member: str
    what: str
    expected: str
    at_ms: int
    master_before: str
    master_after: str
    epoch_before: int
    epoch_after: int
    longest_gap_ms: int
    """The longest time without any acknowledgement."""
    acknowledged: int
    """Number of acknowledged sends and halves, until the next fault."""
    ends: int
    """Number of acknowledged ENDs."""
    lost: int = 0
    doubled: int = 0
    wrongly_visible: int = 0
    """Number of messages that were read although they were rolled back, or never sent."""
    offsets_twice: int = 0
    """Number of queue offsets with two messages."""
    other: int = 0
    """Number of other violations: messages at more than one offset, gaps between messages, or
    transactions acknowledged with both outcomes."""
    in_sync_after_ms: int = -1
    """Milliseconds from the fault until all members were in sync."""
    notes: list[str] = []

    @property
    def violations_count(self) -> int:
        """The number of violations of all kinds."""
        return self.lost + self.doubled + self.wrongly_visible + self.offsets_twice + self.other


class DrillReport(msgspec.Struct, kw_only=True, rename="camel"):
    """What a drill found: the faults that it injected into a group, which member took over when,
    and whether a message was lost, duplicated or wrongly visible."""

    drill: str
    broker: str
    members: list[str]
    rate: int
    begun_ms: int
    took_ms: int
    rows: list[FaultRow]
    findings: list[str]
    """The violations found in the history, one line each."""
    findings_count: int
    notes: list[str]
    """Problems of the drill itself; if there are any, it proves nothing."""
    hints: list[str] = []
    """Work that is left to do by hand."""
    is_interrupted: bool = False
    is_judged: bool = True
    """Whether all queues were read to their ends; if not, messages are not judged."""
    is_ok: bool = False
    verdict: str = ""


_COLUMN: Final = {
    ViolationKind.LOST: "lost",
    ViolationKind.DOUBLED: "doubled",
    ViolationKind.ABORTED: "wrongly_visible",
    ViolationKind.UNKNOWN: "wrongly_visible",
    ViolationKind.DIVERGING: "offsets_twice",
    ViolationKind.MOVED: "other",
    ViolationKind.GAP: "other",
    ViolationKind.CONTRADICTED: "other",
}


def longest_gap_ns(acknowledged_ns: Sequence[int], begin_ns: int, end_ns: int) -> int:
    """Return the longest time within a span in which nothing was acknowledged."""
    inside = sorted(at for at in acknowledged_ns if begin_ns < at < end_ns)
    return max(b - a for a, b in itertools.pairwise([begin_ns, *inside, end_ns]))


def violations_in(
    events: Iterable[Event], final: Iterable[Event], *, pending: Container[str] = ()
) -> list[Violation]:
    """Return the violations. `final` are all messages in the queues at the end. They are also
    judged without what consumers read before, because a message that was read must still be there.
    `pending` are transactions that were never ended. They are no violations, unless an END of
    theirs was acknowledged."""
    events = [event for event in events if not _is_future_check_answer(event, pending)]
    final = list(final)
    sent = [event for event in events if not isinstance(event, ReadMessage)]
    return sorted({*find_violations([*events, *final]), *find_violations([*sent, *final])}, key=str)


def _is_future_check_answer(event: Event, pending: Container[str]) -> bool:
    """Whether an event is the answer to a check that the broker has not made yet."""
    return isinstance(event, AcknowledgedEnd) and not event.end_ns and event.transaction in pending


def make_rows(
    spans: Sequence[FaultSpan], events: Sequence[Event], findings: Iterable[Violation]
) -> list[FaultRow]:
    """Return a row for each fault. A violation counts for the fault during which its message was
    acknowledged. Without faults there are no rows; then only the verdict shows violations."""
    if not spans:
        return []
    begins = [span.begin_ns for span in spans]
    ends = [*begins[1:], 1 << 62]
    times = sorted(e.end_ns for e in events if isinstance(e, AcknowledgedSend | AcknowledgedEnd))
    rows = [_row(span, until_ns, events, times) for span, until_ns in zip(spans, ends, strict=True)]
    at = _times_of(events)
    for finding in findings:
        nth = max(bisect.bisect_right(begins, at.get(finding.key, 0)) - 1, 0)
        column = _COLUMN[finding.kind]
        setattr(rows[nth], column, getattr(rows[nth], column) + 1)
    return rows


def _row(span: FaultSpan, until_ns: int, events: Sequence[Event], times: Sequence[int]) -> FaultRow:
    counts = Counter(
        type(event) for event in events
        if isinstance(event, AcknowledgedSend | AcknowledgedEnd)
        and span.begin_ns <= event.end_ns < until_ns
    )  # fmt: skip
    in_sync_ms = (span.in_sync_ns - span.begin_ns) // _MS_NS if span.in_sync_ns else -1
    return FaultRow(
        fault=span.fault, member=span.member, what=span.what, expected=span.expected,
        at_ms=span.at_ms, master_before=span.master_before, master_after=span.master_after,
        epoch_before=span.epoch_before, epoch_after=span.epoch_after,
        longest_gap_ms=longest_gap_ns(times, span.begin_ns, span.end_ns) // _MS_NS,
        acknowledged=counts[AcknowledgedSend], ends=counts[AcknowledgedEnd],
        in_sync_after_ms=in_sync_ms, notes=[*span.notes],
    )  # fmt: skip


def _times_of(events: Iterable[Event]) -> dict[str, int]:
    """Return when each message was acknowledged, or at least attempted."""
    at: dict[str, int] = {}
    for event in events:
        if isinstance(event, AcknowledgedSend | AcknowledgedEnd):
            key = event.key if isinstance(event, AcknowledgedSend) else event.transaction
            at[key] = max(at.get(key, 0), event.end_ns)
        elif isinstance(event, SendAttempt):
            at.setdefault(event.key, event.begin_ns)
    return at


def with_verdict(report: DrillReport, findings: Sequence[Violation]) -> DrillReport:
    """Return the report with its verdict."""
    report.findings = [str(finding) for finding in findings[:FINDINGS_MAX]]
    report.findings_count = len(findings)
    odd = [f"{row.fault}: {note}" for row in report.rows for note in row.notes] + report.notes
    acknowledged = sum(row.acknowledged + row.ends for row in report.rows)
    if not acknowledged:
        odd.append("nothing was acknowledged, so nothing is proved")
    if not report.is_judged:
        odd.append("the queues were not read to their ends, so the history is not judged")
    if report.is_interrupted:
        odd.append("it was interrupted")
    report.is_ok = not findings and not odd
    if report.is_ok:
        report.verdict = (
            f"{acknowledged} acknowledgements hold: nothing was lost, doubled, moved or wrongly "
            "visible, and all members are in sync"
        )
    elif findings:
        kinds = Counter(finding.kind.name for finding in findings)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
        report.verdict = f"WRONG: {counts}" + "".join(f"; {each}" for each in odd)
    else:
        held = f". Of {acknowledged} acknowledgements none is lost" if report.is_judged else ""
        report.verdict = f"NOT PASSED: {'; '.join(odd)}{held}"
    return report
