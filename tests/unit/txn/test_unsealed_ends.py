from __future__ import annotations

import pytest

from escrowmq.base.message import Topic
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.state import State, Verdict
from escrowmq.txn.unsealed_ends import SealResult

from .ground import Ground

COMMIT, ROLLBACK = Verdict.COMMIT, Verdict.ROLLBACK


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def test_rollback_whose_op_record_cannot_be_stored_is_undone(ground: Ground) -> None:
    committed, rolled_back = ground.prepare(b"a"), ground.prepare(b"b")
    ground.store.refused = frozenset({Topic.OP})
    ground.end(committed, COMMIT, seals=False)
    ground.end(rolled_back, ROLLBACK, seals=False)
    _, undone = ground.engine.unsealed.seal(ground.now_ms)
    assert undone == {rolled_back.queue_offset}
    assert rolled_back.queue_offset in ground.engine.halves.pending
    assert committed.queue_offset not in ground.engine.halves.pending
    assert ground.engine.halves.meter.pending == {"T": 1}
    ground.store.refused = frozenset()
    assert ground.end(rolled_back, COMMIT).answer == EndResult.DONE
    assert ground.finals() == [b"a", b"b"]
    assert sorted(b"".join(ground.ops()).split(b",")) == [b"", b"0", b"1"]


def test_commit_whose_op_record_cannot_be_stored_stands_and_is_named_later(
    ground: Ground,
) -> None:
    half = ground.prepare(b"paid")
    ground.store.refused = frozenset({Topic.OP})
    ground.end(half, COMMIT)
    assert ground.finals() == [b"paid"]
    assert ground.end(half, COMMIT).answer == EndResult.REPEATED
    ground.store.refused = frozenset()
    ground.engine.unsealed.seal(ground.now_ms)
    assert (ground.finals(), ground.ops()) == ([b"paid"], [b"0,"])


def test_ends_of_one_input_are_named_by_as_few_records_as_their_bound_allows(
    ground: Ground,
) -> None:
    for half in [ground.prepare(b"%d" % n) for n in range(900)]:
        ground.end(half, ROLLBACK, seals=False)
    ground.engine.unsealed.seal(ground.now_ms)
    assert [op.count(b",") for op in ground.ops()] == [400, 400, 100]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_transaction_of_more_messages_than_a_record_names_has_one_of_its_own(
    ground: Ground, names: str
) -> None:
    sizes = (450, 5)
    for name, size in zip(names, sizes, strict=True):
        some = [
            ground.prepare(b"%s%d" % (name.encode(), n), escrowTransaction=name)
            for n in range(size)
        ]
        ground.end(some[0], ROLLBACK, seals=False)
    ground.engine.unsealed.seal(ground.now_ms)
    assert [op.count(b",") for op in ground.ops()] == [*sizes]


def test_a_half_that_was_given_up_is_not_done_with_before_an_op_record_says_so() -> None:
    """World 7393: its copy was kept, and its op record had no room; progress passed it, so that it
    was neither pending nor ended at the next start."""
    ground = Ground()
    halves = [ground.prepare(b"%d" % n) for n in range(2)]
    assert ground.engine.unsealed.lowest_offset is None
    ground.store.refused = frozenset({Topic.OP})
    ground.decide(halves[1], Verdict.EXPIRE)
    ground.decide(halves[0], Verdict.EXPIRE)
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.engine.unsealed.lowest_offset == 0
    ground.store.refused = frozenset()
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.engine.unsealed.lowest_offset is None


def test_ends_whose_op_record_has_no_unit_yet_are_known_to_a_start_on_a_full_disk() -> None:
    """The queue of op records wants another file, for which there is no room."""
    ground = Ground()
    halves = [ground.prepare(b"%d" % number) for number in range(260)]
    for half in halves[:250]:
        ground.end(half, ROLLBACK)
    ground.disk.room = ground.disk.used
    for half in halves[250:]:
        ground.end(half, ROLLBACK)
    assert len(ground.store.dispatcher.waiting) == 4
    ground.reopen()
    assert len(ground.store.dispatcher.waiting) == 4
    assert len(ground.engine.halves.pending) == 0
    outcomes = [ground.engine.halves.ledger.outcome(half.queue_offset) for half in halves]
    assert outcomes == [State.ROLLED_BACK] * 260


@pytest.mark.parametrize("names", [("", "admin"), ("admin", "")])
def test_ends_of_a_producer_and_of_an_administrator_have_op_records_of_their_own(
    ground: Ground, names: tuple[str, str]
) -> None:
    for nth, who in enumerate(names):
        ground.decide(ground.prepare(b"%d" % nth), ROLLBACK, who=who)
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.ops() == [b"0,", b"1,"]


class Kept:
    """An answer that notes what it was given."""

    def __init__(self) -> None:
        self.given: list[SealResult] = []

    def send_answer(self, sealed: SealResult) -> None:
        self.given.append(sealed)


def test_an_answer_is_given_once_even_if_its_op_record_comes_later(ground: Ground) -> None:
    committed, rolled_back = ground.prepare(b"a"), ground.prepare(b"b")
    unsealed, answer = ground.engine.unsealed, Kept()
    ground.store.refused = frozenset({Topic.OP})
    ground.end(committed, COMMIT, seals=False)
    ground.end(rolled_back, ROLLBACK, seals=False)
    unsealed.answers.append(answer)
    sealed = unsealed.seal(ground.now_ms)
    assert answer.given == [sealed]
    assert sealed.undone == {rolled_back.queue_offset}
    assert not unsealed.answers
    assert unsealed.has_any  # the op record of the commit
    ground.store.refused = frozenset()
    unsealed.seal(ground.now_ms)
    assert (len(answer.given), unsealed.has_any) == (1, False)
    unsealed.answers.append(answer)  # of an outcome that is reported again
    assert unsealed.has_any
