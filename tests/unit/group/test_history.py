from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.group.history import (
    EpochStart,
    History,
    common_end,
    with_new_epoch,
    without_empty_epochs,
)


def grown(history: History, log: list[int], epoch: int, size: int) -> tuple[History, list[int]]:
    """A master of an epoch appends so many bytes; each byte is told by its epoch."""
    return with_new_epoch(history, epoch, len(log)), log + [epoch] * size


def test_an_epoch_without_bytes_is_left_out() -> None:
    assert without_empty_epochs(
        (EpochStart(1, 0), EpochStart(2, 10), EpochStart(3, 10), EpochStart(4, 30)), 30
    ) == (
        EpochStart(1, 0),
        EpochStart(3, 10),
    )
    assert without_empty_epochs((EpochStart(1, 0),), 0) == ()


def test_two_logs_of_other_epochs_have_nothing_in_common() -> None:
    assert common_end((EpochStart(1, 0),), 100, (EpochStart(2, 0),), 100) == 0
    assert common_end((), 0, (EpochStart(2, 0),), 100) == 0


def test_a_deposed_masters_tail_is_not_common() -> None:
    old = (EpochStart(1, 0), EpochStart(2, 50))
    new = (EpochStart(1, 0), EpochStart(3, 40), EpochStart(4, 60))
    assert common_end(new, 90, old, 70) == 40


@given(st.integers(0, 2**32))
def test_what_is_common_is_the_same_in_both(seed: int) -> None:
    chance = random.Random(seed)
    logs: list[tuple[History, list[int]]] = [((), []) for _ in range(3)]
    for epoch in range(1, 8):
        at = chance.randrange(3)
        logs[at] = grown(*logs[at], epoch, chance.randrange(4))
        for other in range(3):
            if other == at or chance.random() < 0.4:
                continue
            (history, log), (theirs, copy) = logs[at], logs[other]
            same = common_end(history, len(log), theirs, len(copy))
            assert copy[:same] == log[:same]
            end = chance.randint(same, len(log))
            logs[other] = history, log[:end]
    (history, log), (theirs, copy) = logs[0], logs[1]
    same = common_end(history, len(log), theirs, len(copy))
    assert same == common_end(theirs, len(copy), history, len(log))
    assert log[:same] == copy[:same]
    if same < min(len(log), len(copy)):
        assert log[same] != copy[same]  # no more is given up than has to be
