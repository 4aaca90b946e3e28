from __future__ import annotations

import pytest

from escrowmq.drill.faults import STEPS_MAX, Step, plan
from escrowmq.errors import UsageError
from escrowmq.group import drills

TAKEOVER_MS = 3_500


def test_the_mildest_fault_is_first_and_nobody_is_killed_unasked() -> None:
    steps = plan([], seconds=10, kills=False)
    assert [step.name for step in steps] == ["switch", "authority", "cut", "isolate", "freeze"]
    assert [step.span_ms for step in steps] == [0, 10_000, 10_000, 10_000, 10_000]
    assert all(step.at == "master" for step in steps)
    assert plan([], seconds=10, kills=True) == [*steps, Step("kill", "master")]


def test_faults_are_chosen_by_name_in_an_order_and_repeated() -> None:
    steps = plan(["freeze@copy", "kill@master"], seconds=0.25, kills=True, rounds=2)
    assert [step.name for step in steps] == ["freeze@copy", "kill"] * 2
    assert steps[0] == Step("freeze", "copy", 250)


@pytest.mark.parametrize(
    ("names", "seconds", "said"),
    [
        (["burn"], 1, "burn: one of switch, authority, cut, isolate, freeze, kill is expected"),
        (["cut@all"], 1, "cut@all: one of"),
        (["switch@copy"], 1, "only a master can hand over"),
        (["kill"], 1, "confirm with --kill"),
        (["kill@copy"], 1, "confirm with --kill"),
        ([], 60.1, "0.1 to 60 is allowed"),
        ([], 0.05, "0.1 to 60 is allowed"),
        ([], float("nan"), "0.1 to 60 is allowed"),
        (["cut"] * (STEPS_MAX + 1), 1, "1 to 50 are allowed"),
    ],
)
def test_what_cannot_be_done_is_refused(names: list[str], seconds: float, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(names, seconds=seconds, kills=False)
    assert said in str(refused.value)


def test_members_obey_every_step() -> None:
    for step in plan([], seconds=60, kills=True):
        fields = {"fault": step.fault, "ms": str(step.span_ms), "drill": "d"}
        assert drills.decode_fault_order(fields, who="me", at_ms=0).fault == step.fault
    assert plan(["cut"], seconds=0.1, kills=False)[0].span_ms == drills.SPAN_MIN_MS


@pytest.mark.parametrize(
    ("step", "moves", "expected"),
    [
        (Step("switch", "master"), True, "a fraction of a second later"),
        (Step("kill", "master"), True, "takes over at once"),
        (Step("kill", "copy"), False, "without it until it is back"),
        (Step("freeze", "master", 5_500), True, "takes over after 3.5 s of silence"),
        (Step("freeze", "master", 5_499), False, "a pause: 3.5 s"),
        (Step("isolate", "master", 5_500), True, "takes over after 3.5 s of silence"),
        (Step("isolate", "copy", 60_000), False, "without it until it is back"),
        (Step("cut", "master", 60_000), False, "goes on alone"),
        (Step("authority", "master", 60_000), False, "nobody notices"),
    ],
)
def test_what_is_expected_depends_on_the_fault_and_the_settings(
    step: Step, moves: bool, expected: str
) -> None:
    assert step.moves_master(TAKEOVER_MS) is moves
    assert expected in step.expected(TAKEOVER_MS)


def test_a_step_says_what_is_done() -> None:
    assert Step("freeze", "master", 1_500).what == "stops as by SIGSTOP for 1.5 s"
    assert Step("kill", "copy").what == "ends as by kill -9"
