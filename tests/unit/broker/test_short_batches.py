"""Batches that are served the short way, held to what the general way does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Request
from escrowmq.broker.short_batches import read_batch
from escrowmq.codec.batch import encode_batch
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.request_shapes import Properties
from escrowmq.lane import native
from tests.unit.broker.both import PLAIN, Both, frame, half, pull, send

Entry = tuple[int, bytes, bytes]


def entry(number: int, body: bytes = b"body", flag: int = 0, **properties: str) -> Entry:
    return flag, body, encode_properties({**PLAIN, "UNIQ_KEY": f"K{number:031X}", **properties})


def batch(
    entries: list[Entry] | bytes, own: str = "WAIT\x01true\x02", *, is_binary: bool = True,
    code: int = Request.SEND_BATCH_MESSAGE, flag: int = 0, topic: str = "Orders", **changed: str,
) -> bytes:  # fmt: skip
    body = entries if isinstance(entries, bytes) else encode_batch(entries)
    changed.setdefault("m", "true")
    return send(
        own, body, topic=topic, opaque=7, flag=flag, is_binary=is_binary, code=code, **changed
    )  # fmt: skip


@pytest.mark.parametrize("own", ["", "WAIT\x01true\x02", "UNIQ_KEY\x010A0B\x02WAIT\x01true"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_batches_are_served_the_short_way_and_nobody_sees_it(own: str, *, is_binary: bool) -> None:
    both = Both()
    both.feed((1, send(is_binary=is_binary)), (1, batch([entry(0)], own, is_binary=is_binary)))
    before = both.short.served_count
    entries = [entry(n, b"x" * n, n, TAGS="t", KEYS="a b", p=str(n)) for n in range(1, 20)]
    one = batch(entries, own, is_binary=is_binary)
    replies = both.feed((1, one + one + send(is_binary=is_binary) + one))
    assert both.short.served_count - before == 4
    assert [(reply.ext or {})["msgId"].count(",") for reply in replies] == [18, 18, 0, 18]
    both.feed((1, batch(entries, own, is_binary=is_binary, flag=2) + one))
    both.feed((2, pull(0)), (2, pull(30)))
    both.end()


ODD: dict[str, bytes] = {
    "empty": batch([]),
    "cut": batch(encode_batch([entry(1), entry(2)])[:-3]),
    "behind its end": batch(encode_batch([entry(1)]) + b"\0"),
    "a size that is wrong": batch(b"\0\0\0\1" + encode_batch([entry(1)])[4:]),
    "an empty body": batch([entry(1), entry(2, b"")]),
    "a half in it": batch([entry(1), entry(2, TRAN_MSG="true", PGROUP="load")]),
    "a delayed one": batch([entry(1), entry(2, DELAY="2")]),
    "of the broker's own": batch([entry(1), entry(2, __CRC32="1", TIMER_DEL_UNIQKEY="x")]),
    "no key": batch([entry(1), (0, b"b", b"TAGS\x01a\x02")]),
    "a key twice": batch([(0, b"b", b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02")]),
    "no properties": batch([(0, b"b", b"")]),
    "no last separator": batch([(0, b"b", b"UNIQ_KEY\x01a\x02TAGS\x01t")]),
    "properties that end in zeros": batch([(0, b"b", b"UNIQ_KEY\x01a\0")]),
    "other letters": batch([entry(1, TAGS="ü")]),
    "many keys": batch([entry(1, KEYS="a b c d e f")]),
    "very many keys": batch([entry(n, KEYS=" ".join(map(str, range(900)))) for n in range(4)]),
    "a long body": batch([entry(1, b"x" * 70_000)]),
    "long properties": batch([entry(1, p="x" * 32_000)]),
    "properties that are too long": batch([(0, b"b", b"UNIQ_KEY\x01a\x02p\x01" + b"x" * 40_000)]),
    "many": batch([entry(n) for n in range(1_200)]),
    "prepared": batch([entry(1)], f="4"),
    "to be rolled back": batch([entry(1)], f="12"),
    "compressed": batch([entry(1)], f="1"),
    "an odd flag": batch([entry(1)], f="1024"),
    "of another topic": batch([entry(1)], topic="Unknown"),
    "of a retry topic": batch([entry(1)], topic="%RETRY%readers"),
    "of a long name": batch([entry(1)], topic="x" * 200),
    "no queue": batch([entry(1)], e="-1"),
    "a queue beyond": batch([entry(1)], e="99"),
    "marked as none": batch([entry(1)], m="false"),
    "by the code of one message": batch([entry(1)], code=Request.SEND_MESSAGE_V2),
    "one message by the code of batches": send(code=Request.SEND_BATCH_MESSAGE, m="false"),
    "of a transaction": batch([entry(1)], "TRAN_MSG\x01true\x02UNIQ_KEY\x01a\x02PGROUP\x01g\x02"),
    "delayed as a whole": batch([entry(1)], "DELAY\x013\x02"),
    "odd as a whole": batch([entry(1)], "no separators"),
    "letters as a whole": batch([entry(1)], "p\x01ü\x02"),
}


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_odd_batch_among_plain_ones_makes_no_difference(name: str, *, is_binary: bool) -> None:
    odd = ODD[name]
    if not is_binary:
        (command,) = FrameReader().feed(odd)
        odd = frame(
            command.code, command.ext or {}, command.body, opaque=command.opaque, is_binary=False
        )
    both = Both()
    plain = batch([entry(1), entry(2)], is_binary=is_binary)
    both.feed((1, send()), (1, plain + plain))
    both.feed((1, odd), (1, plain + odd + plain), (1, odd + plain))
    both.feed((2, pull(0)), (1, half(3) + odd + half(4)))
    both.pass_time(1_000)
    both.end()


def test_batches_fill_segments_as_before() -> None:
    both = Both()
    both.feed((1, send()))
    plain = batch([entry(n, b"x" * 3_000) for n in range(8)])
    for _ in range(12):
        both.feed((1, plain + send()))
    both.end()


KNOWN = [b"UNIQ_KEY", b"TAGS", b"KEYS", b"TRAN_MSG", b"WAIT"]
VALUES = st.sampled_from([b"a", b"true", b"a b", b" ", b"a b c d", b"a b c d e", b"\x7f"])
SAID = (
    st.lists(st.tuples(st.sampled_from(KNOWN), VALUES), max_size=4).map(
        lambda pairs: b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs)
    )
    | st.binary(max_size=9)
    | st.just(b"UNIQ_KEY\x01a\x02WAIT\x01true\x02")
)
ENTRIES = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=12), SAID),
    max_size=6,
)
PATCHES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)


@pytest.mark.skipif(native.read_batch is None, reason="the lane is not built, or left aside")
@given(entries=ENTRIES, patches=PATCHES, cut=st.integers(0, 3), has_end=st.booleans())
def test_batch_is_read_as_plain_python_reads_it(
    entries: list[Entry], patches: list[tuple[int, int]], cut: int, *, has_end: bool
) -> None:
    assert native.read_batch is not None
    if not has_end:
        entries = [(flag, body, said.removesuffix(b"\x02")) for flag, body, said in entries]
    data = bytearray(encode_batch(entries))
    for at, byte in patches:
        if at < len(data):
            data[at] = byte
    del data[len(data) - cut :]
    known = Properties(["DELAY"], ["DELAY"])
    limits = 1_000, 10, 32_767, 4
    learnt = read_batch(bytes(data), known, b"suffix", 10)
    assert native.read_batch(bytes(data), known.plans, b"suffix", limits) == learnt
    assert native.read_batch(bytes(data), {}, b"suffix", limits) is None


@pytest.mark.skipif(native.read_batch is None, reason="the lane is not built, or left aside")
def test_batch_is_read_by_the_compiled_lane_up_to_every_limit() -> None:
    assert native.read_batch is not None
    known = Properties(["DELAY"], ["DELAY"])
    data = encode_batch([(1, b"x" * 10, b"UNIQ_KEY\x01a\x02KEYS\x01b c d e")] * 3)
    size = len(b"UNIQ_KEY\x01a\x02KEYS\x01b c d e\x02suffix")
    read = read_batch(data, known, b"suffix", 10)
    assert read is not None
    assert native.read_batch(data, known.plans, b"suffix", (3, 10, size, 4)) == read
    for limits in ((2, 10, size, 4), (3, 9, size, 4), (3, 10, size - 1, 4), (3, 10, size, 3)):
        assert native.read_batch(data, known.plans, b"suffix", limits) is None
    for nth in range(4):
        for odd in (None, "text", (), 1 << 80, {b"": 1}):
            asked: list[Any] = [data, known.plans, b"suffix", (3, 10, size, 4)]
            if isinstance(asked[nth], dict) and isinstance(odd, dict):
                continue
            asked[nth] = odd
            with pytest.raises((TypeError, IndexError, SystemError)):
                native.read_batch(*asked)
