"""Tells the offsets that are the broker's own progress: it keeps them in the table of offsets, like
RocketMQ."""

from __future__ import annotations

from escrowmq.base.message import Topic
from escrowmq.delivery.groups import TRANSACTION_GROUP
from escrowmq.delivery.revive_records import MARK_GROUP, REVIVE_GROUP

_TRANSACTION_TOPICS = frozenset({Topic.HALF, Topic.OP})
_REVIVE_GROUPS = frozenset({REVIVE_GROUP, MARK_GROUP})


def is_own_progress(group: str, topic: str) -> bool:
    """Whether the broker itself keeps this group's offsets in a topic. A start reads halves and
    popped messages from there, so an offset of a client would make it skip some. (RocketMQ accepts
    it.)"""
    if group in _REVIVE_GROUPS:
        return topic.startswith(Topic.REVIVE_PREFIX)
    return group == TRANSACTION_GROUP and topic in _TRANSACTION_TOPICS
