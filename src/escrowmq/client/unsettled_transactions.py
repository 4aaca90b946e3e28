"""Finds the transactions that brokers may still ask a producer group about."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from escrowmq.client.admin.brokers import Brokers
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.transactions import Transactions
from escrowmq.client.instance import ClientInstance
from escrowmq.errors import NotSupported


class UnsettledTransactions(NamedTuple):
    """The transactions that brokers may still ask a group about, and the brokers that reported
    them."""

    keys: set[str]
    brokers: dict[str, int]
    """By name of each broker that was asked, the store time of the first message it ever stored: 0
    if its log no longer has it, NOT_YET if the log is empty."""


NOT_YET: Final = 2**63 - 1
"""A time later than any other."""


def first_stored_ms(figures: Mapping[str, str]) -> int:
    """Return the store time of the first message that a broker ever stored: 0 if the log no longer
    has it, or this is unknown; NOT_YET if the log is empty."""
    try:
        first_offset, first_ms = (
            int(figures[name]) for name in ("commitLogMinOffset", "earliestMessageTimeStamp")
        )
    except (KeyError, ValueError):
        return 0
    if first_offset > 0:
        return 0
    return first_ms if first_ms > 0 else NOT_YET


async def find_unsettled(instance: ClientInstance, group: str) -> UnsettledTransactions:
    """Return the transactions that any master known to the name server may ask about, also after an
    operator resumes them. Raises if one of them cannot be asked. RocketMQ's brokers cannot list
    their pending transactions."""
    await instance.watch_all_brokers()
    cluster = ClusterCalls(instance)
    transactions, brokers = Transactions(cluster), Brokers(cluster)
    found = UnsettledTransactions(set(), {})
    for name in await cluster.masters():
        found.brokers[name] = first_stored_ms(await brokers.runtime(name))
        with contextlib.suppress(NotSupported):  # RocketMQ's
            async for item in transactions.pending(group=group, broker=name):
                found.keys.update((item.transaction, item.message_id))
            async for item in transactions.discarded(group=group, broker=name):
                found.keys.update((item.transaction, item.message_id))
    return found
