"""Which messages leave together, and when, without a clock."""

from __future__ import annotations

from escrowmq.client.core.lingering_groups import BatchDestination, BatchGroups, MessageGroup
from escrowmq.client.core.routes import MessageQueue

FREE = BatchDestination("T", "", None)
KEYED = BatchDestination("T", "k", None)
QUEUED = BatchDestination("T", "", MessageQueue("T", "b", 0))


def groups(*, size_max: int = 100, count_max: int = 10) -> BatchGroups[str]:
    return BatchGroups(linger_s=0.5, size_max=size_max, count_max=count_max)


def put(
    to: BatchGroups[str], text: str, *, place: BatchDestination = FREE, now: float = 0.0
) -> None:
    for letter in text:
        to.add(place, letter, 10, now=now)


def texts(left: list[MessageGroup[str]]) -> list[str]:
    return ["".join(group.items) for group in left]


def test_messages_leave_together_when_the_first_has_waited_long_enough() -> None:
    one = groups()
    assert one.next_due_at is None
    put(one, "ab", now=1.0)
    put(one, "c", now=1.4)
    put(one, "d", place=KEYED, now=1.2)
    assert one.next_due_at == 1.5
    assert texts(one.take_ready(1.4)) == []
    assert texts(one.take_ready(1.5)) == ["abc"]
    assert one.next_due_at == 1.7
    assert texts(one.take_ready(2.0)) == ["d"]
    assert one.next_due_at is None


def test_a_group_that_is_full_by_bytes_or_count_leaves_at_once() -> None:
    by_size = groups(size_max=30)
    put(by_size, "abcd")
    assert texts(by_size.take_ready(0.0)) == ["abc"]
    by_size.add(FREE, "e", 25, now=0.0)
    assert texts(by_size.take_ready(0.0)) == ["d"], "the next one does not fit beside it"
    by_count = groups(count_max=2)
    put(by_count, "abc")
    assert texts(by_count.take_ready(0.0)) == ["ab"]
    assert texts(by_count.take_ready(9.0)) == ["c"]


def test_whoever_puts_a_message_learns_whether_a_group_leaves_now() -> None:
    one = groups(size_max=30)
    assert [one.add(FREE, letter, 10, now=0.0) for letter in "abc"] == [False, False, True]
    assert texts(one.take_ready(0.0)) == ["abc"]
    assert not one.add(FREE, "d", 20, now=0.0)
    assert one.add(FREE, "e", 20, now=0.0), "d leaves, since e does not fit beside it"
    assert texts(one.take_ready(0.0)) == ["d"]


def test_a_message_that_goes_alone_keeps_its_place_in_the_order() -> None:
    one = groups()
    put(one, "ab", place=KEYED)
    one.add(KEYED, "C", 10, now=0.0, is_alone=True)
    put(one, "d", place=KEYED)
    seen = []
    while found := one.take_ready(9.0):
        (group,) = found
        seen.append("".join(group.items))
        one.release_next(group)
    assert seen == ["ab", "C", "d"]


def test_what_is_bound_to_a_queue_has_one_group_under_way() -> None:
    for place in (KEYED, QUEUED):
        one = groups(count_max=2)
        put(one, "abcde", place=place)
        (first,) = one.take_ready(0.0)
        assert first.items == ["a", "b"]
        put(one, "f", place=place)
        assert one.take_ready(9.0) == [], "though all of them have waited long enough"
        one.release_next(first)
        (second,) = one.take_ready(9.0)
        assert second.items == ["c", "d"]
        one.release_next(second)
        (third,) = one.take_ready(9.0)
        assert third.items == ["e", "f"]
        one.release_next(third)
        assert one.take_ready(9.0) == []
        assert one._lines == {}


def test_what_is_bound_to_no_queue_waits_for_nobody() -> None:
    one = groups(count_max=1)
    put(one, "abc")
    left = one.take_ready(0.0)
    assert texts(left) == ["a", "b", "c"]
    assert one._lines == {}
    for group in left:
        one.release_next(group)


def test_in_a_hurry_everything_leaves_that_does_not_wait_for_an_answer() -> None:
    one = groups()
    put(one, "ab")
    put(one, "c", place=KEYED)
    one.mark_all_due()
    left = one.take_ready(0.0)
    assert texts(left) == ["ab", "c"]
    put(one, "d", place=KEYED)
    one.mark_all_due()
    assert one.take_ready(0.0) == []
    one.release_next(left[1])
    assert texts(one.take_ready(0.0)) == ["d"]
