"""A real `escrowmq serve` with accounts on, and what strangers and accounts say to it by sockets.

A may use topic TA and group GA, B TB and GB, C nothing, WIDE every topic and group, the operator
everything; the same accounts in plain_acl.yml (ACL 1.0) and as users with policies (ACL 2.0)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from escrowmq.base.codes import Flag, Request, Version
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import REPLY_HEADER_SIZE_MAX
from escrowmq.base.message import StoredMessage
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record, decode_records
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields

START_S: Final = 60
END_S: Final = 30
ANSWER_S: Final = 20.0

SECRETS: Final = {
    name: f"secret-of-{name}-0123456789" for name in ("operator", "account-a", "account-b",
                                                     "account-c", "account-w")
}  # fmt: skip
A: Final = "account-a"
B: Final = "account-b"
C: Final = "account-c"
WIDE: Final = "account-w"
OPERATOR: Final = "operator"

_SMALL: Final = (
    "mappedFileSizeCommitLog=67108864", "maxIndexNum=20000", "maxHashSlotNum=5000",
    "mappedFileSizeConsumeQueue=60000",
)  # fmt: skip
_READY: Final = re.compile(
    r"escrowmq ready nameserver=(\S+) broker=(\S+)(?: grpc=(\S+))?(?: metrics=(\S+))?"
)
_TURNS: Final = re.compile(
    r'^escrowmq_turn_seconds_bucket\{.*le="([^"]+)".*\} (\S+)$', re.MULTILINE
)

ACCOUNTS: Final = f"""accounts:
- {{accessKey: operator, secretKey: {SECRETS[OPERATOR]}, admin: true}}
- accessKey: account-a
  secretKey: {SECRETS[A]}
  topicPerms: [TA=PUB|SUB, orders=PUB|SUB]
  groupPerms: [GA=PUB|SUB]
- accessKey: account-b
  secretKey: {SECRETS[B]}
  topicPerms: [TB=PUB|SUB]
  groupPerms: [GB=PUB|SUB, PGB=PUB, billing_orders=SUB]
- {{accessKey: account-c, secretKey: {SECRETS[C]}}}
- accessKey: account-w
  secretKey: {SECRETS[WIDE]}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""

POLICIES: Final[Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    A: (("Topic:TA", ("Pub", "Sub", "Get")), ("Topic:orders", ("Pub",)),
        ("Group:GA", ("Sub", "Get"))),
    B: (("Topic:TB", ("Pub", "Sub", "Get")), ("Group:GB", ("Sub", "Get")),
        ("Group:PGB", ("Pub",)), ("Group:billing_orders", ("Sub", "Get", "Update"))),
    C: (),
    WIDE: (("Topic:*", ("Pub", "Sub", "Get")), ("Group:*", ("Pub", "Sub", "Get", "Update"))),
}  # fmt: skip


class Place:
    """One server, which may be ended and started again on its folder."""

    def __init__(self, folder: Path, *, acl: str = "1.0", settings: tuple[str, ...] = ()) -> None:
        self.data = folder / "store"
        self.acl = acl
        self.errors = folder / "errors"
        self._settings = [*_SMALL, *settings]
        self._options: list[str] = []
        if acl == "1.0":
            config = self.data / "config"
            config.mkdir(parents=True)
            (config / "plain_acl.yml").write_text(ACCOUNTS)
            (config / "plain_acl.yml").chmod(0o600)
            self._settings.append("aclEnable=true")
        else:
            first = folder / "broker.conf"
            first.touch(0o600)
            user = {"username": OPERATOR, "password": SECRETS[OPERATOR]}
            first.write_text(f"initAuthenticationUser={json.dumps(user)}\n")
            self._settings += ["authenticationEnabled=true", "authorizationEnabled=true"]
            self._options = ["-c", str(first)]
        self.start()
        with self.line(OPERATOR) as operator:
            _prepare(operator, makes_users=acl == "2.0")

    def set(self, pair: str) -> None:
        """A setting from the next start on."""
        self._settings.append(pair)

    def start(self) -> None:
        """Begin, or go on where it was ended."""
        words = [
            sys.executable, "-m", "escrowmq", "serve", "--data", str(self.data), *self._options,
            "--nameserver-port", "0", "--broker-port", "0",
        ]  # fmt: skip
        for pair in self._settings:
            words += ["--set", pair]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        match = _READY.match(self.process.stdout.readline().strip())
        watchdog.cancel()
        assert match is not None, self.log()
        self.nameserver, self.broker, self.grpc, self.metrics = match.groups()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, or kill it."""
        self.process.send_signal(number)
        self.process.wait(END_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def again(self, number: signal.Signals) -> None:
        """End it this way, and start it."""
        self.end(number)
        self.start()

    def log(self) -> str:
        """What it has written."""
        return self.errors.read_text()

    def long_turns(self, beyond_s: str) -> int:
        """How many turns of its loop were longer, since its start (with metrics alone)."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics") as answer:
            counts = dict(_TURNS.findall(answer.read().decode()))
        return int(float(counts["+Inf"]) - float(counts[beyond_s]))

    def line(self, who: str | None, *, to: str = "") -> Line:
        """A connection of an account; of nobody, when it is None."""
        return Line(to or self.broker, who)

    def ask(self, *words: str, who: str = OPERATOR) -> subprocess.CompletedProcess[str]:
        """Run `escrowmq` in the name of an account."""
        named = {"ESCROWMQ_ACCESS_KEY": who, "ESCROWMQ_SECRET_KEY": SECRETS[who]}
        return subprocess.run(
            [sys.executable, "-m", "escrowmq", *words, "-n", self.nameserver],
            capture_output=True, text=True, timeout=END_S, check=False, env=os.environ | named,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


class Line:
    """One connection. What the broker asks by it is kept in `asked`."""

    def __init__(self, address: str, who: str | None, *, link: socket.socket | None = None) -> None:
        host, port = address.rsplit(":", 1)
        self.address = address
        self.who = who
        self.asked: list[Command] = []
        self._link = link or socket.create_connection((host, int(port)), timeout=ANSWER_S)
        self._reader = FrameReader(header_size_max=REPLY_HEADER_SIZE_MAX)
        self._replies: dict[int, Command] = {}
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._link.close()

    # -- both ways -----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self._link.sendall(data)

    def tell(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> int:
        """Write a request; its number."""
        self.write(self.frame(code, ext, body))
        return self._opaque

    def frame(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
        """The bytes of the next request."""
        self._opaque += 1
        fields = {name: str(value) for name, value in (ext or {}).items()}
        if self.who is not None:
            fields[ACCESS_KEY] = self.who
            fields[SIGNATURE] = sign_fields(fields, body, secret=SECRETS[self.who])
        return encode_command(
            Command(
                code=code, opaque=self._opaque, version=Version.V5_3_3, language="JAVA",
                ext=fields, body=body,
            )
        )  # fmt: skip

    def ask(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> Command:
        """The reply to a request."""
        number = self.tell(code, ext, body)
        while number not in self._replies:
            self._read()
        return self._replies.pop(number)

    def _read(self) -> None:
        data = self._link.recv(1 << 20)
        if not data:
            raise ConnectionError("the server has closed this connection")
        for command in self._reader.read_commands(data):
            if command.flag & Flag.REPLY:
                self._replies[command.opaque] = command
            else:
                self.asked.append(command)

    # -- messages ------------------------------------------------------------------------------

    def send(
        self, topic: str, body: bytes = b"x", *, group: str = "PG", sys_flag: int = 0,
        **properties: str,
    ) -> Command:  # fmt: skip
        """Send to queue 0."""
        return self.ask(Request.SEND_MESSAGE_V2, sending(topic, group, sys_flag, properties), body)

    def half(
        self, topic: str, body: bytes, *, group: str = "PGB", key: str = "", **properties: str
    ) -> Half:
        """Send a half, which must be taken."""
        key = key or os.urandom(16).hex().upper()
        own = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": group}
        reply = self.send(topic, body, group=group, sys_flag=4, **(properties | own))
        return Half(reply, key, group)

    def end(self, half: Half, what: int = 8) -> Command:
        """Commit, or roll back (12)."""
        return self.ask(Request.END_TRANSACTION, half.fields(what))

    def bodies(self, topic: str, group: str) -> list[bytes]:
        """What may be read of queue 0."""
        return [message.body for message in self.read(topic, group)]

    def read(self, topic: str, group: str) -> list[StoredMessage]:
        """The messages of queue 0."""
        found: list[StoredMessage] = []
        at = 0
        while True:
            reply = self.ask(
                Request.PULL_MESSAGE,
                {
                    "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": at,
                    "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                    "subscription": "*", "subVersion": 0, "expressionType": "TAG",
                },
            )  # fmt: skip
            following = int((reply.ext or {}).get("nextBeginOffset", at))
            if reply.code == 0:
                found += decode_records(reply.body)
            elif reply.code != 21:
                return found
            if following <= at:
                return found
            at = following

    def size_at(self, log_offset: int, topic: str) -> int:
        """The size of one's own record."""
        fields = {"offset": log_offset, "topic": topic}
        return decode_record(self.ask(Request.VIEW_MESSAGE_BY_ID, fields).body).record_size


class Half:
    """What the reply to a half says."""

    def __init__(self, reply: Command, key: str, group: str) -> None:
        self.reply = reply
        self.key = key
        self.group = group

    def fields(self, what: int) -> dict[str, object]:
        """Of the END."""
        ext = self.reply.ext or {}
        return {
            "producerGroup": self.group, "tranStateTableOffset": ext["queueOffset"],
            "commitLogOffset": log_offset_of(self.reply), "commitOrRollback": what,
            "fromTransactionCheck": "false", "msgId": self.key, "transactionId": self.key,
        }  # fmt: skip


def log_offset_of(reply: Command) -> int:
    """Where a message was stored."""
    return parse_offset_id((reply.ext or {})["msgId"])[1]


def sending(
    topic: str, group: str, sys_flag: int, properties: Mapping[str, str]
) -> dict[str, object]:
    """The fields of a send."""
    given = {"UNIQ_KEY": os.urandom(16).hex().upper(), **properties}
    return {
        "a": group, "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": sys_flag, "g": 1, "h": 0,
        "i": encode_properties(given).decode(), "j": 0, "k": "false", "m": "false",
    }  # fmt: skip


def heartbeat(client_id: str, *, producers: tuple[str, ...] = (), **consumers: str) -> bytes:
    """The body of a heartbeat: of producers, and of groups that consume a topic each."""
    return json.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": [
                {
                    "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                    "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
                }
                for group, topic in consumers.items()
            ],
        }
    ).encode()  # fmt: skip


def policy(resource: str, *actions: str, decision: str = "Allow") -> bytes:
    """The body of a change of policies."""
    entry: dict[str, Any] = {"resource": resource, "actions": actions, "decision": decision}
    return json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()


def make_user(operator: Line, name: str, *entries: tuple[str, tuple[str, ...]]) -> None:
    """A user of ACL 2.0 with some rights."""
    body = json.dumps({"password": SECRETS.setdefault(name, f"secret-of-{name}-0123456789")})
    made = operator.ask(Request.AUTH_CREATE_USER, {"username": name}, body.encode())
    assert made.code == 0, made
    for resource, actions in entries:
        subject = {"subject": f"User:{name}"}
        given = operator.ask(Request.AUTH_CREATE_ACL, subject, policy(resource, *actions))
        assert given.code == 0, given


def _prepare(operator: Line, *, makes_users: bool) -> None:
    for topic in ("TA", "TB"):
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
            "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert operator.ask(Request.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    for group in ("GA", "GB", "billing_orders"):
        body = json.dumps({"groupName": group, "retryQueueNums": 1}).encode()
        made = operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert made.code == 0, made
    if makes_users:
        for name, entries in POLICIES.items():
            make_user(operator, name, *entries)
