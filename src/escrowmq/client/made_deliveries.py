"""Deliveries made without a broker, for unit tests of handlers. They record the handler's
decision."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from escrowmq.client.blocking import delivery as plain
from escrowmq.client.core.message import Delay, Message
from escrowmq.client.core.redelivery import NEVER
from escrowmq.client.core.validation import check_message
from escrowmq.client.delivery import Delivery, DeliveryState, HeldMessage

Decision = Literal["ack", "retry", "reject"]
T = TypeVar("T")

_ANY_SIZE: Final = 2**63
"""A size limit that never applies: only brokers limit the size of bodies."""

_numbers = itertools.count(1)


class DeliveryFields(TypedDict, total=False):
    """Optional fields of a delivery, besides its topic, body and group."""

    tag: str
    keys: Sequence[str]
    properties: Mapping[str, str]
    order_key: str
    deliveries_before: int
    message_id: str


class _DecisionRecorder:
    """Records the decisions that a consumer would send to its broker."""

    def __init__(self, group: str) -> None:
        self.user_group = group
        self.is_broadcasting = False
        self.after: Delay | None = None

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        """Record the first decision, like a consumer."""
        state = message.delivery_state
        assert state is not None
        if not state.is_settled:
            state.record_settled(level)

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        """Record a decision for each message that has none."""
        for message in batch:
            await self.settle(message, level)


class _InlinePortal:
    """A portal that runs coroutines on the spot; they may not wait for anything."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        try:
            coroutine.send(None)
        except StopIteration as end:
            found: T = end.value
            return found
        coroutine.close()
        raise AssertionError("a delivery made for a test waits for nothing")


class MadeDelivery(plain.Delivery, kw_only=True, eq=False):
    """The result of `delivery`: a message as a plain handler receives it."""

    def retry(self, after: dt.timedelta | float | None = None) -> None:
        """Record that the message should be redelivered, and after what time."""
        is_first = self.decision is None
        super().retry(after)
        if is_first:
            _recorder_of(self).after = after

    @property
    def decision(self) -> Decision | None:
        """The handler's decision. None leaves it to the consumer, which acknowledges the message
        when the handler returns, and has it redelivered when the handler raises."""
        return _recorded_decision(self)

    @property
    def retry_after(self) -> Delay | None:
        """The argument of `retry(after=...)`."""
        return _recorder_of(self).after


class AioMadeDelivery(Delivery, kw_only=True, eq=False):
    """The result of `aio_delivery`: a message as a coroutine function receives it, with coroutine
    methods."""

    async def retry(self, after: dt.timedelta | float | None = None) -> None:
        """Record that the message should be redelivered, and after what time."""
        is_first = self.decision is None
        await super().retry(after)
        if is_first:
            _recorder_of(self).after = after

    @property
    def decision(self) -> Decision | None:
        """The handler's decision. None leaves it to the consumer, which acknowledges the message
        when the handler returns, and has it redelivered when the handler raises."""
        return _recorded_decision(self)

    @property
    def retry_after(self) -> Delay | None:
        """The argument of `retry(after=...)`."""
        return _recorder_of(self).after


def delivery(
    topic: str,
    body: bytes,
    *,
    group: str = "test",
    **fields: Unpack[DeliveryFields],
) -> MadeDelivery:
    """Make a message as a plain handler receives it, to call the handler in a unit test without a
    broker. `decision` is the handler's decision ("ack", "retry", "reject"), or None if it left that
    to the consumer; `retry_after` is the time that it gave. The message has an id of its own,
    unless you give one: two with the same id are two deliveries of one message.

    >>> message = escrowmq.testing.delivery("paid", b"order 1", deliveries_before=2)
    >>> message.retry(after=60)
    >>> message.decision, message.retry_after
    ('retry', 60)
    """
    found = MadeDelivery(**_check_fields(topic, body, fields))
    found.portal = _InlinePortal()
    found.delivery_state = _make_state(group)
    return found


def aio_delivery(
    topic: str,
    body: bytes,
    *,
    group: str = "test",
    **fields: Unpack[DeliveryFields],
) -> AioMadeDelivery:
    """Make a message as a handler that is a coroutine function receives it (`await message.ack()`),
    to call the handler in a unit test without a broker. See `delivery`.

    >>> message = escrowmq.testing.aio_delivery("paid", b"order 1", keys=["o-1"])
    >>> message.decision is None
    True
    """
    found = AioMadeDelivery(**_check_fields(topic, body, fields))
    found.delivery_state = _make_state(group)
    return found


def _check_fields(topic: str, body: bytes, fields: DeliveryFields) -> dict[str, Any]:
    """Validate the fields as a producer does, so that no handler is tested with an impossible
    message."""
    keys = fields.get("keys", [])
    said: dict[str, Any] = {
        "topic": topic,
        "body": body,
        "tag": fields.get("tag", ""),
        "keys": [keys] if isinstance(keys, str) else [*keys],
        "properties": {**fields.get("properties", {})},
        "order_key": fields.get("order_key", ""),
    }
    check_message(Message(**said), body_size_max=_ANY_SIZE)
    number = next(_numbers)
    return said | {
        "deliveries_before": fields.get("deliveries_before", 0),
        "message_id": fields.get("message_id", f"{number:032X}"),
        "broker_name": "test",
        "queue_offset": number,
        "system": {},
    }


def _make_state(group: str) -> DeliveryState:
    owner = _DecisionRecorder(group)
    return DeliveryState(owner, source=owner)  # without a source, later decisions are allowed


def _recorder_of(message: HeldMessage) -> _DecisionRecorder:
    owner = message.owner()
    assert isinstance(owner, _DecisionRecorder)
    return owner


def _recorded_decision(message: HeldMessage) -> Decision | None:
    state = message.delivery_state
    assert state is not None
    if not state.is_settled:
        return None
    if state.level is None:
        return "ack"
    return "reject" if state.level == NEVER else "retry"
