"""The short cut means what the general way means: the same bytes to everybody, the same files, the
same figures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Hold, Replace, Send, Sync
from escrowmq.base.measure import Family
from escrowmq.base.settings import BrokerSettings, StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import encode_properties
from escrowmq.testing.disk import SimDisk

START_MS = 1_700_000_000_000
TOPICS = ("Orders", "Bills", "Odd")
PLAIN = {"UNIQ_KEY": "0A000001ABCD18B4AAC2000000000001", "WAIT": "true"}
Chunk = tuple[int, bytes]
"""A connection, and what comes over it in one read."""


class Side:
    """A broker that goes one of both ways, and all that is seen of it."""

    def __init__(self, *, is_short: bool, **settings: object) -> None:
        self.disk = SimDisk()
        self.now_ms = START_MS
        self.core = BrokerCore(
            self.disk,
            BrokerSettings(**settings),  # type: ignore[arg-type]
            StoreSettings(
                log_segment_size=64 * 1024, queue_segment_size=20 * 40, index_slots_count=64,
                index_entries_max=300, reserve_size=0,
            ),
            address=("10.0.0.1", 10_911),
            ha_address="10.0.0.1:10912",
            chance=random.Random(5),
        )  # fmt: skip
        if not is_short:
            self.core.remoting.shortcut = None
        self.core.open(self.now_ms)
        self.heard: list[tuple[int, bytes]] = []
        self.closed: list[tuple[int, str]] = []
        for peer in (1, 2):
            self.core.connected(peer, "10.0.0.9", 40_000 + peer, self.now_ms)
        self.perform()

    def perform(self) -> None:
        while effects := self.core.take_effects():
            for effect in effects:
                match effect:
                    case Send(peer, chunks):
                        self.heard.append((peer, b"".join(chunks)))
                    case Sync(files, log_offset):
                        for file in files:
                            file.sync()
                        self.core.synced(log_offset, self.now_ms)
                    case Hold(peer):
                        self.core.receive(peer, b"", self.now_ms)
                    case Replace(path, data):
                        self.disk.replace(path, data)
                    case Close(peer, reason):
                        self.closed.append((peer, reason))
                    case _:
                        pass

    def feed(self, chunk: Chunk) -> None:
        peer, data = chunk
        self.core.receive(peer, data, self.now_ms)
        self.perform()

    def pass_time(self, span_ms: int) -> None:
        self.now_ms += span_ms
        if self.core.wake_at_ms() <= self.now_ms:
            self.core.wake(self.now_ms)
            self.perform()

    def figures(self) -> list[Family]:
        return self.core.measure(self.now_ms)

    def files(self) -> dict[str, bytes]:
        self.core.close(self.now_ms)
        return {name: bytes(file.live) for name, file in self.disk.files.items()}

    @property
    def served_count(self) -> int:
        shortcut = self.core.remoting.shortcut
        return shortcut.served_count if shortcut is not None else 0


class Both:
    """The same input for two brokers; whatever differs is an error at once."""

    def __init__(self, **settings: object) -> None:
        self.short, self.general = (Side(is_short=s, **settings) for s in (True, False))

    def feed(self, *chunks: Chunk) -> list[Command]:
        """What was answered to the last of them."""
        heard = b""
        for chunk in chunks:
            for side in (self.short, self.general):
                side.feed(chunk)
            assert self.short.heard == self.general.heard
            assert self.short.closed == self.general.closed
            heard = b"".join(data for _, data in self.short.heard)
            self.short.heard.clear()
            self.general.heard.clear()
        return FrameReader().feed(heard)

    def pass_time(self, span_ms: int) -> None:
        for side in (self.short, self.general):
            side.pass_time(span_ms)
        assert self.short.heard == self.general.heard

    def end(self) -> None:
        assert self.short.figures() == self.general.figures()
        short, general = self.short.files(), self.general.files()
        assert short.keys() == general.keys()
        assert [name for name in short if short[name] != general[name]] == []


def frame(
    code: int, ext: dict[str, str], body: bytes = b"", *, opaque: int = 7, flag: int = 0,
    is_binary: bool = True,
) -> bytes:  # fmt: skip
    command = Command(
        code=code, opaque=opaque, flag=flag, version=479, ext=ext, body=body, is_binary=is_binary
    )
    return encode_command(command)


def fields(properties: str, topic: str = "Orders", **changed: str) -> dict[str, str]:
    names = "abcdefghijkmn"
    values = ["load", topic, "TBW102", "4", "0", "0", str(START_MS), "0", properties, "0", "false",
              "false", "broker-a"]  # fmt: skip
    return dict(zip(names, values, strict=True)) | changed


def send(
    properties: dict[str, str] | str = PLAIN, body: bytes = b"body", *, topic: str = "Orders",
    opaque: int = 7, flag: int = 0, is_binary: bool = True, code: int = Request.SEND_MESSAGE_V2,
    **changed: str,
) -> bytes:  # fmt: skip
    text = properties if isinstance(properties, str) else encode_properties(properties).decode()
    ext = {name: value for name, value in fields(text, topic, **changed).items() if value != "-"}
    return frame(code, ext, body, opaque=opaque, flag=flag, is_binary=is_binary)


def pull(offset: int, *, queue_id: int = 0, opaque: int = 9) -> bytes:
    ext = {
        "consumerGroup": "readers", "topic": "Orders", "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": "15000", "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    return frame(Request.PULL_MESSAGE, ext, opaque=opaque)


@pytest.mark.parametrize("is_binary", [True, False])
def test_plain_messages_are_served_the_short_way_and_nobody_sees_it(*, is_binary: bool) -> None:
    both = Both()
    one = send(is_binary=is_binary)
    both.feed((1, one), (1, one), (1, one * 5), (2, one + send(opaque=8, is_binary=is_binary)))
    # The first of a queue, and of each connection in binary form, go the general way.
    assert both.short.served_count == (7 if is_binary else 8)
    both.end()


ODD: dict[str, bytes] = {
    "no properties": send(""),
    "no unique key": send({"WAIT": "true"}),
    "a name twice": send("UNIQ_KEY\x01a\x02x\x011\x02x\x012\x02"),
    "an entry without value": send("UNIQ_KEY\x01a\x02x\x01\x02"),
    "an entry without name": send("UNIQ_KEY\x01a\x02\x011\x02"),
    "two values": send("UNIQ_KEY\x01a\x01b\x02"),
    "separators swapped": send("UNIQ_KEY\x02a\x01WAIT\x01true\x02"),
    "no last separator": send("UNIQ_KEY\x01a\x02WAIT\x01true"),
    "two last separators": send("UNIQ_KEY\x01a\x02WAIT\x01true\x02\x02"),
    "umlauts": send({**PLAIN, "x": "größer"}),
    "umlauts in the key": send({"UNIQ_KEY": "ü"}),
    "a quote in the key": send({"UNIQ_KEY": 'a"b\\c'}),
    "a zero at the end": send({**PLAIN, "x": "y\0"}),
    "no body": send(body=b""),
    "a level": send({**PLAIN, "DELAY": "3"}),
    "a delivery time": send({**PLAIN, "TIMER_DELAY_SEC": "60"}),
    "a half": send({**PLAIN, "TRAN_MSG": "true", "PGROUP": "load"}, f="4"),
    "a hidden message": send(f="4"),
    "a commit": send(f="8"),
    "compressed": send(f="1"),
    "odd flags": send(f="4096"),
    "negative flag": send(h="-5"),
    "flag": send(h="77"),
    "tried again": send(j="3"),
    "a mark of the store": send({**PLAIN, "__CRC32#": "1"}),
    "a mark of a consumer": send({**PLAIN, "RETRY_TOPIC": "Other"}),
    "what the broker adds": send({**PLAIN, "MSG_REGION": "mine", "CLUSTER": "mine"}),
    "one key": send({**PLAIN, "KEYS": "a"}),
    "keys": send({**PLAIN, "KEYS": "a  b a"}),
    "many keys": send({**PLAIN, "KEYS": " ".join(map(str, range(40)))}),
    "a tag": send({**PLAIN, "TAGS": "created"}),
    "one way": send(flag=2),
    "a reply": send(flag=1),
    "queue beyond": send(e="99"),
    "any queue": send(e="-1"),
    "queue with a zero": send(e="00"),
    "queue in words": send(e="one"),
    "no queue": send(e="-"),
    "born long ago": send(g="0"),
    "born never": send(g="never"),
    "born late": send(g="9" * 18),
    "born too late": send(g="9" * 19),
    "no topic": send(topic="-"),
    "an unknown topic": send(topic="Fresh"),
    "an odd topic": send(topic="a/b"),
    "a system topic": send(topic="SELF_TEST_TOPIC"),
    "a retry topic": send(topic="%RETRY%readers"),
    "a batch that is none": send(m="true"),
    "version 1": frame(
        Request.SEND_MESSAGE,
        {"producerGroup": "g", "topic": "Orders", "queueId": "0", "sysFlag": "0", "i": "",
         "bornTimestamp": "1", "properties": "UNIQ_KEY\x01a\x02"}, b"x",
    ),
    "many fields": frame(
        Request.SEND_MESSAGE_V2, fields("UNIQ_KEY\x01a\x02") | {f"z{n}": "1" for n in range(499)},
        b"x", is_binary=False,
    ),
    "too many fields": frame(
        Request.SEND_MESSAGE_V2, fields("UNIQ_KEY\x01a\x02") | {f"z{n}": "1" for n in range(600)},
        b"x", is_binary=False,
    ),
    "a second code": send(is_binary=False).replace(b'"flag":0', b'"code":11'),
    "a number beyond": b"\0\0\0\x45\0\0\0\x41" + (
        b'{"code":310,"extFields":{"b":"Orders","e":"0"},"opaque":9999999999}'[:65].ljust(65)
    ),
    "no frame": b"\0\0\0\x02\xff\xff\xff\xff1234567890",
}  # fmt: skip


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_odd_message_among_plain_ones_makes_no_difference(name: str, *, is_binary: bool) -> None:
    both, plain = Both(), send(is_binary=is_binary)
    odd = ODD[name]
    if not is_binary and name != "no frame":
        odd = _in_json(odd)
    both.feed((1, plain), (1, plain))
    both.feed((1, plain + odd + plain), (1, odd), (1, odd + odd), (1, plain))
    assert both.short.served_count > 0
    both.end()


def _in_json(data: bytes) -> bytes:
    found = FrameReader().feed(data)
    for command in found:
        command.is_binary = False
    return b"".join(map(encode_command, found))


def test_reader_who_waits_is_told_and_messages_of_other_queues_wake_nobody() -> None:
    both = Both()
    both.feed((1, send()), (2, pull(1)))
    both.feed((1, send(e="1")), (1, send(e="1")), (1, send() * 3), (2, pull(4)), (1, send()))
    both.end()


def test_topic_that_is_deleted_and_made_again_begins_anew() -> None:
    both = Both()
    both.feed((1, send()), (1, send() * 3))
    both.feed((2, frame(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})))
    both.feed((1, send() * 2), (1, send() * 2), (2, pull(0)))
    both.end()


def test_segments_and_queue_files_that_end_in_a_run_are_no_border() -> None:
    both = Both()
    large = send(body=b"x" * 3_000)
    for _ in range(12):
        both.feed((1, large * 7), (2, send(e="2") * 30))
    assert both.short.served_count > 300
    both.end()


def test_operator_who_changes_what_senders_are_told_is_heeded_at_once() -> None:
    both = Both()
    both.feed((1, send()), (1, send() * 2))
    both.feed((2, frame(Request.UPDATE_BROKER_CONFIG, {}, b"traceOn=false")), (1, send() * 2))
    both.end()


@pytest.mark.parametrize("settings", [{"acl_enabled": True}, {"rejects_transactions": True}])
def test_short_way_is_shut_where_everybody_is_judged(settings: dict[str, object]) -> None:
    both = Both(**settings)
    both.feed((1, send()), (1, send() * 3))
    assert (both.short.served_count == 0) == ("acl_enabled" in settings)
    both.end()


HALF = {**PLAIN, "TRAN_MSG": "true", "PGROUP": "load"}


class Begun(NamedTuple):
    """A half as its sender knows it."""

    queue_offset: int
    log_offset: int
    key: str


def begin(both: Both, *frames: bytes, peer: int = 1) -> list[Begun]:
    """Send halves; where they are."""
    replies = both.feed((peer, b"".join(frames)))
    found = []
    for reply in replies:
        ext = reply.ext or {}
        log_offset = int(ext["msgId"][16:], 16)
        found.append(Begun(int(ext["queueOffset"]), log_offset, ext["transactionId"]))
    return found


def end(
    half: Begun, verdict: str = "8", *, flag: int = 2, is_binary: bool = True, **changed: str
) -> bytes:
    ext = {
        "producerGroup": "load", "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset), "commitOrRollback": verdict,
        "fromTransactionCheck": "false", "msgId": half.key, "transactionId": half.key,
        "bname": "broker-a", "topic": "Orders",
    } | changed  # fmt: skip
    ext = {name: value for name, value in ext.items() if value != "-"}
    return frame(Request.END_TRANSACTION, ext, opaque=3, flag=flag, is_binary=is_binary)


def half(number: int, properties: dict[str, str] | None = None, *, is_binary: bool = True) -> bytes:
    key = f"0A000001ABCD18B4AAC20000{number:08X}"
    return send({**HALF, "UNIQ_KEY": key, **(properties or {})}, f="4", is_binary=is_binary)


@pytest.mark.parametrize("is_binary", [True, False])
def test_halves_and_commits_are_served_the_short_way(*, is_binary: bool) -> None:
    both = Both()
    both.feed((1, send(is_binary=is_binary)))  # queues are made the general way
    first = begin(both, half(0, is_binary=is_binary))
    both.feed((1, end(first[0], is_binary=is_binary)))
    halves = begin(
        both, *[half(n, {"TAGS": "a", "KEYS": "k m"}, is_binary=is_binary) for n in range(1, 9)]
    )
    before = both.short.served_count
    both.feed((1, b"".join(end(one, is_binary=is_binary) for one in halves)))
    assert both.short.served_count - before >= 7
    both.feed((2, pull(0)))
    both.end()


ENDS: dict[str, dict[str, str]] = {
    "rollback": {"commitOrRollback": "12"},
    "unknown": {"commitOrRollback": "0"},
    "from a check": {"fromTransactionCheck": "true"},
    "another group": {"producerGroup": "others"},
    "another key": {"transactionId": "0A"},
    "no key": {"transactionId": "-"},
    "another place": {"commitLogOffset": "0"},
    "another offset": {"tranStateTableOffset": "99"},
    "a count": {"escrowCount": "1"},
    "a count that is wrong": {"escrowCount": "2"},
    "an id": {"escrowId": "abc"},
}


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("flag", [0, 2])
@pytest.mark.parametrize("name", ENDS)
def test_odd_end_makes_no_difference(name: str, flag: int, *, is_binary: bool) -> None:
    both = Both()
    both.feed((1, send()))
    for one in begin(both, half(0), half(1)):
        both.feed((1, end(one, is_binary=is_binary)))
    halves = begin(both, *[half(n, is_binary=is_binary) for n in range(2, 6)])
    odd = end(halves[1], flag=flag, is_binary=is_binary, **ENDS[name])
    plain = [end(one, is_binary=is_binary) for one in halves]
    both.feed((1, plain[0] + odd + plain[2]), (1, plain[1] + plain[1]), (1, plain[3] + plain[0]))
    both.end()


@pytest.mark.parametrize(
    "properties",
    [
        {"escrowTransaction": "t1"}, {"escrowDelay": "true", "DELAY": "2"}, {"PGROUP": ""},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}, {"TRAN_MSG": "false"}, {"TRAN_MSG": "TRUE"},
        {"escrowChecker": "db"}, {"PGROUP": "x" * 300}, {"DELAY": "3"}, {"PGROUP": "a\x7fb"},
        {"__transactionId__": "mine"}, {"escrowOrderKey": "k"},
    ],
)  # fmt: skip
def test_odd_half_makes_no_difference(properties: dict[str, str]) -> None:
    both = Both()
    both.feed((1, send()), (1, half(0) + half(1)))
    both.feed((1, half(2) + half(3, properties) + half(4)), (1, half(5, properties)))
    both.pass_time(70_000)
    both.end()


def test_half_that_is_committed_after_its_topic_became_narrow_goes_where_it_is_read() -> None:
    both = Both()
    both.feed((1, send(e="3")), (1, send(e="1")))
    halves = begin(both, send(HALF, f="4", e="3"), send(HALF, f="4", e="3"))
    config = {
        "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    both.feed((2, frame(Request.UPDATE_AND_CREATE_TOPIC, config)))
    both.feed(*[(1, end(one)) for one in halves])
    both.end()


@pytest.mark.parametrize("seed", range(40))
def test_any_mixture_of_requests_and_reads_is_the_same_both_ways(seed: int) -> None:
    chance = random.Random(seed)
    both = Both()
    begun: list[Begun] = []
    for peer, data in _mixture(chance, begun):
        for reply in both.feed((peer, data)):
            ext = reply.ext or {}
            if "transactionId" in ext:
                place = int(ext["queueOffset"]), int(ext["msgId"][16:], 16)
                begun.append(Begun(*place, ext["transactionId"]))
        if chance.random() < 0.1:
            both.pass_time(chance.choice([1, 5, 700, 11_000]))
    assert both.short.served_count > 0
    both.end()


def _mixture(chance: random.Random, begun: list[Begun]) -> Iterator[Chunk]:
    """Requests of two connections, cut anywhere; ends of what was sent, halves or not."""
    waiting = {1: b"", 2: b""}
    odd = [data for name, data in ODD.items() if name not in ("no frame", "too many fields")]
    for number in range(120):
        peer = chance.choice([1, 2])
        draw = chance.random()
        if draw < 0.25 and begun:
            one = chance.choice(begun[-8:])
            verdict = chance.choice(["8", "8", "8", "12", "0"])
            data = end(one, verdict, flag=chance.choice([0, 2, 2]), is_binary=chance.random() < 0.5)
        elif draw < 0.75:
            is_half = chance.random() < 0.5
            properties = dict(HALF if is_half else PLAIN) | {
                "UNIQ_KEY": f"{chance.getrandbits(96):032X}"
            }
            if chance.random() < 0.3:
                properties["KEYS"] = " ".join(chance.choices(["a", "b", "", "cc"], k=3))
            if chance.random() < 0.3:
                properties["TAGS"] = chance.choice(["x", "y"])
            if chance.random() < 0.3:
                properties[chance.choice(["p", "q"])] = chance.choice(["1", "zwölf", "x y"])
            data = send(
                properties, b"x" * chance.randrange(400), topic=chance.choice(TOPICS),
                opaque=number, is_binary=chance.random() < 0.6, flag=chance.choice([0, 0, 0, 2]),
                e=str(chance.randrange(4)), f="4" if is_half else "0", g=str(START_MS + number),
            )  # fmt: skip
        elif draw < 0.85:
            data = chance.choice(odd)
        elif draw < 0.95:
            data = pull(chance.randrange(30), queue_id=chance.randrange(4), opaque=1_000 + number)
        else:
            data = frame(Request.DELETE_TOPIC_IN_BROKER, {"topic": chance.choice(TOPICS)})
        waiting[peer] += data
        if chance.random() < 0.4:
            cut = chance.choice([len(waiting[peer]), chance.randrange(len(waiting[peer]) + 1)])
            yield peer, waiting[peer][:cut]
            waiting[peer] = waiting[peer][cut:]
    for peer, data in waiting.items():
        yield peer, data
