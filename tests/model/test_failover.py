"""Every state that a group of three can come to: nothing acknowledged is lost, no offset is given
twice, no epoch has two masters. Each rule is needed: without it, the search finds what is lost."""

from __future__ import annotations

import pytest

from .failover import Bounds, Bug, check, first, search

LARGE = [
    Bounds(writes=1, epochs=3, changes=2, stops=1, cuts=0),
    Bounds(writes=1, epochs=2, changes=2, stops=1, cuts=1),
    Bounds(writes=2, epochs=2, changes=2, stops=1, cuts=0),
    Bounds(writes=1, epochs=3, changes=1, stops=1, cuts=1),
    Bounds(writes=2, epochs=3, changes=1, stops=1, cuts=0),
]


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(writes=1, epochs=2, changes=1, stops=1, cuts=1),
        Bounds(writes=2, epochs=3, changes=1, stops=0, cuts=0),
        *(pytest.param(each, marks=pytest.mark.long) for each in LARGE),
    ],
)
def test_no_state_breaks_a_promise(bounds: Bounds) -> None:
    found = search(bounds)
    assert found.broken == "", found.path
    assert found.states > 10_000


NEEDED = {
    Bug.FRAME_AFTER_PROMISE: Bounds(writes=1, epochs=3, changes=0, stops=0, cuts=0),
    Bug.EARLY_SHRINK: Bounds(writes=1, epochs=2, changes=1, stops=0, cuts=0),
    Bug.EARLY_GROWTH: Bounds(writes=2, epochs=2, changes=2, stops=0, cuts=0),
    Bug.VOLATILE_CUT: Bounds(writes=2, epochs=3, changes=0, stops=1, cuts=0),
    Bug.KEPT_INCARNATION: Bounds(writes=1, epochs=2, changes=0, stops=0, cuts=1),
    Bug.ANYBODY_SERVES: Bounds(writes=1, epochs=2, changes=1, stops=0, cuts=0),
    Bug.SWAP_IGNORES: Bounds(writes=0, epochs=2, changes=0, stops=0, cuts=0),
}


@pytest.mark.parametrize("bug", [each for each in Bug if each is not Bug.NONE])
def test_each_rule_is_needed(bug: Bug) -> None:
    found = search(NEEDED[bug], bug)
    assert found.broken
    assert found.path
    assert search(NEEDED[bug]).broken == ""  # with the rule, the same bounds hold


def test_a_state_that_lost_what_was_acknowledged_is_seen() -> None:
    state = first(Bounds())._replace(acknowledged=((1, 0),))
    with pytest.raises(Exception, match="is not in"):
        check(state)
