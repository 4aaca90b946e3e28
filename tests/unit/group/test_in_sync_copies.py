from __future__ import annotations

from escrowmq.group.in_sync_copies import CopyStates

SET = {"me": "0", "a": "1"}


def of() -> CopyStates:
    copies = CopyStates()
    copies.set_has_all(lambda _member, _incarnation: True)
    copies.set_in_sync(SET, 1_000)
    return copies


def test_a_copy_is_late_that_lacks_something_for_too_long() -> None:
    copies = of()
    copies.note_report("a", "1", current_ms=2_000)
    assert copies.late_members(SET, 2_000, me="me") == set()
    assert copies.late_members(SET, 2_001, me="me") == {"a"}


def test_another_incarnation_is_late_at_once() -> None:
    copies = of()
    copies.note_report("a", "2", current_ms=9_000)
    assert copies.late_members(SET, 0, me="me") == {"a"}


def test_a_closed_connection_is_late_half_a_second_later() -> None:
    copies = of()
    copies.note_report("a", "1", current_ms=9_000)
    copies.note_disconnected("a", silence_ms=3_000, now_ms=9_000)
    assert copies.late_members(SET, 9_400 - 3_000, me="me") == set()
    assert copies.late_members(SET, 9_501 - 3_000, me="me") == {"a"}


def test_nobody_is_late_because_this_process_did_not_run() -> None:
    copies = of()
    copies.ignore_suspension(60_000)
    assert copies.late_members(SET, 61_000, me="me") == set()


def test_who_has_everything_may_join_and_rests_longer_each_time() -> None:
    copies = of()
    copies.note_report("b", "1", current_ms=1_000)
    assert list(copies.members_caught_up(SET, 1_000)) == [("b", "1")]
    both = {**SET, "b": "1"}
    now_ms = 2_000
    waits = []
    for _ in range(3):
        copies.set_in_sync(both, now_ms)
        assert list(copies.members_caught_up(both, now_ms)) == []
        copies.set_in_sync(SET, now_ms)
        copies.note_report("b", "1", current_ms=now_ms)
        waited_ms = 0
        while not list(copies.members_caught_up(SET, now_ms + waited_ms)):
            waited_ms += 1_000
        waits.append(waited_ms)
        now_ms += waited_ms
    assert waits == [1_000, 10_000, 20_000], "it is asked once a second"


def test_who_lacks_what_was_acknowledged_since_its_report_may_not_join() -> None:
    copies = of()
    copies.note_report("b", "1", current_ms=1_000)
    copies.set_has_all(lambda member, incarnation: (member, incarnation) != ("b", "1"))
    assert list(copies.members_caught_up(SET, 1_000)) == []


def test_who_has_just_left_does_not_come_back_by_what_it_reported_before() -> None:
    """Nothing was acknowledged meanwhile, so it has all that was, and it is behind still."""
    copies = of()
    copies.note_report("a", "1", current_ms=2_000)
    copies.set_in_sync({"me": "0"}, 5_000)
    assert list(copies.members_caught_up({"me": "0"}, 5_050)) == []
    assert list(copies.members_caught_up({"me": "0"}, 5_200)) == [("a", "1")]
