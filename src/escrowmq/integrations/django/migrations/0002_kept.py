"""Creates the table of messages that wait for a broker."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

from escrowmq.integrations.outbox import schema, tables


def create_kept_table(_apps: object, editor: Any) -> None:  # noqa: ANN401 - Django has no types
    """Create the table of kept messages."""
    for statement in schema.create_statements(tables.sql_family_of(editor.connection.vendor))[2:]:
        editor.execute(statement.text)


def drop_kept_table(_apps: object, editor: Any) -> None:  # noqa: ANN401 - Django has no types
    """Drop the table of kept messages."""
    editor.execute(f"drop table {tables.KEPT}")


class Migration(migrations.Migration):
    """The second migration: creates the table of kept messages."""

    atomic = False  # MariaDB and MySQL commit before they make a table
    dependencies: ClassVar[list[tuple[str, str]]] = [("escrowmq", "0001_tables")]
    operations: ClassVar[list[object]] = [migrations.RunPython(create_kept_table, drop_kept_table)]
