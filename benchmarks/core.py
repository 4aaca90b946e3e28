"""What the broker's core takes for a request, without sockets: frames in, effects out.

    python benchmarks/core.py [--cells send,rich,...] [--bursts 1,16,64] [--rounds 9]
    python benchmarks/core.py --against ../other/src    # beside the code of another checkout

CPU time of one thread in microseconds a message: the least and the median of the rounds, on a
fresh broker each. With `--against`, rounds of both sources take turns in processes of their own, so
that a machine whose speed drifts does not decide; the last column is this one's least over that.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Flag, Request
from escrowmq.base.command import Command
from escrowmq.base.effects import Hold, Replace, Send, Sync
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from escrowmq.net.disk import FileDisk

PEER = 1
MESSAGES = 6_000
QUEUES = 4
_BATCH = 16
_PULLED = 32
_LOOK_EVERY = 64
_START_MS = 1_800_000_000_000
_SECRET = "secret-of-application"
_ACCOUNTS = f"""accounts:
  - accessKey: application
    secretKey: {_SECRET}
    topicPerms: [Bench=PUB]
"""


class Rig:
    """One broker over files in a temporary folder; it does at once what its core asks for."""

    def __init__(self, folder: str, accounts: str = "") -> None:
        self.disk = FileDisk(folder)
        if accounts:
            self.disk.replace("plain_acl.yml", accounts.encode())
        self.now_ms = _START_MS
        self.core = BrokerCore(
            self.disk,
            BrokerSettings(acl_enabled=bool(accounts)),
            StoreSettings(disk_used_max_percent=95, disk_warning_percent=99),
            address=("127.0.0.1", 10911),
            ha_address="127.0.0.1:10912",
            chance=random.Random(1),
        )
        self.core.open(self.now_ms)
        self.core.connected(PEER, "127.0.0.1", 40_000, self.now_ms)
        self.heard: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """One read of the connection."""
        self.now_ms += 1
        self.core.receive(PEER, data, self.now_ms)
        while effects := self.core.take_effects():
            for effect in effects:
                match effect:
                    case Send(_, chunks):
                        self.heard += chunks
                    case Sync(_, log_offset):
                        self.core.sync_finished(log_offset, self.now_ms)
                    case Hold(peer):
                        self.core.receive(peer, b"", self.now_ms)
                    case Replace(path, data_):
                        self.disk.replace(path, data_)

    def replies(self) -> list[Command]:
        """What was answered since the last call."""
        heard, self.heard = b"".join(self.heard), []
        return FrameReader().read_commands(heard)


def _frame(
    code: int, opaque: int, ext: dict[str, str], body: bytes = b"", *,
    flag: int = 0, is_binary: bool = True,
) -> bytes:  # fmt: skip
    return encode_command(
        Command(
            code=code, opaque=opaque, version=479, ext=ext, body=body,
            flag=flag, is_binary=is_binary,
        )
    )  # fmt: skip


def _key(number: int) -> str:
    return f"FD000000000000000000000000000002031630946E096CA7AD{number & 0xFFFFFF:06X}"


def _fields(number: int, properties: str, flag: int = 0) -> dict[str, str]:
    names = "abcdefghijkmn"
    queue_id, born_ms = str(number % QUEUES), str(_START_MS + number // 20)
    values = ["load", "Bench", "TBW102", str(QUEUES), queue_id, str(flag), born_ms, "0"]
    values += [properties, "0", "false", "false", "broker-a"]
    return dict(zip(names, values, strict=True))


def _send(
    number: int, properties: str, body: bytes, flag: int = 0, *, is_binary: bool = True
) -> bytes:
    fields = _fields(number, properties, flag)
    return _frame(Request.SEND_MESSAGE_V2, number + 1, fields, body, is_binary=is_binary)


def _sends(body_size: int = 128, *, is_binary: bool = True) -> Iterator[bytes]:
    body = b"x" * body_size
    for number in range(MESSAGES):
        properties = f"UNIQ_KEY\x01{_key(number)}\x02WAIT\x01true\x02"
        yield _send(number, properties, body, is_binary=is_binary)


def _large_sends() -> Iterator[bytes]:
    return _sends(1024)


def _signed_sends() -> Iterator[bytes]:
    for number in range(MESSAGES):
        properties = f"UNIQ_KEY\x01{_key(number)}\x02WAIT\x01true\x02"
        ext, body = {**_fields(number, properties), ACCESS_KEY: "application"}, b"x" * 128
        ext[SIGNATURE] = sign_fields(ext, body, secret=_SECRET)
        yield _frame(Request.SEND_MESSAGE_V2, number + 1, ext, body)


def _rich_sends() -> Iterator[bytes]:
    chance = random.Random(3)
    for number in range(MESSAGES):
        properties = (
            f"orderType\x01{chance.choice(['normal', 'express', 'gift'])}\x02"
            f"KEYS\x01order-{chance.randrange(10**6, 10**9)}\x02UNIQ_KEY\x01{_key(number)}\x02"
            f"WAIT\x01true\x02customer\x01{chance.randrange(10**5)}\x02"
            f"TAGS\x01{chance.choice(['created', 'paid'])}\x02"
        )
        yield _send(number, properties, b"x" * chance.randrange(90, 166))


def _batches(own: str = "", *, is_binary: bool = True) -> Iterator[bytes]:
    for number in range(MESSAGES // _BATCH):
        pieces = []
        for nth in range(_BATCH):
            properties = f"UNIQ_KEY\x01{_key(number * _BATCH + nth)}\x02WAIT\x01true\x02".encode()
            rest = (128).to_bytes(4, "big") + b"x" * 128
            rest += len(properties).to_bytes(2, "big") + properties
            pieces.append((16 + len(rest)).to_bytes(4, "big") + bytes(12) + rest)
        fields = _fields(number, own and own % _key(number)) | {"m": "true"}
        body = b"".join(pieces)
        yield _frame(Request.SEND_BATCH_MESSAGE, number + 1, fields, body, is_binary=is_binary)


def _batches_of_java() -> Iterator[bytes]:
    """As Java clients of 5.x send them: in JSON, with a key of the whole."""
    return _batches("UNIQ_KEY\x01%s\x02WAIT\x01true\x02", is_binary=False)


def _halves() -> Iterator[bytes]:
    for number in range(MESSAGES):
        properties = (
            f"PGROUP\x01load\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01{_key(number)}\x02WAIT\x01true\x02"
        )
        yield _send(number, properties, b"x" * 128, flag=4)


def _pulls(
    rig: Rig, *, offset: int = 1, suspend_ms: int = 0, is_binary: bool = True
) -> Iterator[bytes]:
    """Of a queue with one message. At its end they find nothing: without a wish to wait they are
    answered at once, with one they are held until the round is over."""
    rig.feed(_send(0, "", b"x" * 128))
    for number in range(MESSAGES):
        ext = {
            "consumerGroup": "load",
            "topic": "Bench",
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "6" if suspend_ms else "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": str(suspend_ms),
            "subVersion": "0",
            "subscription": "*",
            "expressionType": "TAG",
            "bname": "broker-a",
        }
        yield _frame(Request.PULL_MESSAGE, number + 1, ext, is_binary=is_binary)


def backlog() -> Iterator[bytes]:
    """What a drain drains: single messages, of which one in four lies behind another of its
    queue."""
    for number, queue in enumerate(_queues()):
        fields = _fields(number, f"UNIQ_KEY\x01{_key(number)}\x02WAIT\x01true\x02")
        fields |= {"b": "Backlog", "e": str(queue)}
        yield _frame(Request.SEND_MESSAGE_V2, number + 1, fields, b"x" * 128)


def _queues() -> list[int]:
    chance = random.Random(5)
    return [chance.randrange(QUEUES) for _ in range(MESSAGES)]


def _drains(*, is_binary: bool = True, said: dict[str, str] | None = None) -> Iterator[bytes]:
    """Pulls of it; with what else they say."""
    in_queue = min(Counter(_queues()).values()) // _PULLED * _PULLED
    for number in range(MESSAGES):
        offset = number // QUEUES * _PULLED % in_queue
        ext = {
            "consumerGroup": "load", "topic": "Backlog", "queueId": str(number % QUEUES),
            "queueOffset": str(offset), "maxMsgNums": str(_PULLED), "sysFlag": "3",
            "commitOffset": str(offset), "suspendTimeoutMillis": "15000", "subVersion": "1",
            "expressionType": "TAG", "maxMsgBytes": "262144", "bname": "broker-a",
        }  # fmt: skip
        yield _frame(Request.PULL_MESSAGE, number + 1, ext | (said or {}), is_binary=is_binary)


def _drain(rig: Rig, *, is_binary: bool = True) -> Iterator[bytes]:
    """As a Java client's push consumer does, which tells of its subscription beforehand."""
    subscription = {"topic": "Backlog", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    group = {
        "groupName": "load", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "subscriptionDataSet": [subscription],
    }  # fmt: skip
    beat = {"clientID": "127.0.0.1@load", "consumerDataSet": [group]}
    rig.feed(_frame(Request.HEART_BEAT, 1, {}, json.dumps(beat).encode()))
    for frame in backlog():
        rig.feed(frame)
    yield from _drains(is_binary=is_binary)


def _commits(rig: Rig, *, is_binary: bool = True) -> Iterator[bytes]:
    """One-way, as clients tell every five seconds how far they are."""
    for number in range(QUEUES):
        rig.feed(_send(number, "", b"x" * 128))
    for number in range(MESSAGES):
        ext = {
            "consumerGroup": "load",
            "topic": "Bench",
            "queueId": str(number % QUEUES),
            "commitOffset": str(1_000 + number),
            "bname": "broker-a",
        }
        yield _frame(Request.UPDATE_CONSUMER_OFFSET, number + 1, ext, flag=2, is_binary=is_binary)


def _acks(rig: Rig, *, is_binary: bool = True) -> Iterator[bytes]:
    """Of messages that were popped by 32."""
    for frame in _sends():
        rig.feed(frame)
    rig.replies()
    pop = {
        "consumerGroup": "load", "topic": "Bench", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "600000", "pollTime": "0", "bornTime": "", "initMode": "0",
    }  # fmt: skip
    number = 0
    while number < MESSAGES:
        pop["bornTime"] = str(rig.now_ms)
        rig.feed(_frame(Request.POP_MESSAGE, 1, pop))
        (reply,) = rig.replies()
        fields = reply.ext or {}
        starts = dict(item.split()[1:] for item in fields["startOffsetInfo"].split(";"))
        for item in fields["msgOffsetInfo"].split(";"):
            _, queue, offsets = item.split()
            for offset in offsets.split(","):
                receipt = (
                    f"{starts[queue]} {fields['popTime']} {fields['invisibleTime']} "
                    f"{fields['reviveQid']} 0 broker-a {queue} {offset}"
                )
                ext = {
                    "consumerGroup": "load", "topic": "Bench", "queueId": queue,
                    "extraInfo": receipt, "offset": offset, "bname": "broker-a",
                }  # fmt: skip
                number += 1
                yield _frame(Request.ACK_MESSAGE, number, ext, is_binary=is_binary)


def end_of(reply: Command, *, is_one_way: bool = False) -> bytes:
    """The commit of the half that was answered so."""
    ext, key = reply.ext or {}, _key(reply.opaque - 1)
    place = {
        "producerGroup": "load",
        "tranStateTableOffset": ext["queueOffset"],
        "commitLogOffset": str(int(ext["msgId"][16:], 16)),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
    }
    flag = Flag.ONE_WAY if is_one_way else 0
    return _frame(Request.END_TRANSACTION, reply.opaque, place, flag=flag)


def _ends(rig: Rig) -> Iterator[bytes]:
    for frame in _halves():
        rig.feed(frame)
        (reply,) = rig.replies()
        yield end_of(reply)


READY: dict[str, tuple[Callable[[], Iterator[bytes]], int]] = {
    "send": (_sends, 1),
    "send-json": (partial(_sends, is_binary=False), 1),
    "large": (_large_sends, 1),
    "rich": (_rich_sends, 1),
    "batch": (_batches, _BATCH),
    "batch-json": (_batches_of_java, _BATCH),
    "half": (_halves, 1),
    "drain": (partial(_drains, said={"sysFlag": "7", "subscription": "*"}), _PULLED),
}
"""Frames that may be sent to any broker, and how many messages each has; `drain` wants a
`backlog`."""

CELLS: dict[str, tuple[Callable[[Rig], Iterator[bytes]], int]] = {
    **{cell: (lambda _, make=make: make(), count) for cell, (make, count) in READY.items()},
    "signed": (lambda _: _signed_sends(), 1),
    "end": (_ends, 1),
    "pull": (_pulls, 1),
    "pull-json": (partial(_pulls, is_binary=False), 1),
    "held": (partial(_pulls, suspend_ms=15_000), 1),
    "held-json": (partial(_pulls, suspend_ms=15_000, is_binary=False), 1),
    "found": (partial(_pulls, offset=0), 1),
    "found-json": (partial(_pulls, offset=0, is_binary=False), 1),
    "drain": (_drain, _PULLED),
    "drain-json": (partial(_drain, is_binary=False), _PULLED),
    "ack": (_acks, 1),
    "ack-json": (partial(_acks, is_binary=False), 1),
    "commit": (_commits, 1),
    "commit-json": (partial(_commits, is_binary=False), 1),
}


def measure(cell: str, burst: int) -> float:
    """Microseconds of CPU a message, of one round."""
    make, count = CELLS[cell]
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(folder, _ACCOUNTS if cell == "signed" else "")
        frames = list(make(rig))
        rig.replies()
        reads = [b"".join(frames[at : at + burst]) for at in range(0, len(frames), burst)]
        warm = max(1, len(reads) // 10)
        for read in reads[:warm]:
            rig.feed(read)
        rig.heard.clear()
        gc.collect()
        gc.disable()
        took, codes, step = 0.0, set[int](), max(1, _LOOK_EVERY // count)
        for at in range(warm, len(reads), step):
            begin = time.thread_time()
            for read in reads[at : at + step]:
                rig.feed(read)
            took += time.thread_time() - begin
            # Not at the end: answers that are kept have a broker take new memory all the time.
            codes |= {reply.code for reply in rig.replies()}
        gc.enable()
        if not codes <= {0, 19}:  # 19: nothing to pull
            raise SystemExit(f"{cell}: answered {codes}")
        rig.disk.close()
    return took * 1e6 / ((len(reads) - warm) * burst * count)


def _in_process(source: str, cell: str, burst: int) -> float:
    """One round of the code in a source folder."""
    command = [sys.executable, __file__, "--one", cell, "--bursts", str(burst)]
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--bursts", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--against", metavar="SRC", help="the src folder of another checkout")
    parser.add_argument("--one", metavar="CELL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    bursts = [int(text) for text in given.bursts.split(",")]
    if given.one:
        print(json.dumps(measure(given.one, bursts[0])))
        return
    ours = str(Path(__file__).resolve().parent.parent / "src")
    if given.against and not (Path(given.against) / "escrowmq").is_dir():
        parser.error(f"--against {given.against}: no folder with the package escrowmq")
    sources = [ours] + ([str(Path(given.against).resolve())] if given.against else [])
    names = ["least", "median"] + (
        ["other least", "other median", "ratio"] if given.against else []
    )
    print(f"{'cell':>11} {'burst':>5} " + " ".join(f"{name:>12}" for name in names))
    for cell in given.cells.split(","):
        for burst in bursts:
            rounds: list[list[float]] = [[] for _ in sources]
            for _ in range(given.rounds):
                for found, source in zip(rounds, sources, strict=True):
                    found.append(_in_process(source, cell, burst))
            figures = [
                figure for found in rounds for figure in (min(found), statistics.median(found))
            ]
            if given.against:
                figures.append(min(rounds[0]) / min(rounds[1]))
            print(f"{cell:>11} {burst:>5} " + " ".join(f"{figure:12.2f}" for figure in figures))


if __name__ == "__main__":
    main()
