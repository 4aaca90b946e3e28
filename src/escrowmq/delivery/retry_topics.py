"""Decides to which group a retry topic with an ambiguous name belongs.

`%RETRY%billing_orders` is the retry topic of the group `billing_orders`. In the older naming, it is
also the retry topic for messages that the group `billing` popped from `orders`. It belongs to the
group that used it first. A group that pops has offsets in its retry topic from the beginning, and
does not use a retry topic that belongs to another group.
"""

from __future__ import annotations

from escrowmq.base.message import Topic
from escrowmq.codec.pop_receipt import RETRY_V1, RETRY_V2, retry_topic
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable


class RetryTopics:
    """Chooses the retry topics of popped messages."""

    def __init__(self, topics: TopicTable, groups: GroupTable, offsets: OffsetTable) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def topics_to_read(self, topic: str, group: str, *, is_v2: bool) -> list[str]:
        """Return the retry topics that a group reads when it pops a topic. With the newer naming,
        that includes the older name, which may still have messages."""
        older, newer = (retry_topic(topic, group, kind) for kind in (RETRY_V1, RETRY_V2))
        if self._belongs_to_another(older, group):
            return [newer]
        is_v2 = is_v2 or self._topics.get(newer) is not None
        return [newer, older] if is_v2 else [older]

    def uses_newer_name(self, topic: str, group: str, *, is_v2: bool) -> bool:
        """Whether a popped message is redelivered in the topic with the newer name, which is
        unambiguous."""
        return is_v2 or self._belongs_to_another(retry_topic(topic, group, RETRY_V1), group)

    def _belongs_to_another(self, name: str, group: str) -> bool:
        if self._topics.get(name) is None or self._offsets.offsets_of(group, name):
            return False
        if self._groups.find(name.removeprefix(Topic.RETRY_PREFIX)) is not None:
            return True
        return any(other != group for other in self._offsets.groups_of(name))
