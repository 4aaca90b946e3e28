"""Both judges find what is planted, and nothing in a history where all is well."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.drill import history
from escrowmq.drill.history import AcknowledgedEnd, AcknowledgedSend, Event, ReadMessage
from escrowmq.drill.judge import Violation, ViolationKind, find_violations
from tests.interop import jars

from . import porcupine

OUTCOMES: tuple[Literal["commit", "rollback", "open"], ...] = ("commit", "rollback", "open")
PLANTABLE = 8
"""Plain messages that a history has at least, so that every fault has room in each queue."""


def healthy(seed: int) -> list[Event]:
    """A history without a fault: plain messages and transactions in two queues, some of whose
    answers were lost, read by two consumers. No two sends overlap in time."""
    chance = random.Random(seed)
    events: list[Event] = []
    stored: dict[int, list[str]] = {0: [], 1: []}
    for number in range(2 * PLANTABLE + chance.randrange(40)):
        begin = 100 * number
        end = begin + 50 + chance.randrange(49)
        queue = number % 2
        key, transaction = f"k{number}", f"t{number}"
        is_half = number >= 2 * PLANTABLE and chance.random() < 0.5
        if is_half:
            events.append(AcknowledgedSend("T", key, 0, 0, f"id{number}", transaction, begin, end))
            outcome = chance.choice(OUTCOMES)
            if outcome == "commit":
                stored[queue].append(key)
            if outcome != "open" and chance.random() < 0.8:
                events.append(AcknowledgedEnd(transaction, outcome, begin, end))
        else:
            if number < 2 * PLANTABLE or chance.random() < 0.8:
                offset = len(stored[queue])
                events.append(
                    AcknowledgedSend("T", key, queue, offset, f"id{number}", "", begin, end)
                )
            stored[queue].append(key)
    for consumer in range(2):
        for queue, keys in stored.items():
            for offset, key in enumerate(keys):
                begin = 100_000 + 1_000 * consumer + offset
                position = 1_000 * offset + queue
                events.append(ReadMessage("T", queue, offset, key, position, begin, begin + 1))
            events.append(ReadMessage("T", queue, len(keys), "", -1, 200_000, 200_001))
    return events


def _replaced(events: list[Event], old: Event, **changes: object) -> list[Event]:
    return [msgspec.structs.replace(e, **changes) if e == old else e for e in events]


def _plain(events: list[Event], chance: random.Random) -> AcknowledgedSend:
    """An acknowledged plain message that is neither first nor last in its queue."""
    kinds = [e for e in events if isinstance(e, AcknowledgedSend) and not e.transaction]
    return chance.choice([e for e in kinds if 0 < e.offset < PLANTABLE - 1])


def _reads(events: list[Event], key: str) -> list[ReadMessage]:
    return [e for e in events if isinstance(e, ReadMessage) and e.key == key]


def lose(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    """Nobody reads a message that was acknowledged."""
    sent = _plain(events, chance)
    rest: list[Event] = [
        e for e in events if not (isinstance(e, ReadMessage) and e.key == sent.key)
    ]
    return rest, sent.key


def lose_commit(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    half = AcknowledgedSend("T", "half", 0, 0, "id", "committed")
    return [*events, half, AcknowledgedEnd("committed", "commit")], "half"


def show_aborted(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    sent = _plain(events, chance)
    half = msgspec.structs.replace(sent, transaction="aborted")
    changed: list[Event] = [half if e == sent else e for e in events]
    return [*changed, AcknowledgedEnd("aborted", "rollback")], sent.key


def contradict(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    return [*events, AcknowledgedEnd("both", "commit"), AcknowledgedEnd("both", "rollback")], "both"


def diverge(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    """One consumer reads another content."""
    sent = _plain(events, chance)
    return _replaced(events, _reads(events, sent.key)[0], key="other"), "other"


def give_offset_twice(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    sent = _plain(events, chance)
    return [*events, msgspec.structs.replace(sent, key="again")], "again"


def move(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    sent = _plain(events, chance)
    return _replaced(events, sent, offset=sent.offset + 10_000), sent.key


def leave_gap(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    """A message that nobody had an answer for was skipped."""
    sent = _plain(events, chance)
    rest = [
        e for e in events if e != sent and not (isinstance(e, ReadMessage) and e.key == sent.key)
    ]
    return rest, f"{sent.offset} to {sent.offset}"


def double(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    sent = _plain(events, chance)
    end = max(e.offset for e in events if isinstance(e, ReadMessage) and e.queue == sent.queue)
    return [*events, ReadMessage("T", sent.queue, end, sent.key, 999_999)], sent.key


def double_in_the_log(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    sent = _plain(events, chance)
    return _replaced(events, _reads(events, sent.key)[1], position=999_999), sent.key


Plant = Callable[[list[Event], random.Random], tuple[list[Event], str]]
PLANTS: list[tuple[Plant, ViolationKind]] = [
    (lose, ViolationKind.LOST),
    (lose_commit, ViolationKind.LOST),
    (show_aborted, ViolationKind.ABORTED),
    (contradict, ViolationKind.CONTRADICTED),
    (diverge, ViolationKind.DIVERGING),
    (give_offset_twice, ViolationKind.DIVERGING),
    (move, ViolationKind.MOVED),
    (leave_gap, ViolationKind.GAP),
    (double, ViolationKind.DOUBLED),
    (double_in_the_log, ViolationKind.DOUBLED),
]


@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_nothing_is_found_where_all_is_well(seed: int, order: random.Random) -> None:
    events = healthy(seed)
    order.shuffle(events)
    assert find_violations(events) == []


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=lambda each: getattr(each, "__name__", ""))
@given(seed=st.integers(0, 2**32))
def test_what_is_planted_is_found(plant: Plant, kind: ViolationKind, seed: int) -> None:
    chance = random.Random(seed)
    events, about = plant(healthy(seed), chance)
    chance.shuffle(events)
    assert any(found.kind is kind and about in found.about for found in find_violations(events))


def test_who_sent_a_message_is_known_where_all_attempts_are() -> None:
    events: list[Event] = [ReadMessage("T", 0, 0, "a"), ReadMessage("T", 0, 1, "b")]
    assert find_violations(events) == []
    assert find_violations(events, attempted=frozenset("a")) == [
        Violation(ViolationKind.UNKNOWN, "b", "b")
    ]


def test_files_are_judged_but_for_a_torn_last_line(tmp_path: Path) -> None:
    file = tmp_path / "producer.jsonl"
    with file.open("ab") as lines:
        for event in (*healthy(1), AcknowledgedSend("T", "gone", 0, 7_000, "id")):
            history.append_event(lines, event)
        lines.write(b'{"event":"sent","topic":')
    assert len(list(history.read_events([file]))) == len(healthy(1)) + 1
    command = [sys.executable, "-m", "escrowmq.drill.judge", str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert (done.returncode, done.stdout) == (
        1,
        "LOST: gone at T/0/7000: acknowledged, and never read\n",
    )


needs_go = pytest.mark.skipif(
    bool(jars.missing_tools(*porcupine.TOOLS)), reason="not on this machine: go"
)


def late(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    """Two sends in a row get their offsets the other way round."""
    sent = _plain(events, chance)
    after = next(
        e for e in events
        if isinstance(e, AcknowledgedSend) and (e.queue, e.offset) == (sent.queue, sent.offset + 1)
    )  # fmt: skip
    swapped = {sent.key: (after.offset, after.key), after.key: (sent.offset, sent.key)}
    return [
        msgspec.structs.replace(e, offset=swapped[e.key][0])
        if isinstance(e, (AcknowledgedSend, ReadMessage)) and e.key in swapped
        else e
        for e in events
    ], f"queue T/{sent.queue}"


def end_early(events: list[Event], chance: random.Random) -> tuple[list[Event], str]:
    """After all was acknowledged, a reader finds the queue's end before it."""
    sent = _plain(events, chance)
    return [
        *events, ReadMessage("T", sent.queue, sent.offset, "", -1, 300_000, 300_001)
    ], f"queue T/{sent.queue}"  # fmt: skip


@needs_go
def test_porcupine_finds_nothing_where_all_is_well() -> None:
    for seed in range(20):
        assert porcupine.violations(healthy(seed)) == []


@needs_go
@pytest.mark.parametrize(
    ("plant", "where"),
    [(late, "queue"), (end_early, "queue"), (give_offset_twice, "offset"), (diverge, "offset")],
)
def test_porcupine_finds_what_is_planted(plant: Plant, where: str) -> None:
    for seed in range(5):
        events, _ = plant(healthy(seed), random.Random(seed))
        found = porcupine.violations(events)
        assert any(line.startswith(f"{where} T/") and "Illegal" in line for line in found)
