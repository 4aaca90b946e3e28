"""Batches that are served the short way, held to what the general path does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Request
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import encode_properties
from escrowmq.delivery.topics import TopicConfig
from escrowmq.lane.native import requests_lane
from tests.unit.broker.both import PLAIN, Both, Side, Watched, frame, half, pull, send

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
    before = both.fast.served_count
    entries = [entry(n, b"x" * n, n, TAGS="t", KEYS="a b", p=str(n)) for n in range(1, 20)]
    one = batch(entries, own, is_binary=is_binary)
    replies = both.feed((1, one + one + send(is_binary=is_binary) + one))
    assert both.fast.served_count - before == 4
    assert [(reply.ext or {})["msgId"].count(",") for reply in replies] == [18, 18, 0, 18]
    both.feed((1, batch(entries, own, is_binary=is_binary, flag=2) + one))
    both.feed((2, pull(0)), (2, pull(30)))
    both.end()


@pytest.mark.parametrize("own", ["", "WAIT\x01true", "UNIQ_KEY\x010A0B\x02WAIT\x01true\x02"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_lane_lays_out_batches_among_other_requests(own: str, *, is_binary: bool) -> None:
    both = Both()
    lane = Watched(both.fast)
    one, mute = (
        batch(
            [entry(n, TAGS="t", KEYS="a b") for n in range(5)], own, flag=flag, is_binary=is_binary
        )
        for flag in (0, 2)
    )
    far = batch([entry(n) for n in range(3)], own, e="1", is_binary=is_binary)
    plain, quiet = (send(flag=flag, is_binary=is_binary) for flag in (0, 2))
    each = one, mute, far, plain, half(1), quiet, one, far
    for single in (send(e="1"), *each, *each):
        both.feed((1, single))
    lane.clear()
    both.feed((1, b"".join(each)), (1, one))
    shared, alone = lane.results("lay_out_sends")
    assert [(count, is_one_way) for _, count, _, is_one_way in shared[7]] == [
        (5, 0), (5, 1), (3, 0), (5, 0), (3, 0),
    ]  # fmt: skip
    assert shared[8:10] == (3, 1)
    assert sum(size for *_, size, _ in alone[7]) == len(alone[1])
    # What is no plain batch, in the middle: all of it is undone, and what follows is served.
    for odd in ([entry(1), entry(2, DELAY="2")], [entry(1), entry(2, TRAN_MSG="true")]):
        bad = batch(odd, own, is_binary=is_binary)
        both.feed((1, one + bad + one), (1, bad + one), (1, far + bad + far + plain))
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
        (command,) = FrameReader().read_commands(odd)
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


@pytest.mark.parametrize(("size", "is_served"), [(127, True), (128, False)])
def test_batch_to_a_topic_with_a_long_name_is_served_as_far_as_it_is_stored(
    size: int, *, is_served: bool
) -> None:
    both, name = Both(), "t" * size
    for side in both.sides:
        side.core.broker.topics.put(TopicConfig(topic_name=name), side.now_ms)
    body = encode_batch([(0, b"b", b"UNIQ_KEY\x01a\x02")])
    both.feed((1, send(topic=name)))
    one = send(PLAIN, body, code=Request.SEND_BATCH_MESSAGE, topic=name)
    both.feed((1, one), (1, one))
    before = both.fast.served_count
    (answer,) = both.feed((1, one))
    assert both.fast.served_count == before + is_served
    assert (answer.code == 0) == is_served
    both.end()


@pytest.mark.parametrize("own", ["p?q\x01v\x02", "UNIQ_KEY\x010A?B\x02WAIT\x01true\x02"])
def test_batch_whose_sender_says_what_is_no_text_is_refused(own: str) -> None:
    """Seed 20261123 of tests/fuzz/test_lane: it was stored; the general path cuts its sender."""
    both = Both()
    plain = batch([entry(1)])
    both.feed((1, send()), (1, plain))
    both.feed((1, plain + batch([entry(2)], own).replace(b"?", b"\xcb") + plain))
    assert both.general.closed
    both.feed((2, pull(0)))
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
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
ENTRIES = st.lists(st.tuples(INT32, st.binary(max_size=12), SAID), max_size=6)
PATCHES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)


@given(
    entries=ENTRIES,
    patches=PATCHES,
    cut=st.integers(0, 3),
    has_end=st.booleans(),
    sys_flag=st.sampled_from(["0", "0", "1", "4", "256"]),
    is_binary=st.booleans(),
)
def test_any_batch_is_served_as_on_the_general_path(
    entries: list[Entry],
    patches: list[tuple[int, int]],
    cut: int,
    sys_flag: str,
    *,
    has_end: bool,
    is_binary: bool,
) -> None:
    if not has_end:
        entries = [(flag, body, said.removesuffix(b"\x02")) for flag, body, said in entries]
    data = bytearray(encode_batch(entries))
    for at, byte in patches:
        if at < len(data):
            data[at] = byte
    del data[len(data) - cut :]
    both = Both()
    odd = batch(bytes(data), is_binary=is_binary, f=sys_flag)
    plain = batch([entry(1)], is_binary=is_binary)
    both.feed((1, send()), (1, plain), (1, odd), (1, odd + plain))
    both.end()


class Asked:
    """A call of the native lane for one batch, to be repeated with other arguments."""

    def __init__(self, entries: list[Entry]) -> None:
        side = Side(is_fast=True)
        lane = Watched(side)
        for one in (send(), batch(entries), batch(entries)):
            side.feed((1, one))
        (*self._before, moment, count_max), found = lane.calls["lay_out_sends"][-1]
        assert found is not None
        assert requests_lane is not None
        self.moment: tuple[Any, ...] = moment
        self.size = len(found[1])
        self._count_max = count_max
        self._lay_out: Any = requests_lane.lay_out_sends

    def is_served(self, nth: int, value: object) -> bool:
        """Whether it is with another value in the moment."""
        moment = (*self.moment[:nth], value, *self.moment[nth + 1 :])
        return self._lay_out(*self._before, moment, self._count_max) is not None

    def is_served_by(self, count_max: int) -> bool:
        return self._lay_out(*self._before, self.moment, count_max) is not None


LOG_END, ROOM_END, SUFFIX, BODY_SIZE, PROPERTIES_SIZE, KEYS, COUNT = 0, 1, 5, 7, 8, 9, 13
"""Positions in lane/native.LaneLimits."""


def test_batch_is_laid_out_up_to_every_limit() -> None:
    said = b"UNIQ_KEY\x01a\x02KEYS\x01b c d e"
    asked = Asked([(1, b"x" * 10, said)] * 3)
    size = len(said + b"\x02") + len(asked.moment[SUFFIX])
    end = asked.moment[LOG_END]
    for nth, least in (
        (BODY_SIZE, 10), (PROPERTIES_SIZE, size), (KEYS, 4), (COUNT, 3),
        (ROOM_END, end + asked.size),
    ):  # fmt: skip
        assert asked.is_served(nth, least)
        assert not asked.is_served(nth, least - 1)
    assert asked.is_served_by(1)
    assert not asked.is_served_by(0)
