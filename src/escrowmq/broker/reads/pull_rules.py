"""The rules about pulls: why a pull gets no messages.

PULL_RULES are checked in their order, and the first that concerns a pull refuses it. A consumer
repeats the same pull, so its judgement is cached (broker/reads/pull_decisions) until something
changes that the rules read: tables by their versions, and the settings in `SETTINGS_READ`. Add a
new rule here, its settings to `SETTINGS_READ`, and its example to
tests/unit/broker/rule_examples.py. A test checks that no rule reads another setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Request, Response
from escrowmq.broker.reads.message_selection import is_tag_expression
from escrowmq.broker.rules import Rule
from escrowmq.codec.client_bodies import SubscriptionBody
from escrowmq.codec.headers import PullHeader
from escrowmq.codec.pulled_reply import pull_fields
from escrowmq.delivery.clients import BROADCASTING, ConsumerGroup
from escrowmq.delivery.groups import GroupConfig
from escrowmq.delivery.topics import Perm, TopicConfig


class PullFlag:
    """Bits of a pull's sysFlag."""

    COMMIT_OFFSET: Final = 1
    SUSPEND: Final = 2
    SUBSCRIPTION: Final = 4
    CLASS_FILTER: Final = 8


SETTINGS_READ: Final = (
    "permission",
    "allows_lite_pull",
    "has_property_filter",
    "rejects_unknown_pulls",
)
"""The settings that the rules read, apart from `advertised_host`, which never changes."""


class PullFacts(NamedTuple):
    """The input of the pull rules: a pull, and all that is known of its group and topic."""

    settings: BrokerSettings
    header: PullHeader
    code: int
    address: str
    group: GroupConfig | None
    topic: TopicConfig | None
    online: ConsumerGroup | None
    """The connected members of the group; None if it has none."""

    is_group_forbidden: bool
    """Whether the group may not read this topic."""

    @property
    def known_group(self) -> GroupConfig:
        """The group's configuration. Use it only in rules after the one that requires the group to
        exist."""
        assert self.group is not None
        return self.group

    @property
    def known_topic(self) -> TopicConfig:
        """The topic's configuration. Use it only in rules after the one that requires the topic to
        exist."""
        assert self.topic is not None
        return self.topic

    @property
    def members(self) -> ConsumerGroup:
        """The connected members of the group. Use it only in rules after the one that requires
        some."""
        assert self.online is not None
        return self.online

    @property
    def has_own_expression(self) -> bool:
        """Whether the pull brings its own expression; otherwise its group's subscription
        applies."""
        return bool(self.header.sys_flag & PullFlag.SUBSCRIPTION)

    @property
    def subscription(self) -> SubscriptionBody | None:
        """The subscription of the group's members."""
        return self.members.subscriptions.get(self.header.topic)


def pull_refusal(code: int, remark: str, forbidden: int = 0) -> Refusal:
    """Return the refusal of a pull. `forbidden` is RocketMQ's number for the reason, which clients
    distinguish."""
    ext = pull_fields(0, 0, 0)
    if forbidden:
        ext["forbiddenType"] = str(forbidden)
    return Refusal(code, remark, ext)


def _make_rule(
    name: str,
    concerns: Callable[[PullFacts], bool],
    code: int,
    remark: Callable[[PullFacts], str],
    forbidden: int = 0,
) -> Rule[PullFacts]:
    return Rule(name, concerns, lambda pull: pull_refusal(code, remark(pull), forbidden))


def _is_topic_unreadable(pull: PullFacts) -> bool:
    return not pull.known_topic.perm & Perm.READ


def readable_queues(topic: TopicConfig) -> range:
    """Return the ids of a topic's queues that can be read."""
    return range(topic.read_queue_nums)


def _is_queue_out_of_range(pull: PullFacts) -> bool:
    return pull.header.queue_id not in readable_queues(pull.known_topic)


def _remark_on_queue(pull: PullFacts) -> str:
    header, topic = pull.header, pull.known_topic
    return (
        f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
        f"consumer:[{pull.address}]"
    )


def _is_group_offline(pull: PullFacts) -> bool:
    return pull.settings.rejects_unknown_pulls and pull.online is None


def _is_subscription_outdated(pull: PullFacts) -> bool:
    subscription = pull.subscription
    assert subscription is not None
    return subscription.sub_version < pull.header.sub_version


BROKER_RULES: Final = (
    _make_rule(
        "a broker that is not read",
        lambda pull: not pull.settings.permission & Perm.READ,
        Response.NO_PERMISSION,
        lambda pull: f"the broker[{pull.settings.advertised_host}] pulling message is forbidden",
        1,
    ),
    _make_rule(
        "a lite pull where there are none",
        lambda pull: pull.code == Request.LITE_PULL_MESSAGE and not pull.settings.allows_lite_pull,
        Response.NO_PERMISSION,
        lambda pull: (
            f"the broker[{pull.settings.advertised_host}] for lite pull consumer is forbidden"
        ),
        1,
    ),
)
"""Rules that are checked before the group is looked up: about the broker itself."""

PULL_RULES: Final = (
    _make_rule(
        "no such group",
        lambda pull: pull.group is None,
        Response.SUBSCRIPTION_GROUP_NOT_EXIST,
        lambda pull: f"subscription group [{pull.header.consumer_group}] does not exist, {FAQ}",
    ),
    _make_rule(
        "a group that may not consume",
        lambda pull: not pull.known_group.consume_enable,
        Response.NO_PERMISSION,
        lambda pull: f"subscription group no permission, {pull.header.consumer_group}",
        2,
    ),
    _make_rule(
        "no such topic",
        lambda pull: pull.topic is None,
        Response.TOPIC_NOT_EXIST,
        lambda pull: f"topic[{pull.header.topic}] not exist, apply first please! {FAQ}",
    ),
    _make_rule(
        "a topic that is not read",
        _is_topic_unreadable,
        Response.NO_PERMISSION,
        lambda pull: f"the topic[{pull.header.topic}] pulling message is forbidden",
        3,
    ),
    _make_rule(
        "a queue beyond the topic",
        _is_queue_out_of_range,
        Response.INVALID_PARAMETER,
        _remark_on_queue,
    ),
    _make_rule(
        "a filter by properties where there are none",
        lambda pull: (
            not is_tag_expression(pull.header.expression_type)
            and not pull.settings.has_property_filter
        ),
        Response.SYSTEM_ERROR,
        lambda _: "The broker does not support consumer to filter message by SQL92",
    ),
)
"""Rules that are checked before the pull's expression is parsed."""

OFFLINE_GROUP_RULE: Final = _make_rule(
    "a group without members",
    _is_group_offline,
    Response.SUBSCRIPTION_NOT_EXIST,
    lambda _: (
        f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}"
    ),
)
"""The rule for pulls that bring their own expression. It is checked after the expression is
parsed."""

SUBSCRIPTION_RULES: Final = (
    _make_rule(
        "nobody there",
        lambda pull: pull.online is None,
        Response.SUBSCRIPTION_NOT_EXIST,
        lambda _: f"the consumer's group info not exist{FAQ}",
    ),
    _make_rule(
        "broadcasting that is not allowed",
        lambda pull: (
            not pull.known_group.consume_broadcast_enable
            and pull.members.message_model == BROADCASTING
        ),
        Response.NO_PERMISSION,
        lambda pull: (
            f"the consumer group[{pull.header.consumer_group}] can not consume by broadcast way"
        ),
        4,
    ),
    _make_rule(
        "a topic that the group may not read",
        lambda pull: pull.is_group_forbidden,
        Response.NO_PERMISSION,
        lambda pull: (
            f"the consumer group[{pull.header.consumer_group}] is forbidden "
            f"for topic[{pull.header.topic}]"
        ),
        5,
    ),
    _make_rule(
        "no subscription",
        lambda pull: pull.subscription is None,
        Response.SUBSCRIPTION_NOT_EXIST,
        lambda _: f"the consumer's subscription not exist{FAQ}",
    ),
    _make_rule(
        "an older subscription",
        _is_subscription_outdated,
        Response.SUBSCRIPTION_NOT_LATEST,
        lambda _: "the consumer's subscription not latest",
    ),
)
"""Rules for pulls that use their group's subscription."""
