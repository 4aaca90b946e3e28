"""Odd sends among plain ones: whichever way they are served, the same is answered, stored and
counted. What reads them in the native lane is C, so that this is run with its sanitizers too
(`make sanitized`)."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.codec.batch import encode_batch
from escrowmq.codec.properties import encode_properties
from escrowmq.lane.native import EndsLaidOut, EndsLane, LaidOut, ends_lane, lay_out_sends
from tests.unit.broker.both import (
    HALF,
    PLAIN,
    START_MS,
    TOPICS,
    Begun,
    Both,
    Side,
    begun_of,
    end,
    half,
    send,
)

from .frames import SECONDS, SEED, TALLY, spoil

PROPERTIES = (
    PLAIN, PLAIN | {"TAGS": "a", "KEYS": "k l"}, HALF, HALF | {"KEYS": "m"},
    "UNIQ_KEY\x01a\x02WAIT\x01true",
)  # fmt: skip
ODD = (
    b"\\",
    b'"',
    rb"\u0001",
    b"\x01",
    b"\x02",
    b"\0",
    b"\x7f",
    b"\x80",
    b" ",
    b"0",
    b"9",
    b"\x01\x02",
    b"KEYS\x01",
)
READS_PER_BROKER = 100


def plain_frame(chance: random.Random) -> bytes:
    """A send of one of a few shapes."""
    properties = chance.choice(PROPERTIES)
    is_half = isinstance(properties, dict) and "TRAN_MSG" in properties
    return send(
        properties, chance.randbytes(chance.choice((1, 4, 7, 8, 9, 300))),
        topic=chance.choice(TOPICS[:2]), opaque=chance.randrange(1 << 31),
        is_binary=chance.random() < 0.7,
        flag=chance.choice((0, 0, 2)), f="4" if is_half else "0",
        e=str(chance.randrange(5)), g=str(START_MS + chance.randrange(1_000)),
    )  # fmt: skip


def batch_frame(chance: random.Random) -> bytes:
    """A batch, in either form of the header."""
    plain = [one for one in PROPERTIES if one not in (HALF, HALF | {"KEYS": "m"})]
    entries = [
        (chance.randrange(3), chance.randbytes(chance.choice((1, 8, 300))), said.encode())
        for said in chance.choices(list(map(text_of, plain)), k=chance.randrange(1, 6))
    ]
    return send(
        chance.choice(("WAIT\x01true", PLAIN)), encode_batch(entries),
        code=Request.SEND_BATCH_MESSAGE, is_binary=chance.random() < 0.5, m="true",
        topic=chance.choice(TOPICS[:2]), e=str(chance.randrange(5)),
    )  # fmt: skip


def text_of(properties: dict[str, str] | str) -> str:
    return properties if isinstance(properties, str) else encode_properties(properties).decode()


def odd_frame(chance: random.Random) -> bytes:
    """One with something wrong: anywhere, or in its text with its length as it was."""
    frame = chance.choice((plain_frame, batch_frame))(chance)
    if chance.random() < 0.5:
        return spoil(frame, chance)
    odd = chance.choice(ODD)
    at = chance.randrange(8, len(frame) - len(odd))
    return frame[:at] + odd + frame[at + len(odd) :]


@pytest.mark.skipif(lay_out_sends is None, reason="the lane is not built, or left aside")
def test_lane_that_is_told_nonsense_refuses_it() -> None:
    """Its own side tells it what it knows; a mistake there is to cost an exception at most."""
    assert lay_out_sends is not None
    lane, told = lay_out_sends, list[tuple[Any, ...]]()

    def lay_out(*given: Any) -> LaidOut | None:
        told.append(given)
        return lane(*given)

    side, chance = Side(is_short=True, lay_out=lay_out), random.Random(SEED)
    for _ in range(6):
        side.feed((1, b"".join(plain_frame(chance) for _ in range(8))))
    refused_count = 0
    for given in told[-3:]:
        for nth, value in enumerate(given):
            for odd in (None, -1, 1 << 80, b"", "text", (), [()], [None], {b"": ()}):
                changed = [(*given[:nth], odd, *given[nth + 1 :])]
                if isinstance(value, tuple):
                    parts = [(*value[:at], odd, *value[at + 1 :]) for at in range(len(value))]
                    changed += [(*given[:nth], part, *given[nth + 1 :]) for part in parts]
                if isinstance(value, list) and value:
                    shape = value[0]
                    parts = [(*shape[:at], odd, *shape[at + 1 :]) for at in range(len(shape))]
                    changed += [(*given[:nth], [part], *given[nth + 1 :]) for part in parts]
                for one in changed:
                    try:
                        lane(*one)
                    except Exception:  # noqa: BLE001 - whichever; the process goes on
                        refused_count += 1
    assert refused_count > len(told)


@pytest.mark.skipif(ends_lane is None, reason="the lane is not built, or left aside")
def test_lane_of_ends_that_is_told_nonsense_refuses_it() -> None:
    assert ends_lane is not None
    lane, told = ends_lane, list[tuple[Any, tuple[Any, ...]]]()

    def find(*given: Any) -> tuple[list[int], list[int]] | None:
        told.append((lane.find, given))
        return lane.find(*given)

    def lay_out(*given: Any) -> EndsLaidOut | None:
        told.append((lane.lay_out, given))
        return lane.lay_out(*given)

    side, chance = Side(is_short=True, lay_out=lay_out_sends), random.Random(SEED)
    assert side.core.remoting.fast_path is not None
    side.core.remoting.fast_path.ends_lane = EndsLane(find, lay_out)
    for _ in range(4):
        halves = begun([side], chance, 8)
        for some in halves[:4], halves[4:]:
            side.feed((1, b"".join(end_of(one, chance) for one in some)))
    refused_count = 0
    for function, given in told[-4:]:
        for nth, value in enumerate(given):
            for odd in (None, -1, 1 << 80, b"", "text", (), [()], [None], {b"": ()}):
                changed = [(*given[:nth], odd, *given[nth + 1 :])]
                if isinstance(value, tuple):
                    parts = [(*value[:at], odd, *value[at + 1 :]) for at in range(len(value))]
                    changed += [(*given[:nth], part, *given[nth + 1 :]) for part in parts]
                if isinstance(value, list) and value and isinstance(value[0], tuple):
                    shape = value[0]
                    parts = [(*shape[:at], odd, *shape[at + 1 :]) for at in range(len(shape))]
                    changed += [(*given[:nth], [part], *given[nth + 1 :]) for part in parts]
                for one in changed:
                    try:
                        function(*one)
                    except Exception:  # noqa: BLE001 - whichever; the process goes on
                        refused_count += 1
    assert refused_count > 100


@pytest.mark.skipif(ends_lane is None, reason="the lane is not built, or left aside")
def test_lane_of_ends_reads_no_further_than_there_are_bytes() -> None:
    """Bytes of the log that are cut off or changed anywhere, in exact allocations."""
    assert ends_lane is not None
    lane, chance, told = ends_lane, random.Random(SEED), list[tuple[Any, ...]]()

    def lay_out(*given: Any) -> EndsLaidOut | None:
        told.append(given)
        return lane.lay_out(*given)

    side = Side(is_short=True, lay_out=lay_out_sends)
    assert side.core.remoting.fast_path is not None
    side.core.remoting.fast_path.ends_lane = EndsLane(lane.find, lay_out)
    for _ in range(3):
        halves = begun([side], chance, 4)
        for some in halves[:2], halves[2:]:
            side.feed((1, b"".join(end_of(one, chance) for one in some)))
    *before, log, starts, rules = told[-1]
    again: Any = lane.lay_out
    served_count = 0
    for size in range(len(log)):
        again(*before, log[:size], starts, rules)
    for _ in range(3_000):
        odd = bytearray(log)
        for _ in range(chance.choice((1, 1, 2, 5))):
            odd[chance.randrange(len(odd))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        served_count += again(*before, bytes(odd), starts, rules) is not None
    for start in (*range(len(log)), len(log), len(log) + 1, 1 << 40):
        again(*before, log, [start], rules)
    assert served_count > 100


def begun(sides: list[Side], chance: random.Random, count: int) -> list[Begun]:
    """Halves that each of these brokers has, the same at each."""
    sends = b"".join(
        half(chance.randrange(1 << 20), chance.choice(({}, {"TAGS": "a", "KEYS": "k l"})))
        for _ in range(count)
    )
    heard = b""
    for side in sides:
        for topic in TOPICS[:1]:
            side.feed((1, send(topic=topic)))
            side.feed((1, send(topic=topic)))
        side.heard.clear()
        side.feed((1, sends))
        heard = b"".join(data for _, data in side.heard)
        side.heard.clear()
    return begun_of(heard)


def end_of(one: Begun, chance: random.Random) -> bytes:
    return end(one, chance.choice(("8", "8", "12")), flag=chance.choice((0, 2)))


def odd_end(one: Begun, chance: random.Random) -> bytes:
    """One with something wrong: anywhere, or in its text with its length as it was."""
    frame = end_of(one, chance)
    if chance.random() < 0.3:
        return spoil(frame, chance)
    odd = chance.choice(ODD)
    at = chance.randrange(8, len(frame) - len(odd))
    return frame[:at] + odd + frame[at + len(odd) :]


def spoil_log(both: Both, one: Begun, chance: random.Random) -> None:
    """A byte of a half is another one, for every broker."""
    at, byte = chance.randrange(300), bytes([chance.choice((0, 1, 2, 32, 97, 127, 128, 255))])
    for side in both.sides:
        file = side.core.broker.store.log.segments.file(one.log_offset)
        assert file is not None
        position = one.log_offset % (64 * 1024) + at
        if position < 64 * 1024 - 8 and one.log_offset + at < side.core.broker.store.end_offset:
            file.write(position, byte)


def test_odd_ends_are_served_the_same_every_way() -> None:
    chance, until = random.Random(SEED), time.monotonic() + SECONDS
    while time.monotonic() < until:
        both = Both()
        for peer in range(10, 10 + READS_PER_BROKER // 4):
            connect(both, peer)
            halves = begun(both.sides, chance, 12)
            for one in halves[:2]:
                both.feed((peer, end(one, flag=0)))
            if chance.random() < 0.6:
                both.forget()
                if chance.random() < 0.5:
                    spoil_log(both, chance.choice(halves[2:]), chance)
            frames = [end_of(one, chance) for one in halves[2:]]
            for _ in range(chance.randrange(3)):
                frames.insert(chance.randrange(10), odd_end(chance.choice(halves), chance))
            if chance.random() < 0.3:
                frames.insert(chance.randrange(10), half(1))
            both.feed((peer, b"".join(frames)))
            TALLY["ends"] += 1
        both.end()


def connect(both: Both, peer: int) -> None:
    for side in both.sides:
        side.core.connected(peer, "10.0.0.9", 40_000, side.now_ms)


def test_odd_sends_are_served_the_same_every_way() -> None:
    chance, until = random.Random(SEED), time.monotonic() + SECONDS
    while time.monotonic() < until:
        both = Both()
        for topic in TOPICS[:2]:
            for queue_id in range(4):
                both.feed((1, send(topic=topic, e=str(queue_id))))
        both.feed((1, half(0)))
        for peer in range(10, 10 + READS_PER_BROKER):
            connect(both, peer)
            known = b"".join(plain_frame(chance) for _ in range(8))
            both.feed((peer, known))
            kinds = plain_frame, batch_frame
            frames = [chance.choice(kinds)(chance) for _ in range(chance.randrange(6))]
            frames.insert(chance.randrange(len(frames) + 1), odd_frame(chance))
            both.feed((peer, known + b"".join(frames)))
            TALLY["lane"] += 1
        both.end()
