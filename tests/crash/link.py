"""A plain socket that asks a broker: several requests in one write, then their replies."""

from __future__ import annotations

import socket

from escrowmq.base.codes import Flag, Request
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.codec import fastjson
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_records

_TIMEOUT_S = 30


class Link:
    """One connection. OSError when the broker is gone."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._reader = FrameReader()
        self._opaque = 0
        self.requests: list[Command] = []
        """What the broker asked in the meantime."""

    def close(self) -> None:
        self._socket.close()

    def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        (reply,) = self.ask_all([Command(code=code, ext=ext, body=body)])
        return reply

    def ask_all(self, commands: list[Command]) -> list[Command]:
        """The replies, in the order of the requests."""
        opaques = []
        for command in commands:
            self._opaque += 1
            command.opaque, command.version = self._opaque, 479
            opaques.append(self._opaque)
        self._socket.sendall(b"".join(map(encode_command, commands)))
        replies: dict[int, Command] = {}
        while len(replies) < len(commands):
            for reply in self._receive():
                replies[reply.opaque] = reply
        return [replies[opaque] for opaque in opaques]

    def tell(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        request = Command(code=code, flag=Flag.ONE_WAY, version=479, ext=ext, body=body)
        self._socket.sendall(encode_command(request))

    def listen(self, within_s: float) -> None:
        """Gather what the broker asks, at most this long; at once when something comes."""
        self._socket.settimeout(within_s)
        try:
            replies = self._receive()
        except TimeoutError:
            return
        finally:
            self._socket.settimeout(_TIMEOUT_S)
        assert not replies

    def _receive(self) -> list[Command]:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        found = self._reader.read_commands(data)
        assert self._reader.broken is None
        self.requests += [c for c in found if not c.flag & Flag.REPLY]
        return [c for c in found if c.flag & Flag.REPLY]


def heartbeat(link: Link, group: str) -> None:
    body = {"clientID": f"{group}@crash", "producerDataSet": [{"groupName": group}]}
    assert link.ask(Request.HEART_BEAT, {}, fastjson.encode(body)).code == 0


def send_request(
    topic: str, queue_id: int, body: bytes, group: str, properties: dict[str, str]
) -> Command:
    ext = {
        "a": group, "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1",
        "h": "0", "i": encode_properties(properties).decode(), "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return Command(code=Request.SEND_MESSAGE_V2, ext=ext, body=body)


def read_queue(link: Link, topic: str, queue_id: int) -> list[StoredMessage]:
    """All messages of a queue; each pull continues where the last one ended."""
    found: list[StoredMessage] = []
    offset = 0
    while True:
        ext = {
            "consumerGroup": "recount", "topic": topic, "queueId": str(queue_id),
            "queueOffset": str(offset), "maxMsgNums": "1024", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        reply = link.ask(Request.PULL_MESSAGE, ext)
        assert reply.code in (0, 17, 19, 29), (reply.code, reply.remark)
        if reply.code:
            return found
        found += decode_records(reply.body)
        assert reply.ext is not None
        offset = int(reply.ext["nextBeginOffset"])
