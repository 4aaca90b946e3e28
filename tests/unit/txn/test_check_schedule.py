from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Topic
from escrowmq.txn import check_schedule
from escrowmq.txn.carry_forward import Carrier
from escrowmq.txn.check_schedule import (
    CHECKS_SENT_MAX,
    DUE_HANDLED_MAX,
    CheckToSend,
    LiveProducer,
)
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.state import Verdict
from escrowmq.txn.unconfirmed_checks import UNHEARD_MAX, UnconfirmedChecks
from tests.harness.exchange import SMALL

from .ground import FIRST_MS, NEXT_MS, A, B, C, Ground, ground_of

MUTE_AFTER, MUTE_MS = BrokerSettings().mute_after, BrokerSettings().mute_ms


def test_nothing_is_asked_before_its_time_and_nothing_twice() -> None:
    ground = ground_of(A)
    half = ground.prepare()
    assert ground.due(5_999) == []
    (ask,) = ground.due(51)
    assert (ask.peer, ask.queue_offset, ask.half, ask.count) == (1, 0, half, 1)
    assert ground.due(29_900) == []
    (ask,) = ground.due(200)
    assert ask.count == 2


def test_checker_wakes_within_a_bucket_of_the_time() -> None:
    ground = ground_of(A)
    ground.prepare()
    assert ground.now_ms + 6_000 <= ground.checker.wake_at_ms() <= ground.now_ms + FIRST_MS


def test_sender_is_asked_first_and_the_others_in_turn() -> None:
    ground = ground_of(A, B, C)
    ground.prepare(origin="c")
    peers = []
    for span_ms in (FIRST_MS, NEXT_MS, NEXT_MS, NEXT_MS):
        (ask,) = ground.due(span_ms)
        ground.checker.note_answer(ask.queue_offset, ask.peer)
        peers.append(ask.peer)
    assert peers[0] == 3
    assert set(peers[1:]) == {1, 2, 3}


def test_whoever_says_that_the_block_is_open_is_asked_alone_and_without_end() -> None:
    ground = ground_of(A, B, C, transaction_checks_max=3)
    ground.prepare(origin="b")
    span_ms = FIRST_MS
    for _ in range(40):
        (ask,) = ground.due(span_ms)
        assert (ask.peer, ask.count) == (2, 1)
        ground.checker.note_answer(ask.queue_offset, ask.peer)
        ground.checker.note_open_report(ask.queue_offset, ask.peer)
        span_ms = NEXT_MS
    ground.members["PG"] = [A, C]
    (ask,) = ground.due(NEXT_MS)
    assert ask.peer in (1, 3)
    assert ask.count == 2


def held_open(ground: Ground, ask: CheckToSend) -> None:
    """The answer to a check: its transaction is under way there."""
    ground.checker.note_answer(ask.queue_offset, ask.peer)
    ground.checker.note_open_report(ask.queue_offset, ask.peer)


def test_whoever_has_the_block_open_is_asked_although_it_is_mute_about_others() -> None:
    """Somebody else can only guess, and would have rolled back what is committed a moment later."""
    ground = ground_of(A, B, check_answer_ms=1_000)
    ground.prepare(b"open", origin="a")
    (ask,) = ground.due(FIRST_MS)
    held_open(ground, ask)
    for number in range(MUTE_AFTER):
        ground.prepare(b"%d" % number, origin="a")
    asked = ground.due(FIRST_MS) + ground.due(1_001) + ground.due(NEXT_MS)
    assert [each.peer for each in asked if each.queue_offset == ask.queue_offset] == [1]
    assert 2 in {each.peer for each in asked}, "it is mute"


def test_whoever_has_the_block_open_is_asked_about_the_copy_that_was_carried_forward() -> None:
    """The mark stayed with the first copy: the next check went to the next member, and counted."""
    ground = ground_of(A, B)
    ground.prepare(origin="a")
    (ask,) = ground.due(FIRST_MS)
    held_open(ground, ask)
    Carrier(ground.engine, ground.checker, ground.store).carry(1 << 40, ground.now_ms)
    (again,) = ground.due(NEXT_MS)
    assert again.queue_offset != ask.queue_offset
    assert (again.peer, again.count) == (1, 1)


def test_at_rocketmq_nobody_holds_a_block_open() -> None:
    ground = ground_of(A, B, asks_origin_first=False)
    ground.prepare(origin="b")
    (ask,) = ground.due(FIRST_MS)
    ground.checker.note_open_report(ask.queue_offset, ask.peer)
    (other,) = ground.due(NEXT_MS)
    assert (other.peer != ask.peer, other.count) == (True, 2)


def test_member_that_does_not_answer_is_left_alone_for_a_while() -> None:
    ground = ground_of(A, B, check_answer_ms=1_000)
    for number in range(MUTE_AFTER):
        ground.prepare(b"%d" % number, origin="a")
    assert [ask.peer for ask in ground.due(FIRST_MS)] == [1] * MUTE_AFTER
    ground.due(1_001)
    mute_ms = ground.now_ms
    ground.prepare(b"x", origin="a")
    assert [ask.peer for ask in ground.due(FIRST_MS)] == [2]
    ground.checker.note_answer(MUTE_AFTER, 2)
    for passed_ms, peer in ((MUTE_MS - 1, 2), (MUTE_MS, 1)):
        ground.now_ms = mute_ms + passed_ms
        half = ground.prepare(b"%d" % passed_ms, origin="a")
        ground.checker.check_now([half.queue_offset], ground.now_ms)
        assert peer in [ask.peer for ask in ground.due(0) if ask.half == half]


def test_a_mute_member_is_left_alone_for_as_long_when_the_clock_is_set_forward() -> None:
    ground = ground_of(A, B, check_answer_ms=1_000)
    for number in range(MUTE_AFTER):
        ground.prepare(b"%d" % number, origin="a")
    ground.due(FIRST_MS)
    ground.due(1_001)
    ground.checker.clock_leapt(MUTE_MS)
    ground.now_ms += MUTE_MS
    half = ground.prepare(b"x", origin="a")
    ground.checker.check_now([half.queue_offset], ground.now_ms)
    assert [ask.peer for ask in ground.due(0) if ask.half == half] == [2]


def test_group_of_mute_members_is_asked_all_the_same() -> None:
    ground = ground_of(A, check_answer_ms=1_000)
    for number in range(MUTE_AFTER):
        ground.prepare(b"%d" % number)
    ground.due(FIRST_MS)
    assert len(ground.due(NEXT_MS)) == MUTE_AFTER
    assert ground.checker.counters.unanswered == MUTE_AFTER


def test_group_that_is_away_is_parked_uncounted_and_asked_when_somebody_comes() -> None:
    ground = ground_of()
    half = ground.prepare()
    assert ground.due(FIRST_MS) == []
    assert ground.due(3_600_000) == []
    assert ground.checker.parked_groups() == ["PG"]
    assert ground.checker.parked_count("PG") == 1
    assert ground.engine.halves.pending.checks_count(half.queue_offset) == 0
    ground.members["PG"] = [A]
    ground.checker.unpark_for_producer("PG", ground.now_ms)
    (ask,) = ground.due(50)
    assert (ask.peer, ask.count) == (1, 1)
    assert ground.checker.parked_groups() == []


def test_parked_halves_beyond_one_go_become_due_one_go_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_schedule, "UNPARKED_MAX", 5)
    ground = ground_of()
    halves = [ground.prepare(b"%d" % number).queue_offset for number in range(7)]
    while not ground.checker.is_parked(halves[-1], "PG"):
        ground.due(FIRST_MS)
    ground.members["PG"] = [A]
    ground.checker.unpark_for_producer("PG", ground.now_ms)
    assert ground.checker.wake_at_ms() == 0
    asked: list[int] = []
    while asks := ground.due(50):
        for ask in asks:
            asked.append(ask.queue_offset)
            ground.checker.note_answer(ask.queue_offset, 1)
    assert sorted(asked) == halves


def test_parked_half_that_was_ended_is_not_asked_about() -> None:
    ground = ground_of()
    half = ground.prepare()
    ground.due(FIRST_MS)
    ground.end(half, Verdict.COMMIT)
    assert ground.checker.parked_groups() == []
    ground.members["PG"] = [A]
    ground.checker.unpark_for_producer("PG", ground.now_ms)
    assert ground.due(50) == []


def test_as_many_checks_of_a_group_are_under_way_as_may_be() -> None:
    ground = ground_of(A, checks_in_flight_max=2)
    for number in range(5):
        ground.prepare(b"%d" % number)
    first = ground.due(FIRST_MS)
    assert len(first) == 2
    assert ground.due(10) == []
    assert ground.checker.wake_at_ms() > ground.now_ms
    ground.checker.note_answer(first[0].queue_offset, 1)
    assert ground.checker.wake_at_ms() == 0
    assert len(ground.due(10)) == 1
    assert len(ground.due(5_000)) == 2  # those that nobody answered make room


def test_crowded_group_starves_no_other() -> None:
    ground = ground_of(A, checks_in_flight_max=2)
    ground.members["Other"] = [B]
    for number in range(DUE_HANDLED_MAX - 1):
        ground.prepare(b"%d" % number)
    ground.prepare(b"other", group="Other")
    asks = ground.due(FIRST_MS)
    assert [ask.half.properties["PGROUP"] for ask in asks].count("Other") == 1
    assert len(asks) == 3


def test_checks_are_made_a_few_at_a_time_and_the_groups_take_turns() -> None:
    """All that may be under way, made in one turn, kept ends waiting for 20 ms."""
    ground = ground_of(A)
    ground.members["Other"] = [B]
    for number in range(CHECKS_SENT_MAX):
        ground.prepare(b"%d" % number)
        ground.prepare(b"other %d" % number, group="Other")
    first = ground.due(FIRST_MS)
    assert [ask.half.properties["PGROUP"] for ask in first] == ["PG"] * CHECKS_SENT_MAX
    assert ground.checker.wake_at_ms() <= ground.now_ms
    second = ground.due(0)
    assert [ask.half.properties["PGROUP"] for ask in second] == ["Other"] * CHECKS_SENT_MAX
    assert ground.due(0) == []
    assert ground.checker.wake_at_ms() > ground.now_ms


def test_half_of_a_group_that_is_away_is_parked_without_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a service that is down come by the thousand, and ends wait for them."""
    ground = Ground()
    half = ground.prepare(b"nobody there")
    with monkeypatch.context() as patch:
        patch.delattr(Halves, "find_half")
        assert ground.due(FIRST_MS) == []
    assert ground.checker.is_parked(half.queue_offset, "PG")
    ground.members["PG"] = [A]
    ground.checker.unpark_for_producer("PG", ground.now_ms)
    assert len(ground.due(50)) == 1


def test_half_is_given_up_after_the_checks_that_were_delivered() -> None:
    ground = ground_of(A, transaction_checks_max=3)
    half = ground.prepare(b"paid")
    spans = [FIRST_MS, NEXT_MS, NEXT_MS]
    assert [len(ground.due(span)) for span in spans] == [1, 1, 1]
    assert ground.discards() == []
    assert ground.due(NEXT_MS) == []
    assert ground.discards() == [b"paid"]
    (kept,) = ground.messages(Topic.CHECK_MAX_TIME)
    assert kept.properties["REAL_TOPIC"] == "T"
    assert half.queue_offset not in ground.engine.halves.pending
    assert ground.ops() == [b"0,"]


def test_half_of_a_group_that_is_away_is_not_given_up_by_checks_but_by_age() -> None:
    ground = Ground(
        BrokerSettings(transaction_checks_max=1),
        msgspec.structs.replace(SMALL, reserved_hours=2),
    )
    ground.prepare(b"old")
    for _ in range(20):
        ground.due(NEXT_MS)
    assert ground.discards() == []
    ground.now_ms += 2 * 3_600_000
    ground.members["PG"] = [A]
    ground.checker.unpark_for_producer("PG", ground.now_ms)
    assert ground.due(50) == []
    assert ground.discards() == [b"old"]


def test_counting_as_the_peer_does_gives_up_what_nobody_was_asked_about() -> None:
    ground = ground_of(counts_all_checks=True, transaction_checks_max=2)
    ground.prepare(b"paid")
    for span_ms in (FIRST_MS, NEXT_MS):
        ground.due(span_ms)
        assert ground.discards() == []
    ground.due(NEXT_MS)
    assert ground.discards() == [b"paid"]


def test_immunity_postpones_the_first_check_and_counts_none() -> None:
    ground = ground_of(A)
    ground.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(100):
        assert ground.due(35_000) == []
    (ask,) = ground.due(100_050)
    assert ask.count == 1


def test_an_answer_is_no_reason_to_wake_where_nothing_waits() -> None:
    ground = ground_of(A)
    ground.prepare()
    ground.due(FIRST_MS)
    ground.checker.note_answer(0, 1)
    assert ground.checker.wake_at_ms() > ground.now_ms


def test_no_more_than_some_checks_of_one_group_are_made_at_a_time() -> None:
    ground = ground_of(A, checks_in_flight_max=3 * CHECKS_SENT_MAX)
    for number in range(CHECKS_SENT_MAX + 5):
        ground.prepare(b"%d" % number)
    assert [len(ground.due(span_ms)) for span_ms in (FIRST_MS, 0)] == [CHECKS_SENT_MAX, 5]


def test_a_group_with_more_checks_than_one_turn_has_lets_the_next_one_begin() -> None:
    ground = ground_of(A, checks_in_flight_max=3 * CHECKS_SENT_MAX)
    ground.members["Other"] = [B]
    for number in range(DUE_HANDLED_MAX - 5):
        ground.prepare(b"%d" % number)
    for number in range(5):
        ground.prepare(b"other %d" % number, group="Other")
    first, second = ([ask.peer for ask in ground.due(span_ms)] for span_ms in (FIRST_MS, 0))
    assert first == [1] * CHECKS_SENT_MAX
    assert second == [2] * 5 + [1] * (CHECKS_SENT_MAX - 5)


def test_at_rocketmq_the_members_take_turns_whoever_sent_the_half() -> None:
    ground = ground_of(A, B, C, asks_origin_first=False)
    for number in range(3):
        ground.prepare(b"%d" % number, origin="c")
    assert {ask.peer for ask in ground.due(FIRST_MS)} == {1, 2, 3}


def test_half_of_a_group_that_never_comes_back_is_given_up_by_age() -> None:
    ground = Ground(BrokerSettings(), msgspec.structs.replace(SMALL, reserved_hours=2))
    ground.prepare(b"old")
    assert ground.due(FIRST_MS) == []
    ground.due(2 * 3_600_000)
    assert ground.discards() == [b"old"]


def test_check_of_a_lost_connection_makes_room_when_its_time_is_over() -> None:
    ground = ground_of(A, checks_in_flight_max=1)
    for number in range(2):
        ground.prepare(b"%d" % number)
    assert len(ground.due(FIRST_MS)) == 1
    ground.checker.peer_lost(1, ground.now_ms)
    assert len(ground.due(5_001)) == 1


def test_shorter_time_for_answers_holds_for_checks_under_way_too() -> None:
    ground = ground_of(A, checks_in_flight_max=2, check_answer_ms=3_600_000)
    for number in range(3):
        ground.prepare(b"%d" % number)
    assert len(ground.due(FIRST_MS)) == 2
    ground.settings.check_answer_ms = 5_000
    assert ground.checker.wake_at_ms() <= ground.now_ms + 5_000
    assert len(ground.due(5_001)) == 1


def test_nothing_is_kept_of_a_connection_that_ended_before_its_checks_did() -> None:
    ground = ground_of(A)
    ground.prepare()
    assert len(ground.due(FIRST_MS)) == 1
    ground.members["PG"] = [B]
    ground.checker.peer_lost(1, ground.now_ms)
    ground.due(5_001)
    assert ground.checker.counters.unanswered == 1
    assert not ground.checker._unanswered_counts


def test_check_whose_connection_ends_without_an_answer_does_not_count() -> None:
    ground = ground_of(A, transaction_checks_max=1)
    half = ground.prepare(b"paid")
    for peer in (1, 2, 3):
        ground.members["PG"] = [LiveProducer(peer, "a")]
        (ask,) = ground.due(FIRST_MS if peer == 1 else NEXT_MS)
        assert (ask.peer, ask.count) == (peer, 1)
        ground.checker.peer_lost(peer, ground.now_ms)
        assert ground.engine.halves.pending.checks_count(half.queue_offset) == 0
    assert ground.discards() == []
    ground.reopen()
    assert ground.engine.halves.pending.checks_count(half.queue_offset) == 0


@pytest.mark.parametrize("heard", ["an answer", "a heartbeat"])
def test_check_counts_when_anything_was_heard_of_its_client_later(heard: str) -> None:
    ground = ground_of(A, transaction_checks_max=5)
    first, second = ground.prepare(b"1"), ground.prepare(b"2")
    assert len(ground.due(FIRST_MS)) == 2
    if heard == "an answer":
        ground.checker.note_answer(second.queue_offset, 1)
    else:
        ground.checker.unconfirmed.heard_ms = lambda _: ground.now_ms
    ground.checker.peer_lost(1, ground.now_ms)
    counts = [ground.engine.halves.pending.checks_count(h.queue_offset) for h in (first, second)]
    assert counts == [1, 1]


def test_check_of_a_half_that_was_settled_meanwhile_is_nobodys() -> None:
    ground = ground_of(A)
    half = ground.prepare()
    ground.due(FIRST_MS)
    ground.end(half, Verdict.COMMIT)
    ground.checker.peer_lost(1, ground.now_ms)
    assert half.queue_offset not in ground.engine.halves.pending


def test_counting_as_the_peer_does_counts_what_a_lost_connection_was_asked() -> None:
    ground = ground_of(A, counts_all_checks=True, transaction_checks_max=5)
    half = ground.prepare()
    ground.due(FIRST_MS)
    ground.checker.peer_lost(1, ground.now_ms)
    assert ground.engine.halves.pending.checks_count(half.queue_offset) == 1


def test_what_is_kept_in_mind_of_a_silent_connection_is_bounded() -> None:
    unconfirmed = UnconfirmedChecks()
    for number in range(UNHEARD_MAX + 10):
        unconfirmed.note_sent(1, number, number)
    assert unconfirmed.take_unconfirmed(1) == list(range(10, UNHEARD_MAX + 10))
    unconfirmed.heard_ms = lambda _: 7
    for number in range(10):
        unconfirmed.note_sent(2, number, number)
    assert unconfirmed.take_unconfirmed(2) == [8, 9]
    assert unconfirmed.take_unconfirmed(2) == []


def test_an_answer_to_a_second_check_is_not_taken_for_one_to_a_first_that_was_heard_of() -> None:
    unconfirmed = UnconfirmedChecks()
    unconfirmed.note_sent(1, 5, 7)
    unconfirmed.heard_ms = lambda _: 7
    unconfirmed.note_sent(1, 5, 10)
    unconfirmed.confirm(1, 5)
    assert unconfirmed.take_unconfirmed(1) == []


def test_an_ended_transaction_is_held_open_by_nobody() -> None:
    ground = ground_of(A)
    half, other = ground.prepare(b"x"), ground.prepare(b"y")
    ground.end(half, Verdict.COMMIT)
    for one in (half, other):
        ground.checker.note_open_report(one.queue_offset, 1)
    assert ground.engine.halves.take_open_reporter(half.queue_offset) is None
    assert ground.engine.halves.take_open_reporter(other.queue_offset) == 1


def test_nothing_is_kept_of_groups_without_checks_under_way() -> None:
    ground = ground_of(A)
    half = ground.prepare()
    ground.due(FIRST_MS)
    assert dict(ground.checker._group_load) == {"PG": 1}
    assert ground.checker._ready == {}
    ground.checker.note_answer(half.queue_offset, 1)
    assert dict(ground.checker._group_load) == {}
    ground.members["PG"] = []
    ground.due(NEXT_MS)
    assert dict(ground.checker._group_load) == {}


@pytest.mark.parametrize("counts_all", [False, True])
def test_a_check_that_could_not_be_sent_counts_only_where_all_do(*, counts_all: bool) -> None:
    ground = ground_of(A, counts_all_checks=counts_all)
    half = ground.prepare()
    (ask,) = ground.due(FIRST_MS)
    ground.checker.note_not_sent(ask.queue_offset)
    assert ground.engine.halves.pending.checks_count(half.queue_offset) == counts_all
