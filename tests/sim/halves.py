"""Messages and half messages as producers put them on the wire."""

from __future__ import annotations

import random

from escrowmq.base.codes import Request
from escrowmq.base.message import Property
from escrowmq.base.own_properties import DELAYED, ORDER_KEY, TRANSACTION
from escrowmq.codec.properties import encode_properties
from tests.sim.ledger import COMMIT, ROLLBACK, Ident, Sent, Truth
from tests.sim.plan import Plan

SEND = Request.SEND_MESSAGE_V2
LEVELS_MAX = 5
_DELIVERED_LATEST_MS = 90_000
_HOUR_MS = 3_600_000
_FAR_HOURS = (2, 30)
"""Longer than the log keeps messages in some worlds, and days too early or too late in others."""


def draw_transaction(
    plan: Plan, chance: random.Random, *, group: str, name: str, now_ms: int
) -> list[Sent]:
    """The messages of one local transaction, and how it ends. `now_ms` is the broker's time."""
    habits = plan.habits
    is_joined = chance.random() < habits.joined_share
    count = chance.randint(1, habits.messages_max) if is_joined else 1
    verdict = COMMIT if chance.random() < 0.7 else ROLLBACK
    truth = Truth(group=group, verdict=verdict, name=f"order {name}" if is_joined else "")
    sents = []
    for nth in range(count):
        topic, queues_count = chance.choice(plan.topics)
        key = f"{name}{nth:02d}"
        sent = Sent(
            key=key,
            topic=topic,
            queue_id=chance.randrange(queues_count),
            body=key.encode() + chance.randbytes(chance.choice((1, 50, 900))),
            truth=truth,
        )
        if chance.random() < habits.order_share:
            sent.order_key = f"customer {chance.randrange(habits.order_keys_count)}"
        if chance.random() < habits.delay_share:
            if chance.random() < 0.6:
                sent.level = chance.randint(1, LEVELS_MAX)
            else:
                sent.deliver_ms = now_ms + chance.randrange(_DELIVERED_LATEST_MS)
                if habits.far_share and chance.random() < habits.far_share:
                    sent.deliver_ms += chance.choice(_FAR_HOURS) * _HOUR_MS
        sents.append(sent)
    return sents


def draw_message(plan: Plan, chance: random.Random, *, group: str, key: str) -> Sent:
    """The one message of a transaction, and how that ends. Its producer chooses the queue."""
    topic, _ = chance.choice(plan.topics)
    verdict = COMMIT if chance.random() < 0.7 else ROLLBACK
    truth = Truth(group=group, verdict=verdict)
    body = key.encode() + chance.randbytes(chance.choice((1, 50, 900)))
    return Sent(key=key, topic=topic, queue_id=0, body=body, truth=truth)


def send_fields(
    sent: Sent, plan: Plan, *, born_ms: int, immunity: str, flag: int
) -> dict[str, str]:
    """The header of the request that stores a half."""
    truth = sent.truth
    properties = {
        Property.UNIQ_KEY: sent.key,
        Property.TRAN_MSG: "true",
        Property.PGROUP: truth.group,
        Property.TAGS: "paid",
        Property.KEYS: f"k{sent.key}",
    }
    if immunity:
        properties[Property.CHECK_IMMUNITY_TIME] = immunity
    if truth.name:
        properties[TRANSACTION] = truth.name
    if sent.order_key:
        properties[ORDER_KEY] = sent.order_key
    if sent.level or sent.deliver_ms:
        properties[DELAYED] = "true"
        if sent.level:
            properties[Property.DELAY] = str(sent.level)
        else:
            properties[Property.TIMER_DELIVER_MS] = str(sent.deliver_ms)
    return {
        "a": truth.group,
        "b": sent.topic,
        "c": "TBW102",
        "d": str(plan.queues_count),
        "e": str(sent.queue_id),
        "f": "4",
        "g": str(born_ms),
        "h": str(flag),
        "i": encode_properties(properties).decode(),
        "j": "0",
    }


def end_fields(
    sent: Sent, ident: Ident, queue_offset: int, verdict: int, *, group: str, is_check: bool
) -> dict[str, str]:
    """The header of the request that ends a transaction by the offsets of a half."""
    return {
        "topic": sent.topic,
        "producerGroup": group,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(ident[1]),
        "commitOrRollback": str(verdict),
        "fromTransactionCheck": "true" if is_check else "false",
        "msgId": sent.key,
        "transactionId": sent.key,
    }
