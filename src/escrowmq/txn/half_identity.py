"""The identity shared by all copies of one half, and how its final is recognised.

A sender must not be able to make its half look like a copy, or the final, of another's."""

from __future__ import annotations

from escrowmq.base.message import Message, Property, SysFlag, Topic

Likeness = tuple[str, str, str]
"""Unique key, producer group and topic: equal in all copies of one half. The key alone is chosen by
its sender, and two senders may choose the same."""


def likeness(properties: dict[str, str]) -> Likeness:
    """The identity of a half's copies."""
    get = properties.get
    return (
        get(Property.UNIQ_KEY, ""),
        get(Property.PGROUP, ""),
        get(Property.REAL_TOPIC, ""),
    )


def likeness_of_final(final: Message) -> Likeness:
    """The identity of the half that a final record commits.

    RocketMQ 5.5 clears REAL_TOPIC (EndTransactionProcessor): the final is in that topic. Then it
    has to name its half, which no client can make a message do."""
    found = likeness(final.properties)
    if Property.REAL_TOPIC in final.properties or not final.prepared_log_offset:
        return found
    return (*found[:2], final.topic)


def is_final_of(final: Message, like: Likeness) -> bool:
    """Whether a record is what a commit stored for a half with this identity: its message, or its
    delayed form. No client can set REAL_TOPIC and the commit flag; but a store of an older release,
    or of RocketMQ, may contain such records."""
    is_commit = final.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
    return (
        is_commit
        and likeness_of_final(final) == like
        and final.topic in (like[2], Topic.SCHEDULE, Topic.TIMER)
    )
