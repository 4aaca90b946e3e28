"""Sends under given keys."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("pyarrow")

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.core.message import Message
from escrowmq.codec.command import encode_reply
from escrowmq.codec.properties import parse_properties
from escrowmq.pipeline.brokers.keyed_sends import KeyedSender
from escrowmq.pipeline.brokers.options import ClusterAccess
from tests.unit.pipeline.scripted import QUEUE, Broker


class Storing(Broker):
    """A broker that stores messages of any size."""

    def answer(self, request: Command) -> bytes | None:
        if request.code == Request.GET_ROUTEINFO_BY_TOPIC:
            return super().answer(request)
        return encode_reply(request, 0, ext={"queueId": "0", "queueOffset": "0", "msgId": "x"})


def test_a_message_is_sent_again_whatever_its_size() -> None:
    """A broker with a larger maxMessageSize had stored it; a replay stopped there, and a redo
    failed each time."""
    broker = Storing()
    access = ClusterAccess(name_servers=(broker.server.address,))
    body = os.urandom(5 << 20)
    with KeyedSender(access, group="g") as sender:
        sender.send(Message("t", body), key="K1", queue=QUEUE)
    (sent,) = [each for each in broker.server.requests if each.code == Request.SEND_MESSAGE_V2]
    assert parse_properties((sent.ext or {})["i"])["UNIQ_KEY"] == "K1"
    assert len(sent.body) >= len(body)
    broker.server.close()
