"""Judges histories: `python -m escrowmq.drill.judge FILE...` prints violations, and exits with 1 if
there are any. At the end of a history, consumers must have read all queues to their ends."""

from __future__ import annotations

import enum
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from escrowmq.drill import history
from escrowmq.drill.history import (
    AcknowledgedEnd,
    AcknowledgedSend,
    Event,
    ReadMessage,
    SendAttempt,
)


class ViolationKind(enum.Enum):
    """Kinds of violations."""

    LOST = "acknowledged, and never read"
    ABORTED = "rolled back, and read all the same"
    CONTRADICTED = "one transaction was acknowledged both ways"
    DIVERGING = "one queue offset had two contents"
    MOVED = "acknowledged at one queue offset, read at another"
    GAP = "nothing was ever read at an offset between others"
    DOUBLED = "one message is stored twice"
    UNKNOWN = "read, and sent by nobody"


class Violation(msgspec.Struct, frozen=True):
    """A violation found in a history."""

    kind: ViolationKind
    about: str
    key: str = ""
    """The key of the message concerned. For a gap, it is the key of the message after it. Empty if
    none is known."""

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.about}: {self.kind.value}"


class _History:
    """The events of a history, by the message that they are about."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.sent: list[AcknowledgedSend] = []
        self.asked: set[str] = set()
        self.keys_of: dict[str, str] = {}
        """For each transaction, the key of one of its messages."""
        self.outcomes: dict[str, set[str]] = defaultdict(set)
        self.reads: set[ReadMessage] = set()
        self.keys_at: dict[tuple[str, int, int], set[str]] = defaultdict(set)
        self.places_of: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
        self.positions_of: dict[str, set[int]] = defaultdict(set)
        for event in events:
            if isinstance(event, AcknowledgedSend):
                self.sent.append(event)
                self.keys_of[event.transaction] = event.key
            elif isinstance(event, AcknowledgedEnd):
                self.outcomes[event.transaction].add(event.outcome)
            elif isinstance(event, SendAttempt):
                self.asked.add(event.key)
            elif event.key:
                self._add(event)

    def _add(self, event: ReadMessage) -> None:
        place = (event.topic, event.queue, event.offset)
        self.keys_at[place].add(event.key)
        self.places_of[event.key].add(place)
        if event.position >= 0:
            self.positions_of[event.key].add(event.position)


def find_violations(
    events: Iterable[Event], *, attempted: frozenset[str] | None = None
) -> list[Violation]:
    """Return all violations in a history. `attempted` has the keys of all sends, acknowledged or
    not; by default, those of the Asked events. If it is empty, messages without a known sender are
    not reported."""
    seen = _History(events)
    if attempted is None and seen.asked:
        attempted = frozenset(seen.asked)
    findings = [
        *_violations_of_sends(seen),
        *_violations_of_ends(seen),
        *_violations_of_positions(seen),
        *_missing_between(seen),
    ]
    if attempted is not None:
        findings += [
            Violation(ViolationKind.UNKNOWN, key, key)
            for key in seen.places_of
            if key not in attempted
        ]
    return sorted(findings, key=str)


def _violations_of_sends(seen: _History) -> Iterator[Violation]:
    for sent in seen.sent:
        places = seen.places_of.get(sent.key, set())
        if sent.transaction:
            outcomes = seen.outcomes.get(sent.transaction, set())
            if outcomes == {"commit"} and not places:
                yield Violation(
                    ViolationKind.LOST, f"{sent.key} of transaction {sent.transaction}", sent.key
                )
            if outcomes == {"rollback"} and places:
                yield Violation(
                    ViolationKind.ABORTED, f"{sent.key} of transaction {sent.transaction}", sent.key
                )
        elif not places:
            yield Violation(
                ViolationKind.LOST,
                f"{sent.key} at {sent.topic}/{sent.queue}/{sent.offset}",
                sent.key,
            )
        elif (sent.topic, sent.queue, sent.offset) not in places:
            yield Violation(
                ViolationKind.MOVED,
                f"{sent.key} from {sent.topic}/{sent.queue}/{sent.offset} to {sorted(places)}",
                sent.key,
            )


def _violations_of_ends(seen: _History) -> Iterator[Violation]:
    for transaction, outcomes in seen.outcomes.items():
        if len(outcomes) > 1:
            yield Violation(
                ViolationKind.CONTRADICTED, transaction, seen.keys_of.get(transaction, "")
            )


def _violations_of_positions(seen: _History) -> Iterator[Violation]:
    contents = {place: set(keys) for place, keys in seen.keys_at.items()}
    for sent in seen.sent:
        if not sent.transaction:
            contents.setdefault((sent.topic, sent.queue, sent.offset), set()).add(sent.key)
    for place, keys in contents.items():
        if len(keys) > 1:
            yield Violation(ViolationKind.DIVERGING, f"{place}: {sorted(keys)}", max(keys))
    for key, places in seen.places_of.items():
        if len(places) > 1:
            yield Violation(ViolationKind.DOUBLED, f"{key} at {sorted(places)}", key)
        elif len(seen.positions_of[key]) > 1:
            yield Violation(
                ViolationKind.DOUBLED, f"{key} at {sorted(seen.positions_of[key])} of the log", key
            )


def _missing_between(seen: _History) -> Iterator[Violation]:
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, queue, offset in seen.keys_at:
        offsets[topic, queue].append(offset)
    for (topic, queue), found in offsets.items():
        found.sort()
        for before, after in itertools.pairwise(found):
            if after > before + 1:
                follower = max(seen.keys_at[topic, queue, after])
                about = f"{topic}/{queue}: {before + 1} to {after - 1}"
                yield Violation(ViolationKind.GAP, about, follower)


def main() -> int:
    """Judge the files given on the command line; return the exit code."""
    findings = find_violations(history.read_events(map(Path, sys.argv[1:])))
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
