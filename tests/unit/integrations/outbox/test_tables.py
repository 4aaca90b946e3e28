from __future__ import annotations

import pytest

from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.tables import SqlFamily, Statement

from .scripted import LITE, Base


def test_a_statement_has_the_marks_of_its_driver() -> None:
    statement = Statement("insert into t values (?, ?, 1)", ("a", "b"))
    assert statement.in_paramstyle("qmark") == statement.text
    assert statement.in_paramstyle("format") == "insert into t values (%s, %s, 1)"
    assert statement.in_paramstyle("pyformat") == "insert into t values (%s, %s, 1)"
    assert statement.in_paramstyle("numeric_dollar") == "insert into t values ($1, $2, 1)"
    assert statement.in_paramstyle("numeric") == "insert into t values (:1, :2, 1)"
    assert Statement("select 1").in_paramstyle("numeric_dollar") == "select 1"
    with pytest.raises(UsageError, match="qmark, format"):
        statement.in_paramstyle("named")


def test_a_family_is_known_by_its_dialects_name() -> None:
    assert tables.sql_family_of("mariadb") is tables.sql_family_of("mysql") is SqlFamily.MYSQL
    with pytest.raises(UsageError, match="supports postgresql, mysql, mariadb, sqlite"):
        tables.sql_family_of("oracle")


@pytest.mark.parametrize(
    ("text", "is_key"),
    [("0A" * 16, True), ("0a" * 16, False), ("database", False), ("", False), ("A" * 65, False),
     ("0" * 15, False), ("0" * 16 + "\n", False), ("0" * 16 + "'", False)],
)  # fmt: skip
def test_only_hexadecimal_letters_make_a_key(text: str, is_key: bool) -> None:
    assert tables.is_marker_key(text) is is_key


def test_a_message_is_noted_once() -> None:
    base = Base()
    counts = []
    for group, message_id in (("g", "1"), ("g", "1"), ("h", "1")):
        statement = tables.insert_handled(LITE, group, message_id)
        counts.append(base.connection.execute(*statement).rowcount)
    assert counts == [1, 0, 1]


def test_a_schema_stands_in_front_of_each_table() -> None:
    lite = tables.schema_prefix(SqlFamily.SQLITE, "sales")
    assert tables.schema_prefix(SqlFamily.MYSQL, "sales-eu") == "`sales-eu`"
    assert tables.schema_prefix(SqlFamily.POSTGRESQL, "") == ""
    assert tables.select_outcome("K").in_schema("") == tables.select_outcome("K")
    assert (
        tables.select_outcome("K")
        .in_schema(lite)
        .text.startswith('select says from "sales".escrowmq_m')
    )
    proof = tables.select_marker_table(SqlFamily.POSTGRESQL).in_schema(lite).text
    assert "concat('\"sales\".escrowmq_markers'::regclass::oid" in proof
    for schema in ("a b", 'a"', "a'", "1a", "a.b", "a?"):
        with pytest.raises(UsageError, match="are allowed"):
            tables.schema_prefix(SqlFamily.POSTGRESQL, schema)
