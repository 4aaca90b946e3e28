from __future__ import annotations

import pytest

from escrowmq.drill.faults import STEPS_MAX, FaultStep, plan_steps
from escrowmq.errors import UsageError
from escrowmq.group import drills

TAKEOVER_MS = 3_500


def test_the_mildest_fault_is_first_and_nobody_is_killed_unasked() -> None:
    steps = plan_steps([], seconds=10, kills=False)
    assert [step.name for step in steps] == ["switch", "authority", "cut", "isolate", "freeze"]
    assert [step.span_ms for step in steps] == [0, 10_000, 10_000, 10_000, 10_000]
    assert all(step.at == "master" for step in steps)
    assert plan_steps([], seconds=10, kills=True) == [*steps, FaultStep("kill", "master")]


def test_faults_are_chosen_by_name_in_an_order_and_repeated() -> None:
    steps = plan_steps(["freeze@copy", "kill@master"], seconds=0.25, kills=True, rounds=2)
    assert [step.name for step in steps] == ["freeze@copy", "kill"] * 2
    assert steps[0] == FaultStep("freeze", "copy", 250)


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
        plan_steps(names, seconds=seconds, kills=False)
    assert said in str(refused.value)


def test_members_obey_every_step() -> None:
    for step in plan_steps([], seconds=60, kills=True):
        fields = {"fault": step.fault, "ms": str(step.span_ms), "drill": "d"}
        assert drills.decode_fault_order(fields, who="me", at_ms=0).fault == step.fault
    assert plan_steps(["cut"], seconds=0.1, kills=False)[0].span_ms == drills.SPAN_MIN_MS


@pytest.mark.parametrize(
    ("step", "moves", "expected"),
    [
        (FaultStep("switch", "master"), True, "a fraction of a second later"),
        (FaultStep("kill", "master"), True, "takes over at once"),
        (FaultStep("kill", "copy"), False, "without it until it is back"),
        (FaultStep("freeze", "master", 5_500), True, "takes over after 3.5 s of silence"),
        (FaultStep("freeze", "master", 5_499), False, "a pause: 3.5 s"),
        (FaultStep("isolate", "master", 5_500), True, "takes over after 3.5 s of silence"),
        (FaultStep("isolate", "copy", 60_000), False, "without it until it is back"),
        (FaultStep("cut", "master", 60_000), False, "goes on alone"),
        (FaultStep("authority", "master", 60_000), False, "nobody notices"),
    ],
)
def test_what_is_expected_depends_on_the_fault_and_the_settings(
    step: FaultStep, moves: bool, expected: str
) -> None:
    assert step.moves_master(TAKEOVER_MS) is moves
    assert expected in step.expected_effect(TAKEOVER_MS)


def test_a_step_says_what_is_done() -> None:
    assert FaultStep("freeze", "master", 1_500).description == "stops as by SIGSTOP for 1.5 s"
    assert FaultStep("kill", "copy").description == "ends as by kill -9"
