"""Builds the message to store from a request: from the sender's values, and what the broker adds to
every message."""

from __future__ import annotations

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, Property, SysFlag
from escrowmq.base.ports import RandomSource
from escrowmq.broker.answers.answer_frames import AnswerFrames
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import Peer
from escrowmq.broker.sends.destinations import Header
from escrowmq.codec.properties import encode_properties, parse_properties
from escrowmq.delivery.topics import TopicConfig


class MessageMaker:
    """Builds messages from send requests."""

    def __init__(
        self,
        settings: BrokerSettings,
        frames: AnswerFrames,
        identity: Identity,
        chance: RandomSource,
    ) -> None:
        self._settings = settings
        self._frames = frames
        self._identity = identity
        self._chance = chance
        self.reply_fields: dict[str, str] = {}
        """The fields that every answer to a send has."""
        self.suffix = b""
        """The encoded properties that are added to every message."""
        self.update_from_settings()

    def update_from_settings(self) -> None:
        """Update the added properties and fields from the settings, which operators may change."""
        reply_fields = self._frames.send_reply_fields()
        if reply_fields is not self.reply_fields:
            self.reply_fields = reply_fields
            self._added = {**reply_fields, Property.CLUSTER: self._settings.cluster}
            self.suffix = encode_properties(self._added)

    def make_message(
        self, request: IncomingRequest[Header], topic: TopicConfig, body: bytes
    ) -> Message:
        """Return the message to store for a request, with all properties."""
        message = self.make_bare_message(request, topic, body)
        self.add_broker_properties(message.properties, request.peer, request.now_ms)
        return message

    def make_bare_message(
        self, request: IncomingRequest[Header], topic: TopicConfig, body: bytes
    ) -> Message:
        """Return the message with its sender's properties only."""
        self.update_from_settings()
        header = request.header
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._chance.randrange(max(1, topic.write_queue_nums))
        properties = parse_properties(header.properties)
        sys_flag = header.sys_flag
        if topic.has_many_tags:
            sys_flag |= SysFlag.MULTI_TAGS
        return Message(
            topic=header.topic,
            body=body,
            queue_id=queue_id,
            flag=header.flag,
            properties=properties,
            sys_flag=sys_flag,
            born_ms=header.born_timestamp,
            born_host=request.peer.packed,
            store_host=self._identity.packed,
            reconsume_times=header.reconsume_times,
        )

    def add_broker_properties(self, properties: dict[str, str], peer: Peer, now_ms: int) -> None:
        """Add the properties that RocketMQ adds to every message."""
        if Property.UNIQ_KEY not in properties:
            properties[Property.UNIQ_KEY] = self._unique_key(peer, now_ms)
        properties.update(self._added)

    def _unique_key(self, peer: Peer, now_ms: int) -> str:
        """Return a unique key for a message whose sender made none: 16 bytes in hex, like a
        client's."""
        chance = self._chance.getrandbits(48)
        return f"{peer.packed[:4].hex().upper()}{now_ms & 0xFFFFFFFFFFFF:012X}{chance:012X}"
