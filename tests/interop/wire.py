"""The least of the remoting protocol: enough to ask a server one question without any client."""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Final

VERSION: Final = 479  # V5_3_3
FRAME = struct.Struct(">II")
CLUSTER_INFO: Final = 106


@dataclass
class Reply:
    """What the server answered."""

    code: int
    remark: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def ask(address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Reply:
    """The reply to one request on a connection of its own; OSError if there is none."""
    request = {"code": code, "language": "JAVA", "version": VERSION, "opaque": 1, "flag": 0}
    header = json.dumps(request | {"extFields": fields or {}}).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as link:
        link.sendall(FRAME.pack(4 + len(header) + len(body), len(header)) + header + body)
        size, header_size = FRAME.unpack(exactly(link, 8))
        rest = exactly(link, size - 4)
    header_size &= 0xFFFFFF
    answer: dict[str, Any] = json.loads(rest[:header_size])
    return Reply(
        answer["code"], answer.get("remark"), answer.get("extFields") or {}, rest[header_size:]
    )


def committed(broker: str, group: str, topic: str, *, queues: int = 4) -> int:
    """How many messages a group has told the broker that it consumed (request 14)."""
    total = 0
    for queue_id in range(queues):
        header = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        total += int(ask(broker, 14, header).fields.get("offset", 0))
    return total


def exactly(link: socket.socket, size: int) -> bytes:
    """That many bytes; ConnectionError when RocketMQ closes before."""
    data = bytearray()
    while len(data) < size:
        chunk = link.recv(size - len(data))
        if not chunk:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)


def registered_brokers(nameserver: str) -> set[str]:
    """The names of the brokers that a name server knows (request 106)."""
    body = ask(nameserver, CLUSTER_INFO).body.decode()
    # Integer map keys come without quotes, so this is no JSON; the cluster table names all brokers.
    marker = '"clusterAddrTable":'
    table = body[body.index(marker) + len(marker) :]
    clusters, _ = json.JSONDecoder().raw_decode(table)
    return {broker for brokers in clusters.values() for broker in brokers}
