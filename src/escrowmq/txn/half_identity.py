"""What all copies of one half have in common, and by which its final is known.

What a half's sender says must not make it the copy, or the end, of another's.
"""

from __future__ import annotations

from escrowmq.base.message import Message, Property, SysFlag, Topic

Likeness = tuple[str, str, str]
"""Unique key, producer group and topic: what all copies of one half have in common. The key alone
is its sender's word, and two senders may say the same."""


def likeness(properties: dict[str, str]) -> Likeness:
    """What the copies of a half are known by."""
    get = properties.get
    return (
        get(Property.UNIQ_KEY, ""),
        get(Property.PGROUP, ""),
        get(Property.REAL_TOPIC, ""),
    )


def is_final_of(final: Message, like: Likeness) -> bool:
    """Whether a record is what a commit has stored of a half that is like this: its message, or
    what stands for that until it is due. No client can say REAL_TOPIC and the commit of a
    message; but in a store of an older release, or of a peer, one may have."""
    is_commit = final.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
    return (
        is_commit
        and likeness(final.properties) == like
        and final.topic in (like[2], Topic.SCHEDULE, Topic.TIMER)
    )
