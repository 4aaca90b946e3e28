"""The identity that all copies of a half share, by which its final message is recognised too.

A sender must not be able to make its half look like a copy, or the final, of another's.
"""

from __future__ import annotations

from escrowmq.base.message import Message, Property, SysFlag, Topic

HalfIdentity = tuple[str, str, str]
"""Unique key, producer group and topic: equal in all copies of one half. The key alone does not
suffice: senders choose it, and two may choose the same."""


def identity_of_half(properties: dict[str, str]) -> HalfIdentity:
    """Return the identity of the half with these properties."""
    get = properties.get
    return (
        get(Property.UNIQ_KEY, ""),
        get(Property.PGROUP, ""),
        get(Property.REAL_TOPIC, ""),
    )


def identity_of_final(final: Message) -> HalfIdentity:
    """Return the identity of the half that a final record commits. The final's own topic counts,
    because RocketMQ 5.5 clears REAL_TOPIC (EndTransactionProcessor). Only records that name their
    half are trusted in this; clients cannot send such records."""
    found = identity_of_half(final.properties)
    if Property.REAL_TOPIC in final.properties or not final.prepared_log_offset:
        return found
    return (*found[:2], final.topic)


def is_final_of(final: Message, like: HalfIdentity) -> bool:
    """Whether a record is the final of a half with this identity: its message, or the delayed form
    of it. Clients cannot set REAL_TOPIC or the commit flag, but a store of an older release, or of
    RocketMQ, may contain such records."""
    is_commit = final.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
    return (
        is_commit
        and identity_of_final(final) == like
        and final.topic in (like[2], Topic.SCHEDULE, Topic.TIMER)
    )
