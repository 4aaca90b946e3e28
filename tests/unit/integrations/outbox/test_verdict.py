from __future__ import annotations

import pytest

from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.steps import Rows, SqlStep, StepFailed, Steps, run_steps
from escrowmq.integrations.outbox.tables import MarkerTable

from .scripted import LITE, Base

KEY = "0A" * 16


def named() -> Base:
    """One that has its name."""
    base = Base()
    base.put(tables.NAME_ID, "mine")
    return base


def judged(key: str = KEY) -> Steps[Outcome | None]:
    return verdict.decide_outcome(LITE, key, proof="mine")


def test_what_the_row_says_is_the_answer() -> None:
    base = Base()
    base.put(KEY, "commit")
    base.put("0B" * 16, "rollback")
    base.put("0C" * 16, "what?")
    found = [
        run_steps(verdict.decide_outcome(LITE, f"0{letter}" * 16, proof="mine"), base.execute)
        for letter in "ABC"
    ]
    assert found == [Outcome.COMMIT, Outcome.ROLLBACK, Outcome.UNKNOWN]
    assert base.steps == ["select"] * 3, "nothing is written"


def test_where_no_row_is_its_place_is_taken_before_the_answer() -> None:
    base = named()
    assert run_steps(judged(), base.execute) is Outcome.ROLLBACK
    assert base.all() == {KEY: "rollback", tables.NAME_ID: "mine"}
    assert run_steps(judged(), base.execute) is Outcome.ROLLBACK


def test_a_row_that_is_locked_is_no_answer() -> None:
    base = Base()
    base.failing.append("insert")
    assert run_steps(judged(), base.execute) is Outcome.UNKNOWN
    assert base.steps == ["select", "insert", "select"]


def test_a_commit_that_was_quicker_than_the_check_is_seen() -> None:
    base = named()

    def execute(step: SqlStep) -> Rows:
        if step.statement.text.startswith("insert"):
            base.put(KEY, "commit")
        return base.execute(step)

    assert run_steps(judged(), execute) is Outcome.COMMIT


def test_a_database_that_cannot_be_asked_is_news() -> None:
    base = Base()
    base.failing.append("select")
    with pytest.raises(StepFailed, match="OperationalError: planted"):
        run_steps(judged(), base.execute)


def test_a_database_has_one_name() -> None:
    base = Base()
    assert run_steps(verdict.find_marker_table(LITE, new_name="first"), base.execute) == (
        "first",
        "first",
    )
    assert run_steps(verdict.find_marker_table(LITE, new_name="second"), base.execute) == (
        "first",
        "first",
    )
    assert base.all() == {"database": "first"}


def test_whoever_names_a_database_a_moment_too_late_takes_the_others_name() -> None:
    base = Base()

    def execute(step: SqlStep) -> Rows:
        if step.statement.text.startswith("insert"):
            base.put(tables.NAME_ID, "first")
        return base.execute(step)

    assert run_steps(verdict.find_marker_table(LITE, new_name="second"), execute) == (
        "first",
        "first",
    )


def test_a_database_that_takes_no_name_says_so() -> None:
    base = Base()
    base.failing.append("insert")
    with pytest.raises(StepFailed):
        run_steps(verdict.find_marker_table(LITE, new_name="first"), base.execute)


def test_a_name_that_is_not_found_behind_its_insert_says_so() -> None:
    """A table of some other kind: a view, a rule."""

    def execute(step: SqlStep) -> Rows:
        return [] if step.is_read else [(1,)]

    with pytest.raises(StepFailed, match="cannot be found in it"):
        run_steps(verdict.find_marker_table(LITE, new_name="first"), execute)


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
    base = named()
    base.put(KEY, "commit")
    steps = verdict.answer_check(LITE, marker, place=None, new_name="never")
    assert run_steps(steps, base.execute) == (outcome, ("mine", "mine"))
    assert len(base.all()) == 2, "nothing is written for a marker of another database"


def test_a_check_that_finds_another_table_than_the_last_one_writes_nothing() -> None:
    """Its connection may look into another schema: what is not there may have been committed."""
    base = named()
    assert run_steps(verdict.decide_outcome(LITE, KEY, proof="other"), base.execute) is None
    told = verdict.answer_check(
        LITE, f"other:{KEY}", place=MarkerTable("other", "other"), new_name="never"
    )
    assert run_steps(told, base.execute) == (None, ("mine", "mine"))
    assert base.all() == {tables.NAME_ID: "mine"}


def test_a_table_whose_proof_has_changed_is_looked_for_again() -> None:
    """PostgreSQL's changes when the server is started again."""
    base = named()
    steps = verdict.answer_check(
        LITE, f"mine:{KEY}", place=MarkerTable("mine", "before"), new_name="never"
    )
    assert run_steps(steps, base.execute) == (Outcome.ROLLBACK, ("mine", "mine"))


def test_a_table_that_is_another_one_each_time_is_not_judged() -> None:
    base = named()

    def execute(step: SqlStep) -> Rows:
        is_insert = step.statement.text.startswith("insert")
        return [(0,)] if is_insert else base.execute(step)

    steps = verdict.answer_check(LITE, f"mine:{KEY}", place=None, new_name="never")
    assert run_steps(steps, execute) == (Outcome.UNKNOWN, None)


def test_without_the_right_to_write_only_a_row_is_an_answer() -> None:
    base = named()
    marker = f"mine:{KEY}"
    for expected in (Outcome.UNKNOWN, Outcome.COMMIT):
        steps = verdict.answer_check(LITE, marker, place=None, new_name="never", may_write=False)
        assert run_steps(steps, base.execute).outcome is expected
        assert len(base.all()) == (1 if expected is Outcome.UNKNOWN else 2)
        base.put(KEY if expected is Outcome.UNKNOWN else "0B" * 16, "commit")
