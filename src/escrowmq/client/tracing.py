"""RocketMQ's message trace, collected and sent in the background. It never delays or fails a
caller; under load, records are dropped."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from escrowmq.base.message import Property, Topic
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.send_attempts import SendAnswer
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.core.trace_records import (
    REGION_DEFAULT,
    ConsumeResult,
    TraceRecord,
    consumed_record,
    delivered_record,
    end_record,
    pack,
    sent_record,
)
from escrowmq.client.core.validation import check_topic
from escrowmq.client.instance import ClientInstance
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.client.send_flow import SendDispatch
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Limit of records that wait to be sent; further ones are dropped."""

_FULL_COUNT: Final = 500
_COLLECT_S: Final = 1.0
"""After this many seconds records are sent; sooner if there are many."""

_TIMEOUT_MS: Final = 5_000
_LAST_S: Final = 2.0
"""For this many seconds, closing a client waits for its last records to be sent."""


def trace_topic(trace: object) -> str:
    """Return the topic that a client's setting `trace` names; empty for none."""
    if trace is True:
        return Topic.TRACE
    if not trace:
        return ""
    if not isinstance(trace, str):
        raise UsageError(f"trace={trace!r}; True, False or the name of a topic is expected")
    check_topic(trace)
    return trace


class Tracer:
    """Collects the trace records of one group, and sends them in the background to a trace
    topic."""

    def __init__(self, instance: ClientInstance, topic: str, *, group: str, role: str) -> None:
        self.dropped_count = 0
        """Number of records that were never sent: too many at a time, or no broker accepted
        them."""
        self.topic = topic
        self._instance = instance
        self._group = instance.options.without_namespace(group)
        options = ProducerOptions(timeout_ms=_TIMEOUT_MS, retries=2, compression="")
        inner_group = f"_INNER_TRACE_PRODUCER-{group}-{role}"
        self._dispatch = SendDispatch(instance, options, group=inner_group)
        self._waiting: collections.deque[TraceRecord] = collections.deque()
        self._has_some = asyncio.Event()
        self._is_full = asyncio.Event()
        self._sending_count = 0
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start to send records."""
        self._task = self._instance.keep_running(
            "the sending of the trace", self._send_periodically
        )

    async def close(self) -> None:
        """Send the remaining records, for a few seconds at most."""
        if self._task is None:
            return
        self._is_closing = True
        self._has_some.set()
        self._is_full.set()
        _, late = await asyncio.wait([self._task], timeout=_LAST_S)
        if late:
            self._task.cancel()
            self._count_dropped(len(self._waiting) + self._sending_count, "the client ends")
        self._waiting.clear()

    # -- what happens ------------------------------------------------------------------------

    def record_sent(
        self, message: Message, result: SendResult, *, sent: SendAnswer, born_ms: int
    ) -> None:
        """Record that a message was stored, perhaps as a half."""
        ext = sent.reply.ext or {}
        if message.topic == self.topic or ext.get(Property.TRACE_ON) == "false":
            return
        region = ext.get(Property.MSG_REGION, REGION_DEFAULT)
        self._enqueue(
            sent_record(
                message,
                result,
                group=self._group,
                place=(region, sent.address),
                span=range(born_ms, self._now_ms()),
            )
        )

    def record_end(
        self, ends: Sequence[tuple[Message, str]], outcome: Outcome, *, address: str,
        is_from_check: bool = False,
    ) -> None:  # fmt: skip
        """Record that an END was sent to a broker. `ends` are the transaction's messages, each with
        its id."""
        for message, message_id in ends:
            region = _region(message)
            self._enqueue(
                end_record(
                    message,
                    message_id,
                    group=self._group,
                    place=(region, address),
                    now_ms=self._now_ms(),
                    outcome=outcome,
                    is_from_check=is_from_check,
                )
            )

    def record_delivered(self, messages: Sequence[ReceivedMessage]) -> tuple[str, int]:
        """Record that messages are about to be consumed together. Return what `record_consumed`
        needs about it: the id and the time of the delivery."""
        now_ms, request_id = self._now_ms(), self._dispatch.new_id()
        for message in messages:
            if _is_traced(message):
                self._enqueue(
                    delivered_record(
                        message,
                        message.message_id,
                        group=self._group,
                        region=_region(message),
                        request_id=request_id,
                        now_ms=now_ms,
                        deliveries_before=message.deliveries_before,
                    )
                )
        return request_id, now_ms

    def record_consumed(
        self, message: ReceivedMessage, taken: tuple[str, int], end: ConsumeResult
    ) -> None:
        """Record that a message was consumed, or will be redelivered."""
        request_id, begin_ms = taken
        if _is_traced(message):
            self._enqueue(
                consumed_record(
                    message,
                    message.message_id,
                    group=self._group,
                    request_id=request_id,
                    span=range(begin_ms, self._now_ms()),
                    end=end,
                )
            )

    # -- inside ------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._instance.clock.now_ms()

    def _enqueue(self, record: TraceRecord) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._count_dropped(1, f"{WAITING_MAX} wait already")
            return
        self._waiting.append(record)
        self._has_some.set()
        if len(self._waiting) >= _FULL_COUNT:
            self._is_full.set()

    def _count_dropped(self, count: int, why: str) -> None:
        """Count dropped records. Log it each time the count reaches a power of two, to keep the log
        short."""
        before, self.dropped_count = self.dropped_count, self.dropped_count + count
        if before.bit_length() < self.dropped_count.bit_length():
            _log.warning("%d records of the trace are dropped: %s", self.dropped_count, why)

    async def _send_periodically(self) -> None:
        while not self._is_closing:
            await self._has_some.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COLLECT_S):
                    await self._is_full.wait()
            await self._send_waiting()

    async def _send_waiting(self) -> None:
        self._has_some.clear()
        self._is_full.clear()
        records = list(self._waiting)
        self._waiting.clear()
        self._sending_count = len(records)
        for packed in pack(records):
            message = Message(self.topic, packed.body, keys=packed.keys)
            count = packed.body.count(b"\x02")
            try:
                out = self._dispatch.prepare(message, is_wrapped=True)
                await self._dispatch.send_prepared(message, out)
            except EscrowMQError as error:
                self._count_dropped(count, str(error))
            self._sending_count -= count


def _is_traced(message: ReceivedMessage) -> bool:
    return message.system.get(Property.TRACE_ON) != "false"


def _region(message: Message) -> str:
    if isinstance(message, ReceivedMessage):
        return message.system.get(Property.MSG_REGION, REGION_DEFAULT)
    return REGION_DEFAULT
