"""Relays operators' requests to a consumer, and its answers back."""

from __future__ import annotations

import functools
from collections.abc import Callable

from escrowmq.base.answer import HELD, Answer, Refusal, Reply
from escrowmq.base.codes import Request, Response, Version
from escrowmq.base.command import Command
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.outgoing_requests import CLIENT_MS
from escrowmq.broker.peers import Peers
from escrowmq.codec import fastjson
from escrowmq.codec.headers import (
    ConsumeDirectlyHeader,
    GroupTopicHeader,
    RunningInfoHeader,
)
from escrowmq.codec.ids import parse_offset_id
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.store.store import Store


class RelayHandlers:
    """Serves requests that are relayed to consumers (codes 223, 307 and 309)."""

    def __init__(self, store: Store, clients: Clients, peers: Peers, answers: AnswerSender) -> None:
        self._store = store
        self._clients = clients
        self._peers = peers
        self._answers = answers

    def running_info(self, request: IncomingRequest[RunningInfoHeader]) -> Reply:
        """Answer with a consumer's report of its own state."""
        header = request.header
        return self._relay_to_consumer(
            request, group=header.consumer_group, client=header.client_id
        )

    def consume_directly(self, request: IncomingRequest[ConsumeDirectlyHeader]) -> Reply:
        """Make a consumer consume one message now."""
        header = request.header
        _, log_offset = parse_offset_id(header.msg_id)
        message = self._store.read(log_offset)
        if message is None:
            return Refusal(Response.SYSTEM_ERROR, f"no message with the offset id {header.msg_id}")
        body = self._store.read_record(log_offset, message.record_size)
        return self._relay_to_consumer(
            request, group=header.consumer_group, client=header.client_id, body=body
        )

    def _relay_to_consumer(
        self, request: Question, *, group: str, client: str, body: bytes = b""
    ) -> Reply:
        channel = self._clients.find_consumer(group, client)
        if channel is None:
            return Refusal(Response.SYSTEM_ERROR, f"The Consumer <{group}> <{client}> not online")
        if channel.version < Version.V3_1_8_SNAPSHOT:
            remark = (
                f"The Consumer <{client}> Version <{channel.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return Refusal(Response.SYSTEM_ERROR, remark)
        self._send_to_channel(request, channel, body, group)
        return HELD

    def _send_to_channel(
        self, request: Question, channel: Channel, body: bytes, group: str
    ) -> None:

        def on_reply(reply: Command | None, now_ms: int) -> None:  # noqa: ARG001
            if reply is not None:
                answer = Answer(reply.code, ext=reply.ext, body=reply.body, remark=reply.remark)
                self._answers.send(request, answer)
                return
            remark = (
                f"consumer <{group}> <{channel.client_id}> Timeout: no answer within {CLIENT_MS} ms"
            )
            self._answers.send(request, Refusal(Response.CONSUME_MSG_TIMEOUT, remark))

        self._peers.send_request(
            channel.peer,
            request.command.code,
            ext=request.command.ext,
            body=body,
            on_answer=on_reply,
            until_ms=request.now_ms + CLIENT_MS,
        )

    def consumer_status(self, request: IncomingRequest[GroupTopicHeader]) -> Reply:
        """Answer with the offsets that the members of a group hold in memory."""
        header = request.header
        group = self._clients.consumers.get(header.group)
        if group is None:
            return Refusal(Response.SYSTEM_ERROR, f"the consumer group[{header.group}] not online")
        members = [
            channel
            for channel in group.channels.values()
            if not header.client_addr or channel.client_id == header.client_addr
        ]
        found: list[bytes] = []
        left = len(members)

        def on_reply(client_id: str, reply: Command | None) -> None:
            nonlocal left
            left -= 1
            table = _queue_table(reply.body) if reply is not None else None
            if table is not None:
                found.append(b"%b:%b" % (fastjson.encode(client_id), table))
            if left == 0:
                body = b'{"consumerTable":{%b},"messageQueueTable":{}}' % b",".join(found)
                self._answers.send(request, Answer(body=body))

        if not members:
            return Answer(body=b'{"consumerTable":{},"messageQueueTable":{}}')
        for channel in members:
            self._peers.send_request(
                channel.peer,
                Request.GET_CONSUMER_STATUS_FROM_CLIENT,
                ext={"topic": header.topic, "group": header.group},
                on_answer=functools.partial(_call_without_time, on_reply, channel.client_id),
                until_ms=request.now_ms + CLIENT_MS,
            )
        return HELD


def _call_without_time(
    on_reply: Callable[[str, Command | None], None],
    client_id: str,
    reply: Command | None,
    now_ms: int,  # noqa: ARG001
) -> None:
    on_reply(client_id, reply)


def _queue_table(body: bytes) -> bytes | None:
    """Return the bytes of `messageQueueTable` in a client's answer, unparsed; None if there are
    none."""
    start = body.find(b'"messageQueueTable":')
    if start < 0:
        return None
    start += len(b'"messageQueueTable":')
    depth = 0
    for at in range(start, len(body)):
        if body[at] == ord("{"):
            depth += 1
        elif body[at] == ord("}"):
            depth -= 1
            if depth == 0:
                return body[start : at + 1]
    return None
