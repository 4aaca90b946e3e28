"""The rules about sends: when messages are accepted, where they may go, what they may contain.

Add a new rule here, and its example to tests/unit/broker/rule_examples.py; a test requires one for
each. The general path (destinations, shedding, on_send) uses these lists to refuse a message. The
fast path (fast_path, fast_puts) uses them to decide whether a message is plain: once for an input,
once for a queue until topics or settings change, and once for the names of its properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.message import Property, Topic, is_sendable
from escrowmq.base.own_properties import CHECKER, MARKER
from escrowmq.broker.rules import Rule
from escrowmq.broker.sends.forbidden_to_senders import EXAMINED_PROPERTIES
from escrowmq.delivery.delayed_messages import DELIVERY_TIME_PROPERTIES
from escrowmq.delivery.topics import Perm, TopicConfig

# -- when messages are taken -------------------------------------------------------------------


class ArrivalFacts(NamedTuple):
    """The input of the rules about when messages are accepted: how long a send waited, and its
    properties."""

    settings: BrokerSettings
    waited_ms: int
    now_ms: int
    properties: str = ""


def _has_waited_too_long(about: ArrivalFacts) -> bool:
    return about.waited_ms > about.settings.half_wait_max_ms


def _refuse_late(about: ArrivalFacts) -> Refusal | None:
    settings, waited_ms = about.settings, about.waited_ms
    is_half = f"{Property.TRAN_MSG}\x01" in about.properties
    if not settings.sheds_load or not (is_half or waited_ms > settings.send_wait_max_ms):
        return None
    remark = (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{waited_ms}ms, size of queue: 0"
    )
    return Refusal(Response.SYSTEM_BUSY, remark)


def _is_before_accepting(about: ArrivalFacts) -> bool:
    return about.settings.accepts_sends_from_ms > about.now_ms


def _refuse_before_accepting(about: ArrivalFacts) -> Refusal:
    at_ms = about.settings.accepts_sends_from_ms
    return Refusal(Response.SYSTEM_ERROR, f"broker unable to service, until {at_ms} ms")


LATE: Final = Rule("waited too long to be read", _has_waited_too_long, _refuse_late)
EARLY: Final = Rule("no sends are taken yet", _is_before_accepting, _refuse_before_accepting)
INPUT_RULES: Final = (LATE, EARLY)

# -- where messages may go ---------------------------------------------------------------------


class QueueFacts(NamedTuple):
    """The input of the rules about queues: a message's topic and queue."""

    settings: BrokerSettings
    name: str
    queue_id: int
    topic: TopicConfig | None
    """The topic's configuration; None when no topic has that name."""

    address: str = ""
    """The sender's address."""

    @property
    def known_topic(self) -> TopicConfig:
        """The topic's configuration. Use it only in rules after the one that requires the topic to
        exist."""
        assert self.topic is not None
        return self.topic


def forbidden_remark(settings: BrokerSettings, what: str) -> str:
    """Return RocketMQ's remark for an operation that the broker forbids."""
    return f"the broker[{settings.advertised_host}] {what} is forbidden"


def _refuse_read_only(about: QueueFacts) -> Refusal | None:
    # Only ordered topics are checked, as in RocketMQ: for all others, the routes say that this
    # broker is not writable.
    if about.settings.permission & Perm.WRITE:
        return None
    return Refusal(Response.NO_PERMISSION, forbidden_remark(about.settings, "sending message"))


def _refuse_topic(about: QueueFacts) -> Refusal:
    return Refusal(Response.NO_PERMISSION, f"Sending message to topic[{about.name}] is forbidden.")


def _refuse_unknown(about: QueueFacts) -> Refusal:
    remark = f"topic[{about.name}] not exist, apply first please!{FAQ}"
    return Refusal(Response.TOPIC_NOT_EXIST, remark)


def _is_queue_out_of_range(about: QueueFacts) -> bool:
    topic = about.known_topic
    return about.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums)


def _refuse_queue(about: QueueFacts) -> Refusal:
    topic = about.known_topic
    remark = (
        f"request queueId[{about.queue_id}] is illegal, TopicConfig "
        f"[topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}] Producer: {about.address}"
    )
    return Refusal(Response.INVALID_PARAMETER, remark)


def missing_key_refusal(properties: dict[str, str]) -> Refusal | None:
    """Return why a compacted topic refuses a message with such properties; None when it does
    not."""
    if properties.get(Property.KEYS):
        return None
    return Refusal(Response.MESSAGE_ILLEGAL, "Required message key is missing")


QUEUE_RULES: Final = (
    Rule[QueueFacts](
        "an ordered topic", lambda to: to.topic is not None and to.topic.order, _refuse_read_only
    ),
    Rule[QueueFacts]("a topic of the broker", lambda to: not is_sendable(to.name), _refuse_topic),
    Rule[QueueFacts]("no such topic", lambda to: to.topic is None, _refuse_unknown),
    Rule("a queue beyond the topic", _is_queue_out_of_range, _refuse_queue),
    Rule[QueueFacts]("a topic of retries", lambda to: to.name.startswith(Topic.RETRY_PREFIX)),
    Rule[QueueFacts]("a system topic", lambda to: to.name.startswith(Topic.SYSTEM_PREFIX)),
    Rule[QueueFacts]("messages with many tags", lambda to: to.known_topic.has_many_tags),
    # `missing_key_refusal` refuses messages without a key.
    Rule[QueueFacts]("a compacted topic", lambda to: to.known_topic.is_compacted),
)
REFUSING_QUEUE_RULES: Final = tuple(rule for rule in QUEUE_RULES if rule.judge is not None)
"""The queue rules that can refuse. The general path checks them before it builds a message."""


# -- what messages may say ---------------------------------------------------------------------

DELAY_PROPERTIES: Final = frozenset({*DELIVERY_TIME_PROPERTIES, Property.DELAY})
"""Properties that may delay the delivery of a message."""


class PropertyRule(NamedTuple):
    """Properties that make a message, or a half, special: it takes the general path."""

    name: str
    names: frozenset[str]
    of_messages: bool = True
    of_halves: bool = True
    prefix: str = ""
    """All properties with this prefix, except `excepted`, make a half special."""

    excepted: frozenset[str] = frozenset()


NAMES_RULES: Final = (
    PropertyRule("marks that are no sender's to set", EXAMINED_PROPERTIES),
    PropertyRule("a wish to be delivered later", DELAY_PROPERTIES),
    PropertyRule(
        "what the broker sets itself",
        frozenset({Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER}),
    ),
    PropertyRule("a request that awaits a reply", frozenset({Property.REPLY_TO_CLIENT})),
    PropertyRule("a half", frozenset({Property.TRAN_MSG}), of_halves=False),
    PropertyRule(
        "a wish about checks", frozenset({Property.CHECK_IMMUNITY_TIME}), of_messages=False
    ),
    PropertyRule("a transaction's id", frozenset({Property.TRANSACTION_ID}), of_messages=False),
    PropertyRule(
        "a name of ours that means something to a broker",
        frozenset(),
        of_messages=False,
        prefix="escrow",
        excepted=frozenset({CHECKER, MARKER}),
    ),
)


def _property_names(rules: Iterable[PropertyRule]) -> frozenset[str]:
    return frozenset().union(*(rule.names for rule in rules))


SPECIAL_PROPERTIES: Final = _property_names(rule for rule in NAMES_RULES if rule.of_messages)
"""Properties that no plain message has: a message with one takes the general path."""


class _SpecialHalfProperties:
    """The properties that no plain half has; a container that also contains all names with certain
    prefixes."""

    _names: Final = _property_names(rule for rule in NAMES_RULES if rule.of_halves)
    _prefixed: Final = tuple(rule for rule in NAMES_RULES if rule.prefix)

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, str)
        return name in self._names or any(
            name.startswith(rule.prefix) and name not in rule.excepted for rule in self._prefixed
        )


SPECIAL_OF_HALF: Final = _SpecialHalfProperties()
