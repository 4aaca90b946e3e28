"""A message as FastStream's handlers get it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

from faststream.message import StreamMessage, decode_message

from escrowmq.base.message import Property
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.delivery import Delivery

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
"""The properties that carry FastStream's own fields; all others are headers."""


Raw = ReceivedMessage | tuple[ReceivedMessage, ...]
"""What a handler gets in one call: a message, or a batch as a tuple."""


class EscrowMQMessage(StreamMessage[Raw]):
    """`raw_message` has what FastStream does not know: the tag, the keys, `deliveries_before`; for
    a batch it is a tuple. A decision about a batch applies to all of it, except messages that were
    settled individually (`message.raw_message[0].reject()`)."""

    _pause_of: Callable[[Delivery], float | None] | None = None

    def mark_taken(self, pause_of: Callable[[Delivery], float | None]) -> None:
        """Mark the message as returned by `get_one`, so that `ack`, `nack` and `reject` settle it.
        `pause_of` returns the delay in seconds after a nack."""
        self._pause_of = pause_of

    async def ack(self) -> None:
        """Acknowledge the message."""
        for delivery in self._undecided_deliveries():
            await delivery.ack()
        await super().ack()

    async def nack(self, after: dt.timedelta | float | None = None) -> None:
        """Have the message redelivered: after the given time, otherwise after the subscriber's
        `retry_after_s`, otherwise after the broker's back-off. After too many attempts it becomes a
        dead letter."""
        for delivery in self._undecided_deliveries():
            if after is not None:
                await delivery.retry(after)
            elif self._pause_of is not None:
                await delivery.retry(self._pause_of(delivery))
        # Otherwise the subscriber would return it when the handler ends.
        await super().nack()

    async def reject(self) -> None:
        """Move the message to the group's dead letters; it is not redelivered."""
        for delivery in self._undecided_deliveries():
            await delivery.reject()
        await super().reject()

    def _undecided_deliveries(self) -> list[Delivery]:
        """Return the deliveries that are not settled yet; messages of a test broker have none."""
        if self.committed is not None:
            return []
        raw = self.raw_message
        given = raw if isinstance(raw, tuple) else (raw,)
        return [each for each in given if isinstance(each, Delivery) and is_undecided(each)]


def is_undecided(delivery: Delivery) -> bool:
    """Whether a message is not settled yet."""
    return delivery.delivery_state is not None and not delivery.delivery_state.is_settled


async def parse(raw: ReceivedMessage) -> EscrowMQMessage:
    """Make FastStream's message from ours."""
    headers = dict(raw.properties)
    return EscrowMQMessage(
        raw_message=raw,
        body=raw.body,
        headers=headers,
        reply_to=raw.system.get(Property.REPLY_TO_CLIENT, ""),
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        message_id=raw.message_id,
    )


async def parse_batch(raw: tuple[ReceivedMessage, ...]) -> EscrowMQMessage:
    """Make FastStream's message from a batch; its `headers` are those of the first message. It has
    no reply address: each of its messages may have another."""
    headers = [dict(each.properties) for each in raw]
    return EscrowMQMessage(
        raw_message=raw,
        body=[each.body for each in raw],
        headers=headers[0],
        batch_headers=headers,
        content_type=headers[0].get(CONTENT_TYPE),
        correlation_id=headers[0].get(CORRELATION_ID),
        message_id=raw[0].message_id,
    )


async def decode(message: StreamMessage[Raw]) -> object:
    """Decode the body by its content type."""
    found: object = decode_message(message)
    return found


async def decode_batch(message: StreamMessage[Raw]) -> list[object]:
    """Decode each message. By this name FastStream recognises that a subscriber takes batches."""
    raw = message.raw_message
    assert isinstance(raw, tuple), raw
    return [decode_message(await parse(each)) for each in raw]
