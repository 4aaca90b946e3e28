from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.delivery.held_pulls import LongPoll, LongPolls, poll_timeout_ms, poll_weight

KEY = ("T", 0)


def held(
    number: int, *, deadline_ms: int = 100, peer: int = 1, key: tuple[str, int] = KEY
) -> LongPoll[int]:
    return LongPoll(key, number, peer=peer, queue_offset=0, deadline_ms=deadline_ms)


def test_a_pull_waits_as_long_as_it_wishes_where_it_may() -> None:
    settings = BrokerSettings()
    assert [poll_timeout_ms(asked_ms, settings) for asked_ms in (15_000, 0, -1)] == [15_000, 0, 0]
    settings = BrokerSettings(holds_pulls=False, short_poll_ms=700)
    assert [poll_timeout_ms(asked_ms, settings) for asked_ms in (15_000, 0)] == [700, 700]


@given(
    st.lists(
        st.tuples(st.sampled_from("hrxl"), st.integers(0, 9), st.integers(0, 100)), max_size=60
    )
)
def test_holds_are_those_of_a_list(steps: list[tuple[str, int, int]]) -> None:
    holds: LongPolls[int] = LongPolls()
    model: list[LongPoll[int]] = []
    now_ms = 0
    for number, (kind, pick, span_ms) in enumerate(steps):
        if kind == "h":
            item = held(number, deadline_ms=now_ms + span_ms, peer=pick % 3, key=("T", pick % 2))
            assert holds.hold(item) is None
            model.append(item)
        elif kind == "r" and model:
            item = model.pop(pick % len(model))
            holds.remove(item)
            holds.remove(item)
        elif kind == "x":
            now_ms += span_ms
            gone = [item.question for item in holds.take_expired(now_ms)]
            due = sorted((i for i in model if i.deadline_ms <= now_ms), key=lambda i: i.deadline_ms)
            assert sorted(gone) == sorted(item.question for item in due)
            model = [item for item in model if item.deadline_ms > now_ms]
        elif kind == "l":
            holds.remove_polls_of(pick % 3)
            model = [item for item in model if item.peer != pick % 3]
        assert holds.count == len(model)
        for queue_id in (0, 1):
            waiting = [i.question for i in model if i.key == ("T", queue_id)]
            assert [i.question for i in holds.polls_at(("T", queue_id))] == waiting
            assert holds.has(("T", queue_id)) == bool(waiting)
        if model:
            assert holds.wake_at_ms() == min(item.deadline_ms for item in model)


def test_the_one_that_ends_first_is_given_back_when_too_many_wait() -> None:
    holds: LongPolls[int] = LongPolls(held_max=2)
    assert holds.hold(held(1, deadline_ms=300)) is None
    assert holds.hold(held(2, deadline_ms=100)) is None
    crowded = holds.hold(held(3, deadline_ms=200))
    assert crowded is not None
    assert crowded.question == 2
    assert holds.count == 2


def test_nobody_waits_and_nothing_is_due() -> None:
    holds: LongPolls[int] = LongPolls()
    assert list(holds.take_expired(1 << 60)) == []
    assert holds.wake_at_ms() > 1 << 60
    assert not holds.has(KEY)


def test_one_client_has_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.delivery.held_pulls.HELD_PER_PEER_MAX", 2)
    holds: LongPolls[int] = LongPolls()
    items = [held(number, deadline_ms=100 - number) for number in range(3)]
    other = held(9, peer=2)
    assert holds.hold(other) is None
    assert [holds.hold(item) for item in items] == [None, None, items[0]]
    assert (holds.count_of(1), holds.count_of(2), holds.count_of(3)) == (2, 1, 0)
    assert holds.all_polls() == [other, items[1], items[2]]


def test_a_poll_that_keeps_much_counts_as_several() -> None:
    counts: Counter[str] = Counter()
    holds: LongPolls[int] = LongPolls(held_max=5, counts=counts)
    large = LongPoll(KEY, 1, peer=1, queue_offset=0, deadline_ms=50, account="a", weight=4)
    assert holds.hold(large) is None
    assert (holds.count, counts["a"]) == (4, 4)
    assert holds.hold(held(2)) is None
    assert holds.hold(held(3)) is large
    assert (holds.count, "a" in counts) == (2, False)


@pytest.mark.parametrize(
    ("request_", "weight"),
    [
        (Command(code=11), 1),
        (Command(code=11, ext={f"field-{number}": "x" * 20 for number in range(15)}), 1),
        (Command(code=11, body=bytes(8_192)), 3),
        (Command(code=11, ext={"subscription": "x" * 16_384}), 5),
        (Command(code=11, ext={str(number): "" for number in range(512)}), 13),
    ],
)
def test_the_weight_of_a_request_is_what_it_keeps(request_: Command, weight: int) -> None:
    assert poll_weight(request_) == weight
