"""What brokers may ask a producer group about."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from escrowmq.client.admin.brokers import Brokers
from escrowmq.client.admin.cluster import Cluster
from escrowmq.client.admin.transactions import Transactions
from escrowmq.client.instance import Instance
from escrowmq.errors import NotSupported


class Unsettled(NamedTuple):
    """What brokers may ask a group about."""

    keys: set[str]
    brokers: dict[str, int]
    """Those that were asked, by name: when the first message in a broker's log was stored; 0 where
    there may have been others before it, NOT_YET where there is none."""


NOT_YET: Final = 2**63 - 1
"""Later than any time."""


def begun_ms(figures: Mapping[str, str]) -> int:
    """Since when a broker's log has messages, as far as its figures tell."""
    try:
        first_offset, first_ms = (
            int(figures[name]) for name in ("commitLogMinOffset", "earliestMessageTimeStamp")
        )
    except (KeyError, ValueError):
        return 0
    if first_offset > 0:
        return 0
    return first_ms if first_ms > 0 else NOT_YET


async def unsettled(instance: Instance, group: str) -> Unsettled:
    """What all masters that the name server knows may ask about, now or when they are told to
    resume it. Raises when one of them cannot be asked. RocketMQ's cannot say what they have
    pending."""
    await instance.watch_all_brokers()
    cluster = Cluster(instance)
    transactions, brokers = Transactions(cluster), Brokers(cluster)
    found = Unsettled(set(), {})
    for name in await cluster.masters():
        found.brokers[name] = begun_ms(await brokers.runtime(name))
        with contextlib.suppress(NotSupported):  # RocketMQ's
            async for item in transactions.pending(group=group, broker=name):
                found.keys.update((item.transaction, item.message_id))
            async for item in transactions.discarded(group=group, broker=name):
                found.keys.update((item.transaction, item.message_id))
    return found
