"""What the transaction engine needs from the broker: the rules for halves, the producers to check
with, and the destination of committed messages.

HALF_RULES has each rule about halves once. The general path uses it to refuse a half; the fast path
uses it for a group that it sees for the first time, and `room_for_halves` for each half. Rules
about other properties concern no plain half: send_rules has their names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.message import Message, Property, SysFlag
from escrowmq.base.own_properties import ORDER_KEY
from escrowmq.broker.rules import Rule
from escrowmq.broker.sends.forbidden_to_senders import group_fault
from escrowmq.broker.sends.send_rules import forbidden_remark
from escrowmq.codec.hashes import java_hash
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.delayed_messages import DelayRules, delay_message
from escrowmq.delivery.topics import TopicTable
from escrowmq.txn.bundle import bundle_of
from escrowmq.txn.check_schedule import LiveProducer
from escrowmq.txn.epoch import attempt_of
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import is_delayed

_log = logging.getLogger(__name__)


class HalfFacts(NamedTuple):
    """The input of the rules for halves: a message that should be stored as a half, or only its
    group."""

    settings: BrokerSettings
    group: str
    message: Message | None = None
    halves: Halves | None = None
    """The halves that are stored and not ended."""

    now_ms: int = 0
    delays: DelayRules | None = None

    @property
    def pending_count(self) -> int:
        """The number of pending halves."""
        return 0 if self.halves is None else len(self.halves.pending)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the message."""
        return {} if self.message is None else self.message.properties


def room_for_halves(settings: BrokerSettings, pending_count: int) -> int:
    """Return how many more halves may be stored when this many are pending."""
    return 0 if settings.rejects_transactions else max(0, settings.pending_max - pending_count)


def _refuse_forbidden(about: HalfFacts) -> Refusal:
    remark = forbidden_remark(about.settings, "sending transaction message")
    return Refusal(Response.NO_PERMISSION, remark)


def _refuse_without_group(_: HalfFacts) -> Refusal:
    # RocketMQ stores such a half, and fails with a NullPointerException when it is ended.
    remark = "a transactional message needs the property PGROUP, its producer group"
    return Refusal(Response.MESSAGE_ILLEGAL, remark)


def _refuse_group(about: HalfFacts) -> Refusal:
    return Refusal(Response.MESSAGE_ILLEGAL, group_fault(about.group))


def _refuse_delay(about: HalfFacts) -> Refusal | None:
    # A half that could not be delivered after its commit is refused now. Clients mark a half as
    # prepared, and prepared messages are never delayed.
    message, delays = about.message, about.delays
    assert message is not None
    assert delays is not None
    flag = message.sys_flag & ~SysFlag.TRANSACTION_MASK
    delayed = delay_message(msgspec.structs.replace(message, sys_flag=flag), about.now_ms, delays)
    return None if isinstance(delayed, Message) else delayed


def _has_no_room(about: HalfFacts) -> bool:
    return not room_for_halves(about.settings, about.pending_count)


def _refuse_too_many(about: HalfFacts) -> Refusal:
    remark = (
        f"{about.pending_count} transactions are pending, escrowPendingMax allows no more; "
        "end some of them first"
    )
    return Refusal(Response.SYSTEM_BUSY, remark)


def _refuse_decided_epoch(about: HalfFacts) -> Refusal | None:
    attempt = attempt_of(about.properties)
    assert attempt is not None
    assert about.halves is not None
    # The only reason to refuse it: the epoch is decided already.
    reason = about.halves.epochs.refusal(attempt)
    return Refusal(Response.TRANSACTION_STATE_UNKNOW, reason) if reason else None


def _is_of_bundle(about: HalfFacts) -> bool:
    return bundle_of(about.properties) is not None  # a half cannot have both a bundle and an epoch


def _refuse_bundle(about: HalfFacts) -> Refusal | None:
    bundle = bundle_of(about.properties)
    assert bundle is not None
    assert about.halves is not None
    assert about.message is not None
    reason = about.halves.bundles.refusal(bundle, len(about.message.body))
    return Refusal(Response.MESSAGE_ILLEGAL, reason) if reason else None


REJECTED: Final = Rule[HalfFacts](
    "transactions are rejected", lambda half: half.settings.rejects_transactions, _refuse_forbidden
)
GROUP_RULES: Final = (
    Rule[HalfFacts]("no producer group", lambda half: not half.group, _refuse_without_group),
    Rule[HalfFacts](
        "an odd producer group", lambda half: bool(group_fault(half.group)), _refuse_group
    ),
)
HALF_RULES: Final = (
    REJECTED,
    *GROUP_RULES,
    Rule[HalfFacts](
        "a delay from the commit on", lambda half: is_delayed(half.properties), _refuse_delay
    ),
    Rule("too many pending", _has_no_room, _refuse_too_many),
    Rule[HalfFacts](
        "of an epoch", lambda half: attempt_of(half.properties) is not None, _refuse_decided_epoch
    ),
    Rule("of several messages", _is_of_bundle, _refuse_bundle),
)


class HalfRules:
    """Applies the broker's rules for halves and committed messages."""

    def __init__(
        self,
        settings: BrokerSettings,
        delays: DelayRules,
        topics: TopicTable,
        clients: Clients,
        is_there: Callable[[int], bool],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clients = clients
        self._is_there = is_there
        self._rules = delays

    def facts_of(self, message: Message, halves: Halves, now_ms: int) -> HalfFacts:
        """Return the input of HALF_RULES for a message that should be stored as a half."""
        group = message.properties.get(Property.PGROUP, "")
        return HalfFacts(self._settings, group, message, halves, now_ms, self._rules)

    def record_to_deliver(self, final: Message, now_ms: int) -> Message:
        """Return the record to store for a committed message: in the queue for its ordering key,
        and as a delayed message if it is one."""
        if key := final.properties.get(ORDER_KEY):
            topic = self._topics.get(final.topic)
            if topic is not None:
                final.queue_id = abs(java_hash(key)) % max(1, topic.write_queue_nums)
        final.queue_id = self._topics.readable_queue(final.topic, final.queue_id)
        if is_delayed(final.properties):
            delayed = delay_message(final, now_ms, self._rules, is_accepted=True)
            if isinstance(delayed, Message):
                return delayed
            _log.error(
                "a delayed message is delivered without delay at its commit: %s", delayed.remark
            )
        return final

    def producers_of(self, group: str) -> list[LiveProducer]:
        """Return the connected producers of a group, which checks can be sent to."""
        channels = self._clients.producers.get(group, {})
        return [
            LiveProducer(channel.peer, channel.client_id, channel.published)
            for channel in channels.values()
            if self._is_there(channel.peer)
        ]
