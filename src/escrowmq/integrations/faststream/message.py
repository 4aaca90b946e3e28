"""A message as FastStream's handlers have it."""

from __future__ import annotations

import datetime as dt
from typing import Final

from faststream.message import StreamMessage, decode_message

from escrowmq.base.message import Property
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.delivery import Delivery

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
"""The properties in which FastStream's own fields travel; all others are headers."""


class EscrowMQMessage(StreamMessage[ReceivedMessage]):
    """`raw_message` has what FastStream does not know: the tag, the keys, `deliveries_before`."""

    async def ack(self) -> None:
        """It is consumed."""
        if self.committed is None and (delivery := self._delivery()) is not None:
            await delivery.ack()
        await super().ack()

    async def nack(self, after: dt.timedelta | float | None = None) -> None:
        """It is to come again: after a time, or after the pause that the subscriber was given
        (`retry_after_s`), else that of the broker. After too many attempts it is a dead letter."""
        if self.committed is None and after is not None and (delivery := self._delivery()):
            await delivery.retry(after)
        await (
            super().nack()
        )  # without a time the subscriber gives it back, when the handler is over

    async def reject(self) -> None:
        """It goes to the group's dead letters and comes no more."""
        if self.committed is None and (delivery := self._delivery()) is not None:
            await delivery.reject()
        await super().reject()

    def _delivery(self) -> Delivery | None:
        """What can be settled; a message in a test broker came from no consumer."""
        raw = self.raw_message
        return raw if isinstance(raw, Delivery) and raw.ticket is not None else None


async def parse(raw: ReceivedMessage) -> EscrowMQMessage:
    """FastStream's message for ours."""
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


async def decode(message: StreamMessage[ReceivedMessage]) -> object:
    """What the body says, by its content type."""
    found: object = decode_message(message)
    return found
