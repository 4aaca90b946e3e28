"""The table of all calls of the API."""

from __future__ import annotations

from typing import Final

from escrowmq.console.api import (
    access,
    access_changes,
    brokers,
    dead_letters,
    groups,
    jobs,
    messages,
    offsets,
    overview,
    replicas,
    search,
    topics,
    transaction_changes,
    transactions,
)
from escrowmq.console.operations import Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *overview.OPERATIONS,
    *transactions.OPERATIONS,
    *transaction_changes.OPERATIONS,
    *topics.OPERATIONS,
    *groups.OPERATIONS,
    *offsets.OPERATIONS,
    *dead_letters.OPERATIONS,
    *brokers.OPERATIONS,
    *replicas.OPERATIONS,
    *access.OPERATIONS,
    *access_changes.OPERATIONS,
    *search.OPERATIONS,
    *messages.OPERATIONS,
    *jobs.OPERATIONS,
)
BY_NAME: Final = {one.name: one for one in OPERATIONS}
