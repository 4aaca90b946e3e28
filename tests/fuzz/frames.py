"""Frames to spoil: one valid request of every code that is served, and the ways to spoil them."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec import headers
from escrowmq.codec.command import encode_command

GOLDEN = Path(__file__).parent.parent / "golden"
TALLY: Counter[str] = Counter()
"""Inputs tried, by what they were for; told at the end of the run."""

SECONDS = float(os.environ.get("ESCROWMQ_FUZZ_SECONDS", "0"))
"""How long each test of this folder tries; `ESCROWMQ_FUZZ_SECONDS=600` makes it a night's work.
Without it each tries a fixed number of inputs: by the clock, a quick machine would try some that no
other has tried, and a slow one too few to say anything."""

SEED = int(os.environ.get("ESCROWMQ_FUZZ_SEED", "1"))

NUMBERS = ("0", "1", "-1", "2147483647", "-2147483649", "9223372036854775807", "1" * 40, "", "x",
           "1e9", "NaN", "true", "0x1F", "\u0661", "1.5", "null")  # fmt: skip
TEXTS = ("", " ", "T", "CG", "PG", "%RETRY%CG", "%DLQ%CG", "RMQ_SYS_TRANS_HALF_TOPIC", "a/b", "..",
         "\x00", "\x01\x02", "é", "\U0001f600", "x" * 300, "*", "a || b", "n > 1", "{}", "[]",
         "0" * 32, "A\x01b\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "DELAY\x0199\x02",
         "TIMER_DELIVER_MS\x01x\x02")  # fmt: skip
FIELDS = sorted(
    {
        field.encode_name
        for kind in vars(headers).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for field in msgspec.structs.fields(kind)
    }
    | {"brokerName", "brokerAddr", "clusterName", "brokerId", "namespace", "value", "compressed",
       "bodyCrc32", "_UNIQUE_KEY_QUERY", "isOrder"}
)  # fmt: skip
BODIES = (b"", b"body", b"{}", b"[]", b"null", b"\xff\xfe", b'{"clientID":"c"}', b"k=v\n",
          b'{"offsetTable":{{"a":1}:2}}', b"[" * 5_000, b'{"a":' * 5_000, bytes(64))  # fmt: skip


def tries(count: int, *, share: float = 1.0) -> Iterator[int]:
    """The numbers of the inputs to try: so many, or as many as go into a share of SECONDS."""
    deadline = time.monotonic() + SECONDS * share
    number = 0
    while number < count if not SECONDS else time.monotonic() < deadline:
        yield number
        number += 1


def codes() -> list[int]:
    """Every request code that has a name."""
    return [code for name, code in vars(Request).items() if name.isupper()]


def golden_frames() -> list[bytes]:
    """What real clients and brokers sent."""
    found = []
    for path in sorted(GOLDEN.glob("*.json")):
        for exchange in json.loads(path.read_text()).get("exchanges", {}).values():
            found += [bytes.fromhex(exchange[side]) for side in ("request", "reply")
                      if exchange.get(side)]  # fmt: skip
    return found


def random_command(chance: random.Random, known: list[int]) -> bytes:
    """A request with a well-formed frame and fields of all kinds."""
    ext = {
        chance.choice(FIELDS): chance.choice(NUMBERS if chance.random() < 0.6 else TEXTS)
        for _ in range(chance.randrange(16))
    }
    ext |= {"topic": "T", "queueId": "0"} if chance.random() < 0.5 else {}
    return encode_command(
        Command(
            code=chance.choice(known) if chance.random() < 0.95 else chance.randrange(32_768),
            opaque=chance.randrange(1 << 31),
            flag=chance.choice((0, 0, 0, 1, 2, 3, 255)),
            version=chance.choice((0, 317, 401, 479)),
            ext=ext,
            body=chance.choice(BODIES),
            is_binary=chance.random() < 0.4,
        )
    )


def spoil(frame: bytes, chance: random.Random) -> bytes:
    """The frame with one thing wrong."""
    data = bytearray(frame)
    at = chance.randrange(len(data)) if data else 0
    match chance.randrange(8):
        case 0:
            data[: chance.randrange(8)] = chance.randbytes(chance.randrange(8))
        case 1:
            data[4:5] = bytes([chance.randrange(256)])
        case 2:
            data[5:8] = chance.randrange(1 << 24).to_bytes(3, "big")
        case 3:
            data = data[:at]
        case 4:
            data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
        case 5:
            data[at : at + 1] = bytes([chance.randrange(256)])
        case 6:
            data[at:at] = chance.randbytes(chance.randrange(40))
        case _:
            del data[at : at + chance.randrange(1, 16)]
    return bytes(data)


def reframe(frame: bytes, chance: random.Random) -> bytes:
    """A frame of the right length whose header was spoiled."""
    header_size = int.from_bytes(frame[5:8], "big")
    header = bytearray(frame[8 : 8 + header_size])
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(header)) if header else 0
        piece = chance.choice(
            (b"", b"9", b'"', b"{", b"}", b"null", b":", b"9" * 30, b"\xff", b"1e400", b"-")
        )
        header[at : at + chance.randrange(3)] = piece
    body = frame[8 + header_size :]
    front = (4 + len(header) + len(body)).to_bytes(4, "big") + frame[4:5]
    return front + len(header).to_bytes(3, "big") + bytes(header) + body


def inputs(chance: random.Random, known: list[int]) -> Iterator[bytes]:
    """Bytes that peers might write, without end."""
    golden = golden_frames()
    while True:
        kind = chance.random()
        if kind < 0.45:
            yield random_command(chance, known)
        elif kind < 0.65:
            yield spoil(chance.choice(golden), chance)
        elif kind < 0.85:
            yield reframe(chance.choice(golden), chance)
        elif kind < 0.95:
            yield spoil(random_command(chance, known), chance)
        else:
            yield chance.randbytes(chance.randrange(200))
