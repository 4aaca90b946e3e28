"""A connection to a broker in a test: requests as clients write them, replies as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from escrowmq.base.codes import Flag, Request, Version
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import REPLY_HEADER_SIZE_MAX
from escrowmq.base.message import StoredMessage
from escrowmq.codec import fastjson
from escrowmq.codec.binary_header import LANGUAGES
from escrowmq.codec.command import BINARY, encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record, decode_records
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields

if TYPE_CHECKING:
    from tests.harness.exchange import Exchange


class Pending:
    """A request that was written; its reply, once there is one."""

    def __init__(self, opaque: int) -> None:
        self.opaque = opaque
        self.reply: Command | None = None

    def __bool__(self) -> bool:
        return self.reply is not None

    @property
    def now(self) -> Command:
        """The reply, which must be there."""
        assert self.reply is not None, "no reply yet"
        return self.reply


class Caller:
    """One connection to the broker."""

    def __init__(self, exchange: Exchange, peer: int, client_id: str) -> None:
        self.exchange = exchange
        self.id = peer
        self.client_id = client_id
        self.is_binary = False
        self.version = Version.V5_3_3
        self.language: str | int | None = "JAVA"
        self.credentials: tuple[str, str] | None = None
        """Access key and secret with which requests are signed."""
        self.received: list[Command] = []
        """Requests of the broker, in order; take them with `take`."""
        self.closed: str | None = None
        self._reader = FrameReader(header_size_max=REPLY_HEADER_SIZE_MAX)
        self._asked: dict[int, Pending] = {}
        self._opaque = 0

    # -- both ways -------------------------------------------------------------------------------

    def begin(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, flag: int = 0
    ) -> Pending:
        """Write a request; the reply may come later."""
        self._opaque += 1
        if self.credentials is not None:
            key, secret = self.credentials
            ext = {**(ext or {}), ACCESS_KEY: key}
            ext[SIGNATURE] = sign_fields(ext, body, secret=secret)
        request = Command(
            code=code,
            opaque=self._opaque,
            flag=flag,
            version=self.version,
            language=self.language,
            ext=ext,
            body=body,
            is_binary=self.is_binary,
        )
        pending = self._asked[self._opaque] = Pending(self._opaque)
        self.exchange.feed(self, _in_language(encode_command(request), self.language))
        return pending

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """The reply to a request, which must come at once."""
        return self.begin(code, ext, body).now

    def tell(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Write a one-way request, to which there must be no reply."""
        assert not self.begin(code, ext, body, flag=Flag.ONE_WAY), "a reply to a one-way request"

    def take(self, code: int | None = None) -> list[Command]:
        """The requests that the broker has sent, all or those of one code; they are forgotten."""
        taken = [r for r in self.received if code is None or r.code == code]
        self.received = [r for r in self.received if r not in taken]
        return taken

    def answer(
        self,
        request: Command,
        code: int = 0,
        *,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request of the broker."""
        reply = Command(
            code=code, opaque=request.opaque, flag=Flag.REPLY, ext=ext, body=body, remark=remark
        )
        self.exchange.feed(self, encode_command(reply))

    def hear(self, data: bytes) -> None:
        """Bytes that the broker wrote to this connection."""
        for command in self._reader.read_commands(data):
            if not command.flag & Flag.REPLY:
                self.received.append(command)
                continue
            pending = self._asked.get(command.opaque)
            assert pending is not None, f"a reply to nothing: {command}"
            assert pending.reply is None, f"a second reply: {command}"
            pending.reply = command
        assert self._reader.broken is None, self._reader.broken

    def leave(self) -> None:
        """The connection breaks."""
        self.exchange.leave(self)

    # -- what clients ask ------------------------------------------------------------------------

    def begin_send(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        group: str = "PG",
        is_one_way: bool = False,
        fields: dict[str, str] | None = None,
        **properties: str,
    ) -> Pending:
        """Send a message (310); `fields` are header fields under their letters."""
        ext = {
            "a": group, "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
            "g": str(self.exchange.now_ms), "h": "0", "i": encode_properties(properties).decode(),
            "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        flag = Flag.ONE_WAY if is_one_way else 0
        return self.begin(Request.SEND_MESSAGE_V2, ext | (fields or {}), body, flag=flag)

    def send(self, topic: str, body: bytes = b"body", **options: Any) -> Command:
        """The same, with the reply at once."""
        return self.begin_send(topic, body, **options).now

    def begin_pull(
        self,
        topic: str,
        offset: int = 0,
        *,
        queue_id: int = 0,
        group: str = "CG",
        expression: str | None = "*",
        hold_ms: int = 0,
        fields: dict[str, str] | None = None,
    ) -> Pending:
        """Pull (11): with the subscription inside unless `expression` is None, held if asked."""
        flags = (2 if hold_ms else 0) | (4 if expression is not None else 0)
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": str(flags),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(hold_ms),
            "subVersion": "0",
        }
        if expression is not None:
            ext["subscription"] = expression
        return self.begin(Request.PULL_MESSAGE, ext | (fields or {}))

    def pull(self, topic: str, offset: int = 0, **options: Any) -> Command:
        """The same, with the reply at once."""
        return self.begin_pull(topic, offset, **options).now

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """Bodies of all messages of a queue, pulled from its beginning."""
        return [message.body for message in self.messages(topic, queue_id)]

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """All messages of a queue, pulled from its beginning."""
        found: list[StoredMessage] = []
        reply = self.pull(topic, 0, queue_id=queue_id)
        if reply.code and (reply.ext or {}).get("nextBeginOffset", "0") != "0":
            reply = self.pull(topic, int((reply.ext or {})["nextBeginOffset"]), queue_id=queue_id)
        while reply.code == 0:
            found += decode_records(reply.body)
            reply = self.pull(topic, found[-1].queue_offset + 1, queue_id=queue_id)
        return found

    def heartbeat(
        self,
        *,
        producer: str | None = None,
        consumer: str | None = None,
        topics: dict[str, str] | None = None,
        model: str = "CLUSTERING",
        sub_version: int = 1,
        expression_type: str = "TAG",
        **more: object,
    ) -> Command:
        """HEART_BEAT (34) of a producer and a consumer that subscribes to `topics`."""
        body: dict[str, object] = {"clientID": self.client_id, **more}
        if producer is not None:
            body["producerDataSet"] = [{"groupName": producer}]
        if consumer is not None:
            data = [
                {
                    "topic": topic,
                    "subString": expression,
                    "subVersion": sub_version,
                    "expressionType": expression_type,
                }
                for topic, expression in (topics or {}).items()
            ]
            body["consumerDataSet"] = [
                {
                    "groupName": consumer,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": model,
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": data,
                }
            ]
        return self.ask(Request.HEART_BEAT, body=fastjson.encode(body))

    # -- transactions ----------------------------------------------------------------------------

    def prepare(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        group: str = "PG",
        queue_id: int = 0,
        wants_id: bool = False,
        **properties: str,
    ) -> Half:
        """Send a half message, and ask for a signed id if wanted."""
        reply = self.send(
            topic,
            body,
            group=group,
            queue_id=queue_id,
            fields={"escrowWantsId": "true"} if wants_id else None,
            TRAN_MSG="true",
            PGROUP=group,
            **properties,
        )
        assert reply.code == 0, reply.remark
        ext = reply.ext or {}
        _, log_offset = parse_offset_id(ext["msgId"])
        return Half(
            topic=topic,
            group=group,
            queue_offset=int(ext["queueOffset"]),
            log_offset=log_offset,
            unique_key=ext["transactionId"],
            escrow_id=ext.get("escrowId", ""),
        )

    def end_by_id(self, escrow_id: str, verdict: int, **fields: str) -> Command:
        """END_TRANSACTION (37) by a signed id, in which nothing else stands."""
        ext = {"escrowId": escrow_id, "commitOrRollback": str(verdict)}
        return self.ask(Request.END_TRANSACTION, ext | fields)

    def begin_end(
        self,
        half: Half,
        verdict: int,
        *,
        is_from_check: bool = False,
        is_one_way: bool = False,
        fields: dict[str, str] | None = None,
    ) -> Pending:
        """END_TRANSACTION (37) with 8 (commit), 12 (roll back) or 0 (unknown)."""
        ext = {
            "topic": half.topic,
            "producerGroup": half.group,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.log_offset),
            "commitOrRollback": str(verdict),
            "fromTransactionCheck": "true" if is_from_check else "false",
            "msgId": half.unique_key,
            "transactionId": half.unique_key,
        }
        flag = Flag.ONE_WAY if is_one_way else 0
        return self.begin(Request.END_TRANSACTION, ext | (fields or {}), flag=flag)

    def end(self, half: Half, verdict: int, **options: Any) -> Command:
        """The same, with the reply at once."""
        return self.begin_end(half, verdict, **options).now


def _in_language(frame: bytes, language: str | int | None) -> bytes:
    """The frame as a client of another language writes it; our own coder always says PYTHON."""
    if frame[4] == BINARY:
        number = LANGUAGES.index(language) if isinstance(language, str) else language or 0
        return frame[:10] + number.to_bytes(1, "big") + frame[11:]
    header_size = int.from_bytes(frame[5:8], "big")
    header = frame[8 : 8 + header_size].replace(
        b'"language":"PYTHON"', b'"language":' + fastjson.encode(language)
    )
    body = frame[8 + header_size :]
    front = (4 + len(header) + len(body)).to_bytes(4, "big")
    return front + len(header).to_bytes(4, "big") + header + body


COMMIT: Final = 8
ROLLBACK: Final = 12
UNKNOWN: Final = 0


class Half(msgspec.Struct, frozen=True):
    """What a producer remembers of a half message until its end."""

    topic: str
    group: str
    queue_offset: int
    log_offset: int
    unique_key: str
    escrow_id: str = ""


def half_of_check(check: Command) -> Half:
    """What a producer learns of a half message from a CHECK_TRANSACTION_STATE (39)."""
    ext = check.ext or {}
    message = decode_record(check.body)
    return Half(
        topic=ext["topic"],
        group=message.properties["PGROUP"],
        queue_offset=int(ext["tranStateTableOffset"]),
        log_offset=int(ext["commitLogOffset"]),
        unique_key=ext["msgId"],
    )
