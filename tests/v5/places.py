"""A server for clients of RocketMQ 5, and what has to be there before they come."""

from __future__ import annotations

import json
from typing import Any

from tests.interop import wire
from tests.interop.servers import EscrowServer

SETTINGS: dict[str, Any] = {
    "grpcServerPort": 0,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 4_000,
    "recallMessageEnable": True,
}


def topic(server: EscrowServer, name: str, kind: str = "NORMAL", queues: int = 4) -> str:
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "order": "false", "attributes": f"+message.type={kind}",
    }  # fmt: skip
    reply = wire.ask(server.address, 17, fields)
    assert reply.code == 0, reply
    return name


def in_order(server: EscrowServer, group: str) -> None:
    """Make a consumer group that consumes in order."""
    body = json.dumps({"groupName": group, "consumeMessageOrderly": True}).encode()
    assert wire.ask(server.address, 200, {}, body).code == 0


def at_most(server: EscrowServer, group: str, *, retries: int) -> None:
    """Make a consumer group whose messages come again so many times."""
    body = json.dumps({"groupName": group, "retryMaxTimes": retries}).encode()
    assert wire.ask(server.address, 200, {}, body).code == 0
