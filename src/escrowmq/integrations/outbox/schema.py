"""Makes the tables, for those who have no migrations."""

from __future__ import annotations

from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.steps import Step, Steps
from escrowmq.integrations.outbox.tables import Family


def create(family: Family, *, new_name: str) -> Steps[str]:
    """Make both tables, where they are not there yet, and give the database a name; its name."""
    for statement in tables.create(family):
        yield Step(statement)
    return (yield from verdict.name(family, new_name=new_name))
