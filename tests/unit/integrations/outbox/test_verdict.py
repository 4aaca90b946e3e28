from __future__ import annotations

import pytest

from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.steps import Rows, SqlStep, StepFailed, run

from .scripted import LITE, Base

KEY = "0A" * 16


def test_what_the_row_says_is_the_answer() -> None:
    base = Base()
    base.put(KEY, "commit")
    base.put("0B" * 16, "rollback")
    base.put("0C" * 16, "what?")
    found = [run(verdict.verdict(LITE, f"0{letter}" * 16), base.execute) for letter in "ABC"]
    assert found == [Outcome.COMMIT, Outcome.ROLLBACK, Outcome.UNKNOWN]
    assert base.steps == ["select"] * 3, "nothing is written"


def test_where_no_row_is_its_place_is_taken_before_the_answer() -> None:
    base = Base()
    assert run(verdict.verdict(LITE, KEY), base.execute) is Outcome.ROLLBACK
    assert base.all() == {KEY: "rollback"}
    assert run(verdict.verdict(LITE, KEY), base.execute) is Outcome.ROLLBACK


def test_a_row_that_is_locked_is_no_answer() -> None:
    base = Base()
    base.failing.append("insert")
    assert run(verdict.verdict(LITE, KEY), base.execute) is Outcome.UNKNOWN
    assert base.steps == ["select", "insert", "select"]


def test_a_commit_that_was_quicker_than_the_check_is_seen() -> None:
    base = Base()

    def execute(step: SqlStep) -> Rows:
        if step.statement.text.startswith("insert"):
            base.put(KEY, "commit")
        return base.execute(step)

    assert run(verdict.verdict(LITE, KEY), execute) is Outcome.COMMIT


def test_a_database_that_cannot_be_asked_is_news() -> None:
    base = Base()
    base.failing.append("select")
    with pytest.raises(StepFailed, match="OperationalError: planted"):
        run(verdict.verdict(LITE, KEY), base.execute)


def test_a_database_has_one_name() -> None:
    base = Base()
    assert run(verdict.name(LITE, new_name="first"), base.execute) == "first"
    assert run(verdict.name(LITE, new_name="second"), base.execute) == "first"
    assert base.all() == {"database": "first"}


def test_whoever_names_a_database_a_moment_too_late_takes_the_others_name() -> None:
    base = Base()

    def execute(step: SqlStep) -> Rows:
        if step.statement.text.startswith("insert"):
            base.put(tables.NAME_ID, "first")
        return base.execute(step)

    assert run(verdict.name(LITE, new_name="second"), execute) == "first"


def test_a_database_that_takes_no_name_says_so() -> None:
    base = Base()
    base.failing.append("insert")
    with pytest.raises(StepFailed):
        run(verdict.name(LITE, new_name="first"), base.execute)


@pytest.mark.parametrize(
    ("marker", "outcome"),
    [
        (f"mine:{KEY}", Outcome.COMMIT),
        (f"other:{KEY}", None),
        ("mine:database", None),
        ("mine:' or 1=1", None),
        ("mine", None),
        ("", None),
    ],
)
def test_only_a_marker_of_this_database_is_judged(marker: str, outcome: Outcome | None) -> None:
    base = Base()
    base.put(tables.NAME_ID, "mine")
    base.put(KEY, "commit")
    steps = verdict.answer(LITE, marker, name="mine")
    assert run(steps, base.execute) is outcome
    assert len(base.all()) == 2, "nothing is written for a marker of another database"
