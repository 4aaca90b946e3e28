"""Request and reply: callers that wait for a reply, and replies that brokers push (326)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import Final

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.client.connection import Connection
from escrowmq.client.core.message import ReceivedMessage, to_received_message
from escrowmq.client.core.sending import REPLY_TYPE
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.headers import SendHeader, read_header
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import ClientClosed, EscrowMQError, ReplyTimeout, UsageError

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Limit of one producer's requests that wait for a reply."""


class WaitingRequest:
    """One request that is waiting for its reply."""

    def __init__(self) -> None:
        self.correlation_id = str(uuid.uuid4())
        self.future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()

    async def await_reply(self, left_s: float, *, topic: str, timeout_ms: int) -> ReceivedMessage:
        """Wait for the reply and return it; raises ReplyTimeout if it does not come."""
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                return await self.future
        except TimeoutError as error:
            raise ReplyTimeout(
                f"the message to {topic!r} was stored, but no one replied within {timeout_ms} ms; "
                "is a consumer of that topic running, and does it reply?"
            ) from error


class WaitingRequests:
    """The waiting requests of one producer, by correlation id."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._waiting: dict[str, WaitingRequest] = {}

    def open(self) -> None:
        """Start to receive pushed replies."""
        self._instance.add_shared_handler(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, self._on_reply)

    def close(self) -> None:
        """Fail all waiting requests."""
        self._instance.remove_shared_handler(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, self._on_reply)
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(
                    ClientClosed("the client was closed before the reply came; make a new one")
                )
                waiting.future.exception()  # perhaps its message is still under way

    @contextlib.contextmanager
    def expect_reply(self) -> Iterator[WaitingRequest]:
        """Register a request that is about to be sent; yield the object that waits for its reply.
        It is removed at the end of the block."""
        if len(self._waiting) >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX} requests wait for replies; wait for some of them")
        waiting = WaitingRequest()
        self._waiting[waiting.correlation_id] = waiting
        try:
            yield waiting
        finally:
            del self._waiting[waiting.correlation_id]

    def reply_target(self, request: ReceivedMessage) -> tuple[str, dict[str, str]]:
        """Return the topic and the properties of a reply; raises UsageError if the message expects
        none."""
        asked = request.system
        cluster = asked.get(Property.CLUSTER)
        if Property.CORRELATION_ID not in asked or not cluster:
            raise UsageError(
                "this message does not ask for a reply; only one that was sent with request() does"
            )
        names = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL)
        extra = {name: asked[name] for name in names if name in asked}
        return cluster + Topic.REPLY_SUFFIX, {Property.MSG_TYPE: REPLY_TYPE, **extra}

    def _on_reply(self, connection: Connection, request: Command) -> bool:
        try:
            message = self._parse_reply(request)
        except EscrowMQError as error:
            _log.warning("a reply of %s cannot be read: %s", connection.address, error)
            return False
        waiting = self._waiting.get(message.system.get(Property.CORRELATION_ID, ""))
        if waiting is None:
            return False
        if not waiting.future.done():
            waiting.future.set_result(message)
        connection.reply(request)
        return True

    def _parse_reply(self, request: Command) -> ReceivedMessage:
        header = read_header(SendHeader, request.ext)
        stored = StoredMessage(
            topic=header.topic,
            body=request.body,
            queue_id=header.queue_id,
            flag=header.flag,
            properties=parse_properties(header.properties),
            sys_flag=header.sys_flag,
            born_ms=header.born_timestamp,
            queue_offset=-1,
            log_offset=-1,
            stored_ms=0,
            record_size=0,
        )
        return to_received_message(stored)
