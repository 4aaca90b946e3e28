"""Polls that wait for messages: nobody is pushed out by a newer one."""

from __future__ import annotations

from escrowmq.delivery.held_pops import PopPolls


def test_one_that_counts_as_many_is_refused_rather_than_another_let_go() -> None:
    """The poll that would end first was released for it, and nobody answered that one."""
    polls: PopPolls[str] = PopPolls(count_max=3, per_key_max=10)

    def hold(name: str, weight: int = 1) -> bool:
        place = ("G", "T")
        return polls.hold(
            place, 0, name, topics=["T"], peer=1, until_ms=100 + len(name), weight=weight
        )

    assert hold("a")
    assert hold("b")
    assert not hold("wide", weight=2)
    assert sorted(poll.question for poll in polls.all_polls()) == ["a", "b"]
    assert hold("c")
    assert not hold("d")
