"""Serves queries of messages by key and by log offset."""

from __future__ import annotations

from typing import Final

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec.headers import QueryMessageHeader, ViewMessageHeader
from escrowmq.store.store import Store

_BY_UNIQUE_KEY: Final = "_UNIQUE_KEY_QUERY"


class QueryHandlers:
    """Serves QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33)."""

    def __init__(self, settings: BrokerSettings, store: Store) -> None:
        self._settings = settings
        self._store = store

    def query_messages(self, request: IncomingRequest[QueryMessageHeader]) -> Reply:
        """Answer with the messages that have a key. Others with the same hash may be among them:
        clients must compare."""
        header = request.header
        count_max = header.max_num
        if (request.command.ext or {}).get(_BY_UNIQUE_KEY) == "true":
            count_max = self._settings.query_unique_max
        found = self._store.query(
            header.topic,
            header.key,
            count_max=count_max,
            begin_ms=header.begin_timestamp,
            end_ms=header.end_timestamp,
        )
        ext = {
            "indexLastUpdateTimestamp": str(found.last_ms),
            "indexLastUpdatePhyoffset": str(found.last_log_offset),
        }
        if not found.records:
            return Refusal(
                Response.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext=ext,
            )
        return Answer(ext=ext, body=b"".join(found.records))

    def view_message(self, request: IncomingRequest[ViewMessageHeader]) -> Reply:
        """Answer with the message at an offset of the log."""
        offset = request.header.offset
        message = self._store.read(offset)
        if message is None:
            return Refusal(Response.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        body = self._store.read_record(offset, message.record_size)
        return Answer(body=body)
