from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX, BUNDLE_SIZE_MAX
from escrowmq.base.message import Topic
from escrowmq.store.store import PutStatus
from escrowmq.txn import bundle as module
from escrowmq.txn.bundle import BundleId, Bundles
from escrowmq.txn.check_schedule import LiveProducer
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.half_records import make_final
from escrowmq.txn.state import State, Verdict

from .ground import Ground

COMMIT, ROLLBACK = Verdict.COMMIT, Verdict.ROLLBACK


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_op_record_names_all_halves_of_a_transaction(ground: Ground) -> None:
    """What 400 ends leave no room for goes to the next record as a whole."""
    for n in range(399):
        ground.end(ground.prepare(b"s%d" % n), ROLLBACK, seals=False)
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.end(halves[0], ROLLBACK, seals=False)
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.ops()[-1] == b"399,400,401,"


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.sampled_from((1, 2, 3, 150, 399, 400, 401, 1_000)), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_no_op_record_divides_a_transaction_however_many_end_together(
    ends: list[tuple[int, bool]],
) -> None:
    """Of one input: each half is named once, and those of one transaction in one record. Whatever
    is smaller than a record goes into one with others."""
    ground = Ground()
    bundles: list[set[int]] = []
    for nth, (count, is_commit) in enumerate(ends):
        halves = [ground.prepare(b"m", escrowTransaction=f"tx-{nth}") for _ in range(count)]
        bundles.append({half.queue_offset for half in halves})
        answer = ground.end(halves[count // 2], COMMIT if is_commit else ROLLBACK, seals=False)
        assert answer.answer == EndResult.DONE
    ground.engine.unsealed.seal(ground.now_ms)
    records = [[int(part) for part in op.split(b",")[:-1]] for op in ground.ops()]
    assert sorted(n for record in records for n in record) == sorted(set().union(*bundles))
    for bundle in bundles:
        assert sum(bool(bundle & set(record)) for record in records) == 1
    for one, other in itertools.pairwise(records):
        first = next(bundle for bundle in bundles if bundle & set(other))
        assert len(one) + len(first) > 400
    assert len(ground.finals()) == sum(count for count, is_commit in ends if is_commit)


def test_the_digest_of_a_name_is_that_of_its_three_parts() -> None:
    """It stands in op records: another release has to make the same of a name."""
    names = [
        BundleId("PG", "tx"),
        BundleId("PGt", "x"),
        BundleId("PG", "tx", "me"),
        BundleId("", ""),
    ]
    assert len({name.digest for name in names}) == 4
    assert BundleId("PG", "tx").digest == "jeYUxHPsdveDhXat"


def test_a_transaction_has_so_many_messages_and_so_many_bytes() -> None:
    bundles = Bundles()
    name = BundleId("PG", "tx")
    for queue_offset in range(BUNDLE_MESSAGES_MAX):
        assert bundles.refusal(name, 1) == ""
        bundles.add(name, queue_offset)
    assert bundles.refusal(name) == "transaction tx has 1000 messages, the most allowed"
    large = BundleId("PG", "large")
    bundles.add(large, 5_000)
    bundles.add_body_size(5_000, BUNDLE_SIZE_MAX - 10)
    assert bundles.refusal(large, 10) == ""
    assert "16777216 are allowed: send large things apart" in bundles.refusal(large, 11)
    bundles.remove(5_000, State.ROLLED_BACK)
    assert "ROLLED_BACK already" in bundles.refusal(large, 11)


def test_transaction_with_a_message_that_cannot_be_read_can_only_be_rolled_back(
    ground: Ground,
) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.damage(halves[1])
    assert ground.end(halves[0], COMMIT).answer == EndResult.UNREADABLE
    assert ground.finals() == []
    assert ground.end(halves[2], COMMIT).answer == EndResult.UNREADABLE
    assert ground.end(halves[2], ROLLBACK).answer == EndResult.DONE
    assert ground.finals() == []
    assert len(ground.engine.halves.pending) == 0


@pytest.mark.parametrize("nth", range(3))
@pytest.mark.parametrize("is_known_before", [True, False])
def test_a_message_that_cannot_be_read_counts_after_a_restart_too(
    ground: Ground, nth: int, *, is_known_before: bool
) -> None:
    """The others could be committed without it."""
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    other = ground.prepare(b"other", escrowTransaction="other")
    ground.damage(halves[nth])
    first, second = (half for half in halves if half is not halves[nth])
    if is_known_before:
        assert ground.end(first, COMMIT).answer == EndResult.UNREADABLE
    ground.reopen()
    assert ground.end(first, COMMIT).answer == EndResult.UNREADABLE
    assert ground.end(other, COMMIT).answer == EndResult.DONE
    assert ground.finals() == [b"other"]
    assert ground.end(second, ROLLBACK).answer == EndResult.DONE
    assert len(ground.engine.halves.pending) == 0


def test_next_half_is_asked_about_when_the_first_cannot_be_read(ground: Ground) -> None:
    ground.members["PG"] = [LiveProducer(1, "a")]
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(2)]
    ground.damage(halves[0])
    asks = ground.due(6_100) + ground.due(100)
    assert [ask.queue_offset for ask in asks] == [1]


def test_rest_of_a_transaction_follows_when_the_disk_failed_in_the_middle(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.store.puts_left = 1
    ended = ground.end(halves[0], COMMIT)
    assert ended.answer == EndResult.NOT_STORED
    assert ground.finals() == [b"m0"]
    assert ground.engine.halves.ledger.outcome(0) == State.COMMITTED
    ground.store.puts_left = None
    ground.due(1_000)
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.finals() == [b"m0", b"m1", b"m2"]
    assert ground.end(halves[1], ROLLBACK).answer == EndResult.CONTRADICTED


def test_nothing_is_visible_when_not_all_has_room(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.store.has_room_left = False
    ended = ground.end(halves[0], COMMIT)
    assert (ended.answer, ground.finals()) == (EndResult.NOT_STORED, [])
    assert ended.put is not None
    assert ended.put.status == PutStatus.SERVICE_NOT_AVAILABLE
    ground.store.has_room_left = True
    assert ground.end(halves[0], COMMIT).answer == EndResult.DONE


def test_rollback_of_several_that_cannot_be_stored_is_undone_whole(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.store.refused = frozenset({Topic.OP})
    ground.end(halves[0], ROLLBACK, seals=False)
    _, undone = ground.engine.unsealed.seal(ground.now_ms)
    assert undone == {0, 1, 2}
    ground.store.refused = frozenset()
    ended = ground.end(halves[1], COMMIT)
    assert (ended.answer, ended.count) == (EndResult.DONE, 3)
    assert ground.finals() == [b"m0", b"m1", b"m2"]


def test_first_half_of_the_log_is_not_taken_for_that_of_a_delayed_message() -> None:
    """A message that was delivered later says that its half stands at offset 0, as all do that
    have none."""
    ground = Ground()
    first = ground.prepare(b"first")
    assert first.log_offset == 0
    other = ground.prepare(b"other")
    final = make_final(other)
    assert final is not None
    ground.store.put(msgspec.structs.replace(final, prepared_log_offset=0), ground.now_ms)
    ground.reopen()
    assert ground.end(first, ROLLBACK).answer == EndResult.DONE


TX = BundleId("PG", "tx")


@pytest.mark.parametrize(
    ("text", "said"),
    [("t" * 64, ""), ("t" * 65, "65 characters"), ("a\nb", "can be printed"), ("", "")],
)
def test_the_name_of_a_transaction_is_short_and_can_be_printed(text: str, said: str) -> None:
    refusal = Bundles().refusal(BundleId("PG", text))
    assert (said in refusal, bool(refusal)) == (True, bool(said))


def test_a_half_of_no_transaction_leaves_none() -> None:
    bundles = Bundles()
    assert bundles.remove(5, State.COMMITTED) is None
    bundles.remove_replaced(5)
    bundles.remove_settled_elsewhere(5)


def test_what_was_dropped_counts_no_more() -> None:
    bundles = Bundles()
    for queue_offset in (1, 2):
        bundles.add(TX, queue_offset)
        bundles.add_body_size(queue_offset, BUNDLE_SIZE_MAX // 2)
    assert bundles.refusal(TX, 1)
    bundles.remove_settled_elsewhere(1)
    assert bundles.members(2) == [2]
    assert bundles.refusal(TX, 1), "its bytes are in the log"
    bundles.remove_settled_elsewhere(2)
    assert not bundles.refusal(TX, BUNDLE_SIZE_MAX)


def test_a_copy_and_its_original_are_told_apart_in_any_order() -> None:
    for removed, left in ((8, 2), (2, 8)):
        bundles = Bundles()
        bundles.add(TX, 8, 2)
        bundles.add(TX, 2)
        bundles.remove_settled_elsewhere(removed)
        assert bundles.members(left) == [left]


def test_the_newest_ended_transactions_take_no_late_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUNDLES_REMEMBERED_MAX", 2)
    bundles, names = Bundles(), [BundleId("PG", text) for text in "abc"]
    for name in names:
        bundles.note_ended(name.digest, State.COMMITTED)
    assert [bool(bundles.refusal(name)) for name in names] == [False, True, True]


def test_a_copy_takes_the_place_of_the_half_that_it_replaces() -> None:
    bundles = Bundles()
    for queue_offset in (1, 2, 3):
        bundles.add(TX, queue_offset)
    for old, new, members in ((2, 8, [1, 8, 3]), (1, 9, [9, 8, 3]), (9, 10, [10, 8, 3])):
        bundles.add(TX, new, {2: 2, 1: 1, 9: 1}[old])
        bundles.remove_replaced(old)
        assert bundles.members(3) == members
    assert [bundles.is_first_of_bundle(each) for each in members] == [True, False, False]
    bundles.remove_settled_elsewhere(8)
    assert bundles.remove(10, State.COMMITTED) == 3
