"""Serves the requests that brokers send to a consumer: group changes, and values that operators
read or set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property, Topic
from escrowmq.client.connection import Connection
from escrowmq.client.consumer_state import ConsumerState
from escrowmq.client.core.message import to_received_message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.delivery import HeldMessage
from escrowmq.client.queue_fetcher import QueueFetcher
from escrowmq.codec import fastjson
from escrowmq.codec.fastjson import QueueId, decode_queue_map, encode_fastjson_map
from escrowmq.codec.record import decode_record

_log = logging.getLogger(__name__)

_MEBIBYTE: Final = 1024 * 1024

Call = Callable[[Sequence[HeldMessage]], Awaitable[None]]


class BrokerRequestHandlers:
    """Serves requests 40, 220, 221, 307 and 309 of brokers to a consumer."""

    def __init__(self, reading: ConsumerState, call: Call | None) -> None:
        self._state = reading
        self._call = call
        self._started_ms = reading.instance.clock.now_ms()

    def register(self) -> None:
        """Start to serve the requests."""
        instance = self._state.instance
        instance.set_handler(Request.NOTIFY_CONSUMER_IDS_CHANGED, self._on_members_changed)
        instance.set_handler(Request.RESET_CONSUMER_CLIENT_OFFSET, self._on_reset_offsets)
        instance.set_handler(Request.GET_CONSUMER_STATUS_FROM_CLIENT, self._on_get_status)
        instance.set_handler(Request.GET_CONSUMER_RUNNING_INFO, self._on_get_running_info)
        instance.set_handler(Request.CONSUME_MESSAGE_DIRECTLY, self._on_consume_directly)

    def _on_members_changed(self, connection: Connection, request: Command) -> None:
        if (request.ext or {}).get("consumerGroup") == self._state.wire_group:
            self._state.balance.request_round()

    def _on_reset_offsets(self, connection: Connection, request: Command) -> None:
        body = fastjson.decode_fastjson(request.body)
        moved: list[QueueFetcher] = []
        for queue, queue_offset in _parse_offset_table(body).items():
            # One that another member gets soon stores its offset before that.
            reader = self._state.readers.get(queue) or self._state.leaving.get(queue)
            if reader is not None:
                _log.warning("an operator set %s to offset %d", queue, queue_offset)
                reader.seek(queue_offset)
                moved.append(reader)
        # Of no others: without `auto_commit` the program decides when their offsets are stored.
        self._state.instance.spawn(self._state.offsets.store_offsets(moved))

    def _on_get_status(self, connection: Connection, request: Command) -> None:
        topic = (request.ext or {}).get("topic")
        offsets = encode_fastjson_map(
            (_to_wire_queue(queue), reader.fetched.commit_offset)
            for queue, reader in self._state.readers.items()
            if topic in (None, queue.topic)
        )
        body = b'{"consumerTable":{},"messageQueueTable":' + offsets + b"}"
        connection.reply(request, body=body)

    def _on_get_running_info(self, connection: Connection, request: Command) -> None:
        reading = self._state
        parts = {
            b"mqPopTable": b"{}",
            b"mqTable": encode_fastjson_map(
                (_to_wire_queue(q), _reader_info(reader)) for q, reader in reading.readers.items()
            ),
            b"properties": fastjson.encode(self._settings_texts()),
            b"statusTable": b"{}",
            b"subscriptionSet": fastjson.encode(
                [wanted.heartbeat_body() for wanted in reading.subscriptions.values()]
            ),
            b"userConsumerInfo": b"{}",
        }
        body = b",".join(b'"%b":%b' % item for item in parts.items())
        connection.reply(request, body=b"{" + body + b"}")

    def _settings_texts(self) -> dict[str, str]:
        reading = self._state
        options = reading.options
        ext = {
            "PROP_NAMESERVER_ADDR": ";".join(reading.instance.options.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
            "PROP_CONSUMEORDERLY": str(options.is_orderly).lower(),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": "V5_3_3",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "consumerGroup": reading.wire_group,
            "maxReconsumeTimes": str(options.attempts_max),
            "messageModel": "BROADCASTING" if options.is_broadcasting else "CLUSTERING",
        }
        hidden = ("topic", "tags", "sql", "topics", "handler")
        for name in options.__struct_fields__:
            if name not in hidden:
                ext[name] = str(getattr(options, name))
        return ext

    def _on_consume_directly(self, connection: Connection, request: Command) -> None:
        stored = decode_record(request.body)
        topic = stored.properties.get(Property.RETRY_TOPIC, stored.topic)
        if not stored.topic.startswith(Topic.RETRY_PREFIX):
            topic = stored.topic
        message = to_received_message(
            stored,
            topic=self._state.instance.options.without_namespace(topic),
            broker_name=(request.ext or {}).get("brokerName", ""),
            kind=self._state.delivery_class(),
        )
        self._state.instance.spawn(
            self._consume_and_reply(connection, request, self._state.detach(message))
        )

    async def _consume_and_reply(
        self, connection: Connection, request: Command, message: HeldMessage
    ) -> None:
        if self._call is None:
            remark = "this consumer has no handler; its messages are taken by iteration"
            connection.reply(request, Response.SYSTEM_ERROR, remark=remark)
            return
        instance = self._state.instance
        started = instance.now()
        result, remark = "CR_SUCCESS", ""
        try:
            await self._call([message])
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's code; the operator is told
            _log.exception("the handler failed for a message that an operator had delivered")
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        ext: dict[str, Any] = {
            "autoCommit": True,
            "consumeResult": result,
            "order": self._state.options.is_orderly,
            "spentTimeMills": int((instance.now() - started) * 1000),
        }
        if remark:
            ext["remark"] = remark
        connection.reply(request, body=msgspec.json.encode(ext))


def _to_wire_queue(queue: MessageQueue) -> QueueId:
    return QueueId(queue.broker_name, queue.queue_id, queue.topic)


def _reader_info(reader: QueueFetcher) -> dict[str, int | bool]:
    shelf = reader.fetched
    return {
        "cachedMsgCount": shelf.unsettled_count,
        "cachedMsgMaxOffset": max(0, shelf.next_offset - 1) if shelf.unsettled_count else 0,
        "cachedMsgMinOffset": shelf.commit_offset if shelf.unsettled_count else 0,
        "cachedMsgSizeInMiB": shelf.size // _MEBIBYTE,
        "commitOffset": shelf.commit_offset,
        "droped": reader.is_dropped,
        "lastConsumeTimestamp": reader.consumed_ms,
        "lastLockTimestamp": reader.locked_ms,
        "lastPullTimestamp": reader.pulled_ms,
        "locked": reader.locked_ms > 0,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _parse_offset_table(body: Any) -> dict[MessageQueue, int]:  # noqa: ANN401 - JSON is what it is
    table = body.get("offsetTable", {}) if isinstance(body, dict) else {}
    if isinstance(table, list):  # the form for clients in C++
        return {
            MessageQueue(one["topic"], one["brokerName"], int(one["queueId"])): int(one["offset"])
            for one in table
        }
    return {
        MessageQueue(queue.topic, queue.broker_name, queue.queue_id): int(queue_offset)
        for queue, queue_offset in decode_queue_map(table).items()
    }
