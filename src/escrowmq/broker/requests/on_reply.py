"""Serves replies of the request-reply pattern: pushes them to the requesting client, and stores
them as messages."""

from __future__ import annotations

from escrowmq.base.answer import HELD, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Message, Property, is_sendable
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.outgoing_requests import CLIENT_MS
from escrowmq.broker.peers import Peers
from escrowmq.broker.sends.forbidden_to_senders import clean_message, remove_forbidden
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.codec.headers import SendHeader, SendHeaderV2
from escrowmq.codec.ids import format_host, offset_id
from escrowmq.codec.properties import parse_properties
from escrowmq.delivery.auto_created import RequestAccount
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.requesters import WaitingRequests
from escrowmq.delivery.topics import TopicTable


class ReplyHandlers:
    """Serves SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        topics: TopicTable,
        clients: Clients,
        identity: Identity,
        present: RequestAccount,
        requesters: WaitingRequests,
        peers: Peers,
        answers: AnswerSender,
        putter: MessageStorer,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clients = clients
        self._identity = identity
        self._present = present
        self._requesters = requesters
        self._peers = peers
        self._answers = answers
        self._putter = putter

    def push_reply(self, request: IncomingRequest[SendHeader | SendHeaderV2]) -> Reply:
        """Push a reply to the requesting client, and store it as a message."""
        header = request.header
        properties = parse_properties(header.properties)
        refusal = _refusal(header, properties)
        if refusal is not None:
            return refusal
        asker = properties.get(Property.REPLY_TO_CLIENT)
        if not asker:
            remark = "reply message properties[REPLY_TO_CLIENT] is null"
            return Refusal(Response.SYSTEM_ERROR, remark)
        requester = self._find_requester(asker, properties, request.now_ms)
        if requester is None:
            remark = f"push reply message fail, channel of <{asker}> not found."
            return Refusal(Response.SYSTEM_ERROR, remark)
        properties[Property.PUSH_REPLY_TIME] = str(request.now_ms)
        ext = self._store_reply(request, properties)

        def on_reply(reply: Command | None, now_ms: int) -> None:  # noqa: ARG001
            if reply is not None and reply.code == Response.SUCCESS:
                self._requesters.forget_answered(properties)
                self._answers.send(request, Answer(ext=ext))
                return
            remark = f"push reply message to <{asker}>fail."
            self._answers.send(request, Refusal(Response.SYSTEM_ERROR, remark))

        self._peers.send_request(
            requester,
            Request.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext=_push_fields(request, properties, format_host(self._identity.packed)),
            body=request.body,
            on_answer=on_reply,
            until_ms=request.now_ms + CLIENT_MS,
        )
        return HELD

    def _find_requester(
        self, client_id: str, properties: dict[str, str], now_ms: int
    ) -> int | None:
        """Return the connection of the client that sent the request; None if it is unknown. With
        accounts, the connection must belong to the account that sent the request, because any
        client may use another's client id. If the request went to another broker, the connection is
        returned only if all with this client id belong to one account."""
        found = self._clients.find_connections(client_id)
        if not self._present.has_owners:
            return found[0] if found else None
        of_account: dict[str, int] = {}
        for peer in found:
            of_account.setdefault(self._peers.by_id[peer].account, peer)
        requester = self._requesters.find(properties, now_ms)
        if requester is not None:
            return of_account.get(requester.account)
        return next(iter(of_account.values())) if len(of_account) == 1 else None

    def _store_reply(
        self, request: IncomingRequest[SendHeader | SendHeaderV2], properties: dict[str, str]
    ) -> dict[str, str]:
        header = request.header
        topic = self._topics.get(header.topic)
        if not self._settings.stores_replies or topic is None or not request.body:
            return {}
        queue_id = max(0, min(header.queue_id, topic.write_queue_nums - 1))
        message = Message(
            topic=header.topic,
            body=request.body,
            queue_id=queue_id,
            flag=header.flag,
            properties=dict(properties),
            sys_flag=header.sys_flag,
            born_ms=header.born_timestamp,
            born_host=request.peer.packed,
            store_host=self._identity.packed,
            reconsume_times=header.reconsume_times,
        )
        if clean_message(message, is_half=False):
            return {}
        put = self._putter.store_sent(message, request.now_ms)
        if isinstance(put, Refusal):
            return {}
        return {
            "msgId": offset_id(self._identity.packed, put.log_offset),
            "queueId": str(queue_id),
            "queueOffset": str(put.queue_offset),
        }


def _refusal(header: SendHeader | SendHeaderV2, properties: dict[str, str]) -> Refusal | None:
    """Return why a reply may not be stored. RocketMQ checks nothing, and stores a reply in any
    topic."""
    if not is_sendable(header.topic):
        remark = f"Sending message to topic[{header.topic}] is forbidden."
        return Refusal(Response.NO_PERMISSION, remark)
    fault = remove_forbidden(properties, header.topic)
    return Refusal(Response.MESSAGE_ILLEGAL, fault) if fault else None


def _push_fields(
    request: IncomingRequest[SendHeader | SendHeaderV2], properties: dict[str, str], store_host: str
) -> dict[str, str]:
    header = request.header
    return {
        "producerGroup": header.producer_group,
        "topic": header.topic,
        "defaultTopic": header.default_topic,
        "defaultTopicQueueNums": str(header.default_topic_queue_nums),
        "queueId": str(header.queue_id),
        "sysFlag": str(header.sys_flag),
        "bornTimestamp": str(header.born_timestamp),
        "flag": str(header.flag),
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "reconsumeTimes": str(header.reconsume_times),
        "unitMode": "true" if header.unit_mode else "false",
        "bornHost": f"/{request.peer.address}",
        "storeHost": f"/{store_host}",
        "storeTimestamp": str(request.now_ms),
    }
