"""Messages by key and by place."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.command import encode_reply
from escrowmq.codec.headers import QueryHeader, ViewHeader, read_header

_BY_UNIQUE_KEY: Final = "_UNIQUE_KEY_QUERY"


class QueryHandlers:
    """QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {Request.QUERY_MESSAGE: self.query, Request.VIEW_MESSAGE_BY_ID: self.view}

    def query(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Messages with a key. Others with the same hash may be among them: clients compare."""
        header = read_header(QueryHeader, request.ext)
        count_max = header.max_num
        if (request.ext or {}).get(_BY_UNIQUE_KEY) == "true":
            count_max = self._broker.settings.query_unique_max
        found = self._broker.store.query(
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
            return encode_reply(
                request,
                Response.QUERY_NOT_FOUND,
                remark="can not find message, maybe time range not correct",
                ext=ext,
            )
        return encode_reply(request, Response.SUCCESS, ext=ext, body=b"".join(found.records))

    def view(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """The message at a place of the log."""
        offset = read_header(ViewHeader, request.ext).offset
        message = self._broker.store.read(offset)
        if message is None:
            return encode_reply(
                request,
                Response.SYSTEM_ERROR,
                remark=f"can not find message by the offset, {offset}",
            )
        body = self._broker.store.read_record(offset, message.record_size)
        return encode_reply(request, Response.SUCCESS, body=body)
