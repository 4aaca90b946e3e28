"""The records of an end: the messages of a commit, and the discards of a transaction that is given
up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.own_properties import MESSAGES, TRANSACTION
from escrowmq.codec.properties import number_in
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import copy_to, final_of
from escrowmq.txn.state import State

AsDelivered = Callable[[Message, int], Message]
"""What to store for a committed message at a time: itself, in the queue of its order key, or its
delayed form."""


class EndRecord(NamedTuple):
    """What to store for a half when it ends, by its queue offset."""

    queue_offset: int
    message: Message | None
    """None for a rollback."""


def end_records(
    half: StoredMessage,
    state: State,
    halves: Halves,
    *,
    queue_offset: int,
    now_ms: int,
    as_delivered: AsDelivered,
) -> list[EndRecord] | None:
    """The records of all halves of a transaction that ends; None if it would be committed in part.
    Unreadable halves are set aside."""
    members = halves.bundles.members(queue_offset)
    if state == State.ROLLED_BACK:
        return [EndRecord(member, None) for member in members]
    sources = {}
    for member in members:
        source = half if member == queue_offset else halves.half_or_set_aside(member)
        if source is not None:
            sources[member] = source
    # By keys: a half that was sent twice is one.
    keys_count = len({source.properties.get(Property.UNIQ_KEY, "") for source in sources.values()})
    if state != State.COMMITTED:
        checks = halves.pending.row(queue_offset).checks if queue_offset in halves.pending else 0
        return [
            EndRecord(member, _discard(source, keys_count, checks))
            for member, source in sources.items()
        ]
    finals = [(member, final_of(source)) for member, source in sources.items()]
    records = [EndRecord(member, as_delivered(final, now_ms)) for member, final in finals if final]
    # A bundle that says how many messages it has is never committed by a part of them: the rest may
    # be in flight, or was lost in a power failure. If the verdict is the rest of a commit, its
    # other messages have left the bundle already, so that it counts fewer than it says.
    said_count = number_in(half.properties.get(MESSAGES), most=INT_MAX)
    is_whole = (
        len(records) == len(members)
        and not halves.bundles.is_broken(queue_offset)
        and (said_count is None or keys_count >= said_count)
    )
    return records if is_whole or queue_offset in halves.decided else None


def _discard(half: StoredMessage, keys_count: int, checks: int) -> Message:
    # As on RocketMQ's discards, so that operators see how often it was asked about.
    changed = {Property.TRANSACTION_CHECK_TIMES: str(checks)} if checks else {}
    if TRANSACTION in half.properties and MESSAGES not in half.properties:
        changed[MESSAGES] = str(keys_count)
    # It names its half, as a final does: a start must know whether it is about one that was
    # discarded before and resumed.
    return copy_to(half, Topic.CHECK_MAX_TIME, half.log_offset, **changed)
