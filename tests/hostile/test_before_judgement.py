"""Attacks that cost something before, or without, being judged: honest requests beside each are
answered soon, and memory stays bounded. The figures are printed (-s)."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command, encode_request
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from tests.crash.link import Link, send_request
from tests.crash.server import Server

pytestmark = pytest.mark.crash

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: honest-1, secretKey: {SECRET}, topicPerms: [TB=PUB|SUB], groupPerms: [GB=SUB]}}
- {{accessKey: hostile-1, secretKey: {SECRET}, topicPerms: [TA=PUB|SUB], groupPerms: [GA=SUB]}}
- {{accessKey: rightless, secretKey: {SECRET}}}
"""
MIB = 1024 * 1024
PATIENCE_S = 5.0
HONEST_S_MAX = 2.0
"""Far above what is seen, for machines that are busy with other tests."""


def signed(command: Command, account: str) -> Command:
    ext = {**(command.ext or {}), ACCESS_KEY: account}
    command.ext = {**ext, SIGNATURE: sign_fields(ext, command.body, secret=SECRET)}
    return command


class Case:
    """A server, an honest account that goes on working, and how long it has waited at most."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.honest = Link(server.broker)
        self.longest_s = 0.0
        self.open: list[socket.socket] = []
        for topic in ("TA", "TB"):
            ext = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1",
                "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
                "order": "false",
            }  # fmt: skip
            assert self.honest.ask_all([signed(Command(code=17, ext=ext), "operator")])[0].code == 0
        self.work()
        self.before_mib = self.memory_mib()

    def work(self) -> None:
        began_s = time.monotonic()
        request = send_request("TB", 0, b"honest", "GB", {})
        (reply,) = self.honest.ask_all([signed(request, "honest-1")])
        assert reply.code == 0, reply
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    def connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        client = socket.create_connection((host, int(port)), timeout=30)
        client.setblocking(False)
        self.open.append(client)
        return client

    def memory_mib(self) -> float:
        pid = self.server.process.pid
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def close(self, name: str, *, grown_mib_max: float) -> None:
        grown_mib = self.memory_mib() - self.before_mib
        for client in self.open:
            client.close()
        self.honest.close()
        print(  # noqa: T201
            f"{name}: honest requests {self.longest_s * 1000:.0f} ms at most, "
            f"{grown_mib:.0f} MiB more memory"
        )
        assert self.longest_s < HONEST_S_MAX
        assert grown_mib < grown_mib_max


def push(client: socket.socket, data: bytes) -> None:
    """Write what the server takes; it may have closed the connection."""
    view = memoryview(data)
    while view and select.select([], [client], [], PATIENCE_S)[1]:
        try:
            view = view[client.send(view) :]
        except OSError:
            return


@pytest.fixture(name="case")
def make_case(tmp_path: Path) -> Iterator[Case]:
    accounts = tmp_path / "accounts"
    accounts.mkdir()
    (accounts / "plain_acl.yml").write_text(FILE, encoding="utf-8")
    options = ("--set", "aclEnable=true", "--set", f"escrowAclFolder={accounts}")
    with Server(tmp_path / "data", *options) as server:
        yield Case(server)


def header_frame(header: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header), len(header)) + header


@pytest.mark.parametrize("value", ["1", "1e300", '"a"', "null"])
def test_strangers_headers(case: Case, value: str) -> None:
    fields = ",".join(f'"{number}":{value}' for number in range(20_000))
    allowed = header_frame(f'{{"code":10,"extFields":{{{fields}}}}}'[:250_000].encode())
    huge = header_frame(b'{"code":10,"extFields":{' + b'"a":1,' * 2_000_000 + b'"b":1}}')
    for address in (case.server.broker, case.server.nameserver):
        for data in (allowed, huge):
            for _ in range(10):
                push(case.connect(address), data[: 2 * MIB])
                case.work()
    case.close(f"headers of {value}", grown_mib_max=100)


def test_strangers_half_frames(case: Case) -> None:
    for address in (case.server.broker, case.server.nameserver):
        begun = encode_request(10, 1, body=bytes(4 * MIB))[: 3 * MIB]
        for _ in range(60):
            push(case.connect(address), begun)
            case.work()
    case.close("360 MiB of half frames", grown_mib_max=2 * 64 + 100)


def test_ever_new_subscriptions(case: Case) -> None:
    client = Link(case.server.broker)
    for number in range(150):
        tags = "||".join(f"tag-{number}-{nth}" for nth in range(1_100))
        ext = {
            "consumerGroup": "GA", "topic": "TA", "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": tags, "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        client.ask_all([signed(Command(code=Request.PULL_MESSAGE, ext=ext), "hostile-1")])
        case.work()
    client.close()
    case.close("2 MB of subscriptions", grown_mib_max=100)


def test_halves_of_ever_new_groups(case: Case) -> None:
    client = Link(case.server.broker)
    for at in range(30):
        groups = [f"{at}-{nth}-".ljust(250, "x") for nth in range(50)]
        halves = [
            signed(
                send_request("TA", 0, b"half", group, {"TRAN_MSG": "true", "PGROUP": group}),
                "hostile-1",
            )
            for group in groups
        ]
        replies = client.ask_all(halves)
        assert {reply.code for reply in replies} == {0}
        ends = [
            signed(
                Command(
                    code=Request.END_TRANSACTION,
                    ext={
                        "producerGroup": group, "commitOrRollback": "12",
                        "tranStateTableOffset": (reply.ext or {})["queueOffset"],
                        "commitLogOffset": str(int((reply.ext or {})["msgId"][-16:], 16)),
                        "fromTransactionCheck": "false", "msgId": "", "transactionId": "",
                    },
                ),
                "hostile-1",
            )
            for group, reply in zip(groups, replies, strict=True)
        ]  # fmt: skip
        client.ask_all(ends)
        case.work()
    client.close()
    case.close("1500 groups of halves", grown_mib_max=100)


@pytest.mark.parametrize("kind", ["traces", "replies"])
def test_bytes_that_need_no_right(case: Case, kind: str) -> None:
    client = Link(case.server.broker)
    properties = {"REPLY_TO_CLIENT": "nobody"} if kind == "replies" else {}
    topic = "DefaultCluster_REPLY_TOPIC" if kind == "replies" else "RMQ_SYS_TRACE_TOPIC"
    began_s = time.monotonic()
    taken = 0
    for _ in range(60):
        request = send_request(topic, 0, bytes(2 * MIB), "GA", {})
        request.ext = {**(request.ext or {}), "i": encode_properties(properties).decode()}
        if kind == "replies":
            request.code = Request.SEND_REPLY_MESSAGE_V2
        (reply,) = client.ask_all([signed(request, "rightless")])
        is_refused = any(word in (reply.remark or "") for word in ("flow control", "permission"))
        taken += 0 if is_refused else 2 * MIB
        case.work()
    rate = taken / MIB / max(1.0, time.monotonic() - began_s)
    print(f"{kind}: {rate:.0f} MiB a second were taken")  # noqa: T201
    assert taken / MIB <= 8 * (time.monotonic() - began_s + 1) + 4
    client.close()
    case.close(kind, grown_mib_max=200)


def test_readers_that_do_not_read(case: Case) -> None:
    sender = Link(case.server.broker)
    for _ in range(3):
        request = send_request("TA", 0, bytes(100_000), "GA", {})
        assert sender.ask_all([signed(request, "hostile-1")])[0].code == 0
    ext = {
        "consumerGroup": "GA", "topic": "TA", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    pull = encode_command(signed(Command(code=11, version=479, ext=ext), "hostile-1"))
    for _ in range(20):
        push(case.connect(case.server.broker), pull * 100)
        case.work()
    sender.close()
    case.close("20 readers that do not read", grown_mib_max=20 * 8 + 50)


def test_strangers_at_the_name_server_change_nothing(case: Case) -> None:
    names = Link(case.server.nameserver)
    route = names.ask(105, {"topic": "TB", "acceptStandardJsonOnly": "true"}).body
    broker = {
        "brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:2", "brokerId": "0",
    }  # fmt: skip
    for _ in range(300):
        for code in (100, 102, 103, 104, 205, 216, 217, 318, 319, 322, 327, 904):
            assert names.ask(code, {**broker, "topic": "TB"}).code == 16
        case.work()
    assert names.ask(105, {"topic": "TB", "acceptStandardJsonOnly": "true"}).body == route
    assert case.server.errors.stat().st_size < 100_000
    names.close()
    case.close("3600 changes of a stranger", grown_mib_max=50)
