"""Creates the tables of markers and of handled messages."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

from escrowmq.integrations.outbox import schema, tables


def create_tables(_apps: object, editor: Any) -> None:  # noqa: ANN401 - Django has no types
    """Create both tables."""
    for statement in schema.create_statements(tables.sql_family_of(editor.connection.vendor))[:2]:
        editor.execute(statement.text)


def drop_tables(_apps: object, editor: Any) -> None:  # noqa: ANN401 - Django has no types
    """Drop both tables."""
    for name in (tables.MARKERS, tables.HANDLED):
        editor.execute(f"drop table {name}")


class Migration(migrations.Migration):
    """The first migration: creates the tables of markers and of handled messages."""

    initial = True
    atomic = False  # MariaDB and MySQL commit before they make a table
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[object]] = [migrations.RunPython(create_tables, drop_tables)]
