from __future__ import annotations

from escrowmq.integrations.outbox import schema, tables
from escrowmq.integrations.outbox.steps import run_steps
from escrowmq.integrations.outbox.tables import SqlFamily

from .scripted import LITE, Base


def test_tables_are_made_once_and_the_name_stays() -> None:
    base = Base(has_tables=False)
    assert run_steps(schema.create_tables(LITE, new_name="first"), base.execute) == (
        "first",
        "first",
    )
    assert run_steps(schema.create_tables(LITE, new_name="second"), base.execute) == (
        "first",
        "first",
    )
    assert base.all() == {tables.NAME_ID: "first"}
    assert base.all(tables.HANDLED) == {}


def test_only_transactional_tables_are_made_on_mysql() -> None:
    assert all("engine=InnoDB" in each.text for each in schema.create_statements(SqlFamily.MYSQL))
    assert all("ascii_bin" in each.text for each in schema.create_statements(SqlFamily.MYSQL)[:2])


def test_a_shortened_wait_is_undone() -> None:
    before, after = tables.limit_lock_wait(SqlFamily.MYSQL, lock_wait_s=2)
    assert "= 2" in before[0].text
    assert "@escrowmq_wait" in after[0].text
    before, after = tables.limit_lock_wait(SqlFamily.POSTGRESQL, lock_wait_s=2)
    assert before[-1].text == "set local lock_timeout = 2000"
    assert after == []
