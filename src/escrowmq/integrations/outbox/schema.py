"""Creates the outbox's tables (described in tables.py), for programs without migrations, and for
Django's migrations. Alembic uses `sqlalchemy/schema`."""

from __future__ import annotations

from typing import Final

from escrowmq.integrations.outbox import verdict
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import (
    HANDLED,
    ID_SIZE_MAX,
    KEPT,
    MARKERS,
    TEXT_SIZE_MAX,
    MarkerTable,
    SqlFamily,
    Statement,
)

_KEPT: Final = {
    SqlFamily.POSTGRESQL: ("bigint generated always as identity primary key", "bytea", ""),
    SqlFamily.MYSQL: (
        "bigint not null auto_increment primary key",
        "longblob",
        " engine=InnoDB character set utf8mb4",
    ),
    # AUTOINCREMENT, so that a position is not reused when the last rows are deleted.
    SqlFamily.SQLITE: ("integer primary key autoincrement", "blob", ""),
}


def create_statements(family: SqlFamily) -> list[Statement]:
    """Return the statements that create missing tables."""
    # Make names differ by case, and rolled-back transactions leave no row; neither is the default.
    end = (
        " engine=InnoDB character set ascii collate ascii_bin" if family is SqlFamily.MYSQL else ""
    )
    return [
        Statement(
            f"create table if not exists {MARKERS} (id varchar({ID_SIZE_MAX}) not null primary "
            f"key, says varchar({ID_SIZE_MAX}) not null, made_ms bigint not null){end}"
        ),
        Statement(
            f"create table if not exists {HANDLED} (consumer_group varchar({TEXT_SIZE_MAX}) not "
            f"null, message_id varchar({TEXT_SIZE_MAX}) not null, made_ms bigint not null, "
            f"primary key (consumer_group, message_id)){end}"
        ),
        _create_kept(family),
    ]


def _create_kept(family: SqlFamily) -> Statement:
    number, blob, end = _KEPT[family]
    return Statement(
        f"create table if not exists {KEPT} (position {number}, bundle varchar({ID_SIZE_MAX}) not "
        f"null, together int not null, made_ms bigint not null, topic varchar({TEXT_SIZE_MAX}) not "
        f"null, body {blob} not null, fields text not null){end}"
    )


def create_tables(family: SqlFamily, *, new_name: str) -> Steps[MarkerTable]:
    """Create missing tables, and give the database a name."""
    for statement in create_statements(family):
        yield SqlStep(statement)
    return (yield from verdict.find_marker_table(family, new_name=new_name))
