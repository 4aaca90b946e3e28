"""Makes the two tables (tables.py says what stands in them): for those who have no migrations, and
for Django's. Alembic's are made of `sqlalchemy/schema`."""

from __future__ import annotations

from escrowmq.integrations.outbox import verdict
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import (
    HANDLED,
    ID_SIZE_MAX,
    MARKERS,
    TEXT_SIZE_MAX,
    SqlFamily,
    Statement,
)


def statements(family: SqlFamily) -> list[Statement]:
    """Make both tables, where they are not there yet."""
    # Names differ by case, and a transaction that is rolled back leaves no row: not by default.
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
    ]


def create(family: SqlFamily, *, new_name: str) -> Steps[str]:
    """Make both tables, where they are not there yet, and give the database a name; its name."""
    for statement in statements(family):
        yield SqlStep(statement)
    return (yield from verdict.name(family, new_name=new_name))
