"""One name server, asked as a peer would ask it."""

from __future__ import annotations

import json
import struct
from typing import Any

from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Send
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.base.ports import Disk
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.registry.core import RegistryCore
from escrowmq.registry.guard import RegistryGuard


class MemoryDisk:
    """The small files of a Disk, in memory; `is_full` refuses writes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_full = False

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.files[path] = data


class Exchange:
    def __init__(
        self,
        settings: NameServerSettings | None = None,
        disk: Any = None,
        *,
        guard: RegistryGuard | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.settings = settings or NameServerSettings()
        used: Disk | None = disk
        self.host = host
        self.disk = disk
        self.core = RegistryCore(self.settings, used, started_ms=0, guard=guard)
        self.now_ms = 0
        self.peers: set[int] = set()

    def feed(self, data: bytes, peer: int = 1) -> list[Send | Close]:
        if peer not in self.peers:
            self.core.connected(peer, self.host, 40_000 + peer, self.now_ms)
            self.peers.add(peer)
        self.core.receive(peer, data, self.now_ms)
        effects = self.core.take_effects()
        assert all(isinstance(effect, Send | Close) for effect in effects)
        return [effect for effect in effects if isinstance(effect, Send | Close)]

    def ask_frame(self, data: bytes, peer: int = 1) -> Command:
        (send,) = self.feed(data, peer)
        assert isinstance(send, Send)
        assert send.peer == peer
        (reply,) = FrameReader().read_commands(b"".join(send.chunks))
        assert reply.flag & 1
        return reply

    def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        peer: int = 1,
        version: int = 479,
    ) -> Command:
        request = Command(code=code, opaque=7, version=version, ext=ext, body=body)
        reply = self.ask_frame(encode_command(request), peer)
        assert reply.opaque == 7
        return reply

    def lose(self, peer: int) -> None:
        self.core.disconnected(peer, self.now_ms)
        self.peers.discard(peer)


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    data = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(data) + len(body), len(data)) + data + body


def register(
    exchange: Exchange,
    topics: dict[str, int],
    *,
    name: str = "broker-a",
    address: str = "127.0.0.2:10911",
    peer: int = 1,
    counter: int = 1,
    **ext: str,
) -> Command:
    table = {
        topic: {"topicName": topic, "perm": 6, "readQueueNums": count, "writeQueueNums": count}
        for topic, count in topics.items()
    }
    version = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    fields = {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.2:10912",
        "brokerId": "0",
        "enableActingMaster": "false",
        **ext,
    }
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    return exchange.ask(103, fields, body, peer=peer)


def queues(exchange: Exchange, topic: str) -> dict[str, int]:
    """Readable queues of a topic by broker."""
    reply = exchange.ask(105, {"topic": topic}, peer=99)
    if reply.code:
        return {}
    return {q["brokerName"]: q["readQueueNums"] for q in json.loads(reply.body)["queueDatas"]}
