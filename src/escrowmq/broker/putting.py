"""Putting messages into the log on somebody's behalf, and what the peer answers to a failure."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.message import Message, Property, Topic
from escrowmq.broker.state import Broker, Peer, Waiting
from escrowmq.codec.command import encode_reply
from escrowmq.store.store import Put, PutStatus

_ILLEGAL: Final = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {size}B, msg properties length limit 32KB."
)
_UNAVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: "
    "the broker's disk is full [{disk}], messages are put to the slave, "
    "message store has been shut down, etc."
)
_DIVERTING: Final = (
    Property.DELAY,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
)


class Putter:
    """The one way into the log: delayed messages are diverted on it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def put(self, message: Message, now_ms: int) -> Put:
        """Store a message, or say why not."""
        return self._broker.store.put(message, now_ms)

    def refusal(self, put: Put) -> tuple[int, str]:
        """Code and remark for a message that was not stored (SendMessageProcessor)."""
        match put.status:
            case PutStatus.MESSAGE_ILLEGAL | PutStatus.PROPERTIES_SIZE_EXCEEDED:
                size = self._broker.store_settings.body_size_max
                return Response.MESSAGE_ILLEGAL, put.reason or _ILLEGAL.format(size=size)
            case PutStatus.SERVICE_NOT_AVAILABLE:
                return Response.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(disk=put.reason)
            case PutStatus.CREATE_FILE_FAILED:
                return Response.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."
            case _:
                return Response.SYSTEM_ERROR, put.reason or "UNKNOWN_ERROR"

    def answer(
        self,
        peer: Peer,
        request: Command,
        put: Put,
        *,
        ext: dict[str, str],
        waits: bool,
        now_ms: int,
    ) -> bytes | None:
        """The reply to a stored message: at once, or when the disk has it."""
        broker = self._broker
        reply = encode_reply(request, Response.SUCCESS, ext=ext)
        if not waits or not broker.store_settings.is_sync_flush:
            return reply
        if put.log_end <= broker.store.durable_offset:
            return reply
        broker.waiting.append(
            Waiting(
                log_end=put.log_end,
                peer=peer.id,
                request=request,
                reply=reply,
                timeout_reply=encode_reply(request, Response.FLUSH_DISK_TIMEOUT, ext=ext),
                deadline_ms=now_ms + broker.store_settings.sync_timeout_ms,
            )
        )
        return None


def is_retry(topic: str) -> bool:
    """Whether a topic holds a group's messages for another try."""
    return topic.startswith(Topic.RETRY_PREFIX)
