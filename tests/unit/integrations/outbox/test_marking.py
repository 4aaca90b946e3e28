from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.errors import MarkerNotWritten
from escrowmq.integrations.outbox import marking, tables
from escrowmq.integrations.outbox.known_brokers import KnownBrokers
from escrowmq.integrations.outbox.steps import Rows, SqlStep, StepFailed, run_steps
from escrowmq.integrations.outbox.tables import MarkerTable, SqlFamily, Statement

from .scripted import LITE, Base

PG, MY = SqlFamily.POSTGRESQL, SqlFamily.MYSQL


class Sent:
    """Messages, and the name in their markers."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.key = "0A" * 16


class Scripted(Base):
    """SQLite that stands for a server: where its SQL is another one, it is put as SQLite's. Notes
    which steps are apart."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: list[str] = []

    def execute(self, step: SqlStep) -> Rows:
        if step.is_apart:
            self.apart.append(step.statement.text.split()[0])
        return super().execute(step._replace(statement=in_lite(step.statement)))


def in_lite(statement: Statement) -> Statement:
    text = statement.text.replace("insert ignore", "insert or ignore")
    for family in (PG, MY):
        text = text.replace(tables._NOW_MS[family], "7200000")
    text = text.replace(f"where {tables._PROOF[PG]} = ?", "where ? = 'oid of mine'")
    return statement._replace(text=text.replace(tables._PROOF[PG], "'oid of ' || says"))


def write(
    family: SqlFamily, execute: Callable[[SqlStep], Rows], place: MarkerTable | None, **more: bool
) -> tuple[str, MarkerTable | None]:
    steps = marking.write_marker(family, Sent, place=place, new_name=lambda: "mine", **more)
    sent, found = run_steps(steps, execute)
    return sent.database, found


def test_no_name_is_made_for_a_database_that_has_one() -> None:
    base = Scripted()
    base.put(tables.NAME_ID, "mine")

    def make() -> str:
        raise AssertionError("random bytes for nothing")

    for place in (None, MarkerTable("mine", "mine")):
        run_steps(marking.write_marker(LITE, Sent, place=place, new_name=make), base.execute)
        base.connection.execute("delete from escrowmq_markers where says = 'commit'")


def test_the_marker_carries_the_name_of_its_table() -> None:
    base = Scripted()
    base.put(tables.NAME_ID, "mine")
    for place in (None, MarkerTable("mine", "mine"), MarkerTable("another schema's", "other")):
        assert write(LITE, base.execute, place) == ("mine", ("mine", "mine"))
        assert base.all()["0A" * 16] == "commit"
        base.connection.execute("delete from escrowmq_markers where says = 'commit'")


def test_postgresql_knows_its_table_by_more_than_the_name() -> None:
    base = Scripted()
    base.put(tables.NAME_ID, "mine")
    assert write(PG, base.execute, None) == ("mine", ("mine", "oid of mine"))
    assert base.steps == ["select", "insert"]


def test_a_database_without_a_name_gets_one() -> None:
    """In this transaction where it is short, on a connection of its own where it may be long: what
    a rollback would take back is not remembered."""
    for family, is_long, kept, apart in (
        (LITE, False, None, []),
        (PG, False, None, []),
        (PG, True, ("mine", "oid of mine"), ["select", "insert", "select"]),
        (MY, False, ("mine", "mine"), ["select", "insert", "select"]),
    ):
        base = Scripted()
        assert write(family, base.execute, None, is_long=is_long) == ("mine", kept)
        assert base.apart == apart
        assert base.all() == {tables.NAME_ID: "mine", "0A" * 16: "commit"}


def test_a_table_that_connections_of_its_own_do_not_find_is_named_in_the_transaction() -> None:
    here, apart = Scripted(), Scripted()
    apart.put(tables.NAME_ID, "another schema's")

    def execute(step: SqlStep) -> Rows:
        return (apart if step.is_apart else here).execute(step)

    assert write(MY, execute, None) == ("mine", None)
    assert here.all() == {tables.NAME_ID: "mine", "0A" * 16: "commit"}
    assert len(apart.all()) == 1


def test_a_name_that_is_not_seen_here_is_an_error() -> None:
    """Another transaction has given one, and this one's snapshot is older."""
    base = Scripted()

    def execute(step: SqlStep) -> Rows:
        return [] if step.is_read else base.execute(step)

    with pytest.raises(StepFailed, match="given the database its name meanwhile"):
        write(PG, execute, None)


def test_a_failure_apart_goes_back_into_the_conversation() -> None:
    base = Scripted()

    def execute(step: SqlStep) -> Rows:
        if step.is_apart and not step.is_read:
            base.put(tables.NAME_ID, "the other's")
            raise KeyError("planted")
        return base.execute(step)

    assert write(MY, execute, None) == ("the other's", ("the other's", "the other's"))


def test_a_table_that_is_another_one_each_time_takes_no_marker() -> None:
    base = Scripted()
    base.put(tables.NAME_ID, "mine")

    def execute(step: SqlStep) -> Rows:
        return base.execute(step) if step.is_read else [(0,)]

    with pytest.raises(StepFailed, match="changes from statement to statement"):
        write(LITE, execute, None)


def test_a_marker_that_went_with_its_transaction_is_missed() -> None:
    base = Scripted()
    base.put("0A" * 16, "commit")
    run_steps(marking.require_marker("0A" * 16), base.execute)
    with pytest.raises(MarkerNotWritten, match="rolled back the transaction meanwhile"):
        run_steps(marking.require_marker("0B" * 16), base.execute)
    assert [marking.writes_marker_early(family) for family in (PG, MY, LITE)] == [False, True, True]


@pytest.mark.parametrize("family", [LITE, PG, MY])
def test_brokers_are_noted_once(family: SqlFamily) -> None:
    base, known = Scripted(), KnownBrokers(lambda: 0)
    names = ["broker-b", "ü" * 70]
    run_steps(marking.record_brokers(family, names, known), base.execute)
    first = ["update", "insert", "update"] if family is LITE else ["select", "insert"]
    assert base.steps == first * 2
    age(base)
    for _ in range(2):
        run_steps(marking.record_brokers(family, names, known), base.execute)
    assert base.steps == first * 2 + first[:1] * 2
    assert known.names_to_look_up(names) == []
    noted = {
        str(row[0]): row[1] for row in base.execute(SqlStep(tables.select_brokers(), is_read=True))
    }
    assert noted == {tables.broker_id(name): name.replace("ü", "?")[:64] for name in names}
    assert all(len(key) <= tables.ID_SIZE_MAX and key.isascii() for key in noted)
    if family is not LITE:  # which prepares none
        run_steps(marking.record_brokers(family, ["c"], known, is_long=True), base.execute)
        assert base.apart == ["select", "insert"]


def age(base: Scripted) -> None:
    """Make all rows an hour older."""
    with base.connection:
        base.connection.execute(f"update {tables.MARKERS} set made_ms = made_ms - 3600000")


@pytest.mark.parametrize("family", [LITE, PG, MY])
def test_a_broker_that_was_declared_gone_is_noted_again(family: SqlFamily) -> None:
    """Its row was deleted, and a process that had seen it did not write it again: nothing kept the
    markers of later messages."""
    base, known = Scripted(), KnownBrokers(lambda: 0)
    base.put("broker:b", "b", made_ms=-1)
    run_steps(marking.record_brokers(family, ["b"], known), base.execute)
    ((made_ms,),) = base.connection.execute("select made_ms from escrowmq_markers").fetchall()
    assert made_ms > 0
    assert known.names_to_look_up(["b"]) == ["b"], "a rollback would take that back"
    assert ("select" in base.steps) is (family is not LITE)


@pytest.mark.parametrize("family", [LITE, PG, MY])
def test_a_row_that_this_transaction_may_have_written_is_not_relied_upon(
    family: SqlFamily,
) -> None:
    """Another outbox may have written it in this transaction, which may be rolled back."""
    base, known = Scripted(), KnownBrokers(lambda: 0)
    run_steps(marking.record_brokers(family, ["b"], KnownBrokers(lambda: 0)), base.execute)
    run_steps(marking.record_brokers(family, ["b"], known), base.execute)
    assert known.names_to_look_up(["b"]) == ["b"]
