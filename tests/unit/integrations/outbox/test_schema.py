from __future__ import annotations

import sqlite3

from escrowmq.integrations.outbox import schema, tables
from escrowmq.integrations.outbox.steps import run

from .scripted import LITE, Base


def test_tables_are_made_once_and_the_name_stays() -> None:
    base = Base()
    base.connection = sqlite3.connect(":memory:")
    assert run(schema.create(LITE, new_name="first"), base.execute) == "first"
    assert run(schema.create(LITE, new_name="second"), base.execute) == "first"
    assert base.all() == {tables.NAME_ID: "first"}
    assert base.all(tables.HANDLED) == {}
