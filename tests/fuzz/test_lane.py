"""Odd sends among plain ones: whichever way they are served, the same is answered, stored and
counted. What reads them in the native lane is C, so that this is run with its sanitizers too
(`make sanitized`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.properties import encode_properties
from escrowmq.lane.native import requests_lane
from tests.unit.broker.both import (
    HALF,
    PLAIN,
    START_MS,
    TOPICS,
    Begun,
    Both,
    Side,
    Watched,
    begun_of,
    end,
    half,
    send,
)
from tests.unit.broker.fast.test_publish_grants import ACCOUNTS, signed

from .frames import SEED, TALLY, spoil, tries
from .odd_requests import odd_request

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
BROKERS, READS_PER_BROKER = 8, 100


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
    """One with something wrong: anywhere, in a length, a number, an escape or its batch, or in its
    text with its length as it was."""
    return oddly(chance.choice((plain_frame, batch_frame))(chance), chance)


def oddly(frame: bytes, chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.5:
        return odd_request(frame, chance)
    if kind < 0.75:
        return spoil(frame, chance)
    odd = chance.choice(ODD)
    at = chance.randrange(8, len(frame) - len(odd))
    return frame[:at] + odd + frame[at + len(odd) :]


needs_lane = pytest.mark.skipif(requests_lane is None, reason="the lane is not built")
NONSENSE: tuple[Any, ...] = (None, -1, 1 << 80, b"", "text", (), [()], [None], {b"": ()})


def refused_count(function: Any, given: tuple[Any, ...]) -> int:
    """How often a function of the lane refuses nonsense instead of one of its arguments, or of a
    part of one: a mistake on its own side is to cost an exception at most."""
    count = 0
    for nth, value in enumerate(given):
        for odd in NONSENSE:
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
                    count += 1
    return count


@needs_lane
def test_lane_that_is_told_nonsense_refuses_it() -> None:
    side, chance = Side(is_fast=True), random.Random(SEED)
    lane = Watched(side)
    for _ in range(6):
        side.feed((1, b"".join(plain_frame(chance) for _ in range(8))))
    for given, _ in lane.calls["lay_out_sends"][-3:]:
        assert refused_count(requests_lane.lay_out_sends, given) > 100  # type: ignore[union-attr]


@needs_lane
def test_lane_of_signed_sends_that_is_told_nonsense_refuses_it() -> None:
    side = Side(is_fast=True, files={"plain_acl.yml": ACCOUNTS}, acl_enabled=True)
    lane = Watched(side)
    for is_binary in (True, False):
        for _ in range(4):
            side.feed((1, signed(send(is_binary=is_binary)) * 2))
    for given, _ in lane.calls["find_signed_sends"][-3:]:
        assert requests_lane is not None
        assert refused_count(requests_lane.find_signed_sends, given) > 50


@needs_lane
def test_lane_of_ends_that_is_told_nonsense_refuses_it() -> None:
    side, chance = Side(is_fast=True), random.Random(SEED)
    lane = Watched(side)
    for _ in range(4):
        halves = begun([side], chance, 8)
        for some in halves[:4], halves[4:]:
            side.feed((1, b"".join(end_of(one, chance) for one in some)))
    for name in ("find_ends", "lay_out_ends"):
        for given, _ in lane.calls[name][-2:]:
            assert refused_count(getattr(requests_lane, name), given) > 50


@needs_lane
def test_lane_reads_no_further_than_there_are_requests() -> None:
    """Requests that are cut off anywhere, or odd, in allocations of exactly their size."""
    side, chance = Side(is_fast=True), random.Random(SEED)
    lane = Watched(side)
    kinds = plain_frame, batch_frame
    for _ in range(6):
        side.feed((1, b"".join(chance.choice(kinds)(chance) for _ in range(8))))
    served_count = 0
    for name in ("lay_out_sends", "find_signed_sends"):
        (data, at, size_max, shapes, *rest), _ = lane.calls["lay_out_sends"][-1]
        more: Any = rest if name == "lay_out_sends" else [64]
        again: Any = getattr(requests_lane, name)
        for size in range(at, len(data)):
            again(data[:size], at, size_max, shapes, *more)
        for _ in range(3_000):
            frames = b"".join(odd_frame(chance) for _ in range(chance.randrange(1, 4)))
            served_count += again(frames, 0, size_max, shapes, *more) is not None
    assert served_count > 100


@needs_lane
def test_lane_of_ends_reads_no_further_than_there_are_bytes() -> None:
    """Bytes of the log that are cut off or changed anywhere, in exact allocations."""
    assert requests_lane is not None
    side, chance = Side(is_fast=True), random.Random(SEED)
    lane = Watched(side)
    for _ in range(3):
        halves = begun([side], chance, 4)
        for some in halves[:2], halves[2:]:
            side.feed((1, b"".join(end_of(one, chance) for one in some)))
    (*before, log, starts, rules), _ = lane.calls["lay_out_ends"][-1]
    again: Any = requests_lane.lay_out_ends
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
    verdict, flag = chance.choice(("8", "8", "12")), chance.choice((0, 2))
    return end(one, verdict, flag=flag, is_binary=chance.random() < 0.7)


def odd_end(one: Begun, chance: random.Random) -> bytes:
    """One with something wrong, as `odd_frame` has it."""
    return oddly(end_of(one, chance), chance)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """What comes in one read, or in several, which end anywhere."""
    if chance.random() < 0.6:
        return [data]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(1, 4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


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
    chance = random.Random(SEED)
    for _ in tries(BROKERS):
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
            for piece in pieces(b"".join(frames), chance):
                both.feed((peer, piece))
            TALLY["ends"] += 1
        both.end()


def connect(both: Both, peer: int) -> None:
    for side in both.sides:
        side.core.connected(peer, "10.0.0.9", 40_000, side.now_ms)


def test_odd_sends_are_served_the_same_every_way() -> None:
    chance = random.Random(SEED)
    for _ in tries(BROKERS):
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
            for piece in pieces(known + b"".join(frames), chance):
                both.feed((peer, piece))
            TALLY["lane"] += 1
        both.end()
