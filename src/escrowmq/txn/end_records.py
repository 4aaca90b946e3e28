"""Builds the records to store when a transaction ends: committed messages, or copies of halves that
are discarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.own_properties import MESSAGES, TRANSACTION
from escrowmq.codec.properties import parse_number
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import copy_to, make_final
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import State

AsDelivered = Callable[[Message, int], Message]
"""Returns the record to store for a committed message, given the time: the message in the queue of
its ordering key, or its delayed form."""


class EndRecord(NamedTuple):
    """What to store for a half when it ends."""

    queue_offset: int
    message: Message | None = None
    """The record; None for a rollback, which stores none."""

    encoded: bytes | None = None
    """The encoded properties of the message, if they are cached."""


def end_records(
    half: OpenHalf, state: State, halves: Halves, *, now_ms: int, as_delivered: AsDelivered
) -> list[EndRecord] | None:
    """Return the records for all halves of a transaction that ends; None if it could be committed
    only in part. Unreadable halves are set aside."""
    bundle = halves.bundles.by_half.get(half.queue_offset)
    # The bundle's halves in order, this one among them.
    members = [half.queue_offset] if bundle is None else halves.bundles.members(half.queue_offset)
    if state == State.ROLLED_BACK:
        return [EndRecord(member) for member in members]
    sources = [half]
    if bundle is not None:
        found = [half if m == half.queue_offset else halves.open_half(m) for m in members]
        sources = [source for source in found if source is not None]
    # Counted by unique keys: a half that was sent twice counts once.
    keys_count = len({each.message.properties.get(Property.UNIQ_KEY, "") for each in sources})
    if state != State.COMMITTED:
        pending = halves.pending
        checks = pending.checks_count(half.queue_offset) if half.queue_offset in pending else 0
        return [
            EndRecord(source.queue_offset, _discarded_copy(source.message, keys_count, checks))
            for source in sources
        ]
    are_all = _has_all_messages(half, keys_count)
    records = []
    for source in sources:
        final = make_final(source.message)
        if final is not None:
            message = as_delivered(final, now_ms)
            encoded = source.encoded_properties_for(message)
            records.append(EndRecord(source.queue_offset, message, encoded))
    is_broken = bundle is not None and halves.bundles.is_broken(bundle)
    is_whole = are_all and len(records) == len(members) and not is_broken
    return records if is_whole or half.queue_offset in halves.partly_ended else None


def _has_all_messages(half: OpenHalf, keys_count: int) -> bool:
    """Whether all messages of a transaction are here; True if its halves do not say how many it
    has.

    If some are missing, the transaction is not committed: they may still be in flight, or a power
    failure has lost them. (An interrupted commit is completed nevertheless. Fewer halves are left
    then.)
    """
    text = half.message.properties.get(MESSAGES)
    said_count = None if text is None else parse_number(text, most=INT_MAX)
    return said_count is None or keys_count >= said_count


def _discarded_copy(half: StoredMessage, keys_count: int, checks: int) -> Message:
    # As in RocketMQ's discarded messages: operators see how often it was checked.
    changed = {Property.TRANSACTION_CHECK_TIMES: str(checks)} if checks else {}
    if TRANSACTION in half.properties and MESSAGES not in half.properties:
        changed[MESSAGES] = str(keys_count)
    # It names its half, as a final does: a start must know whether it ends this half or an earlier
    # one, which was resumed.
    return copy_to(half, Topic.CHECK_MAX_TIME, half.log_offset, **changed)
