"""A consumer's subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from escrowmq.client.core.validation import check_topic_name
from escrowmq.codec.client_bodies import SubscriptionBody
from escrowmq.codec.hashes import java_hash
from escrowmq.errors import UsageError
from escrowmq.filter.tags import ALL, TagFilter, parse_tags

TAG: Final = "TAG"
SQL92: Final = "SQL92"
TOPICS_MAX: Final = 1_000
"""Limit of the topics of one consumer."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, by the broker's name, and which of its messages are wanted."""

    topic: str
    expression: str = ALL
    kind: str = TAG
    version: int = 0
    tags: TagFilter = TagFilter(ALL, frozenset(), frozenset())

    def matches_tag(self, tag: str) -> bool:
        """Whether a message with this tag matches. Brokers compare only hashes of tags, which may
        be equal for different tags. Conditions in SQL92 are evaluated by brokers alone; here every
        tag matches them."""
        return self.tags.matches(tag)

    def heartbeat_body(self) -> SubscriptionBody:
        """Return the subscription in the form of a heartbeat."""
        return SubscriptionBody(
            topic=self.topic,
            sub_string=self.expression,
            expression_type=self.kind,
            sub_version=self.version,
            tags_set=sorted(self.tags.tags),
            code_set=sorted(self.tags.codes),
        )


def parse_subscription(
    topic: str, *, tags: str = "", sql: str = "", version: int, wire_topic: str
) -> Subscription:
    """Parse a user's subscription: `tags` are `a || b`, `*` or nothing for all; `sql` is a
    condition over properties. Raises UsageError if it is invalid."""
    check_topic_name(topic)
    if sql:
        if tags:
            raise UsageError(f"{topic}: tags={tags!r} and sql={sql!r}; give one of them")
        return Subscription(topic=wire_topic, expression=sql, kind=SQL92, version=version)
    found = parse_tags(tags, code_of=java_hash)
    return Subscription(topic=wire_topic, expression=found.expression, version=version, tags=found)


def parse_topics(topics: object) -> dict[str, str]:
    """Validate the `topics` of a consumer, given as names, or as names with tags; return tags by
    topic."""
    if isinstance(topics, str):
        return {topics: ALL}
    if isinstance(topics, Mapping):
        found = {name: str(tags or ALL) for name, tags in topics.items()}
    elif isinstance(topics, list | tuple | set | frozenset):
        found = dict.fromkeys(topics, ALL)
    else:
        raise UsageError(
            f"topics={topics!r}: a list of names, or a dict of names and their tags, is expected"
        )
    if len(found) > TOPICS_MAX:
        raise UsageError(f"{len(found)} topics; a consumer may have {TOPICS_MAX}")
    return found
