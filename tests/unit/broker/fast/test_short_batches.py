"""Batches that are served the short way, held to what the general path does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import PROPERTIES_SIZE_MAX
from escrowmq.base.message import SysFlag
from escrowmq.broker.fast.lane_input import tail_given
from escrowmq.broker.fast.short_batches import ShortBatches
from escrowmq.broker.sends.forbidden_to_senders import ODD as ODD_FLAGS
from escrowmq.codec.batch import encode_batch
from escrowmq.codec.entries import ENTRY_SIZE
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.request_shapes import Properties
from escrowmq.delivery.topics import TopicConfig
from escrowmq.lane.native import (
    BatchLaidOut,
    LaidOut,
    LayOutBatch,
    Moment,
    lay_out_batch,
    lay_out_sends,
)
from escrowmq.store.run import Common
from escrowmq.testing.disk import SimDisk
from escrowmq.txn.plain_halves import HALF_MARK
from tests.unit.broker.both import PLAIN, Both, frame, half, pull, send
from tests.unit.store.stores import message, opened, small

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


@pytest.mark.skipif(lay_out_batch is None, reason="the lane is not built, or left aside")
@pytest.mark.parametrize("is_binary", [True, False])
def test_lane_lays_out_batches_whose_names_it_knows(*, is_binary: bool) -> None:
    """One by one, where it does not lay out stretches: of accounts, for one."""
    both, counts = Both(), list[int]()

    def lay_out(*given: Any) -> BatchLaidOut | None:
        assert lay_out_batch is not None
        found = lay_out_batch(*given)
        counts.append(0 if found is None else len(found[1]) // ENTRY_SIZE)
        return found

    fast_path = both.sides[2].core.remoting.fast_path
    assert fast_path is not None
    fast_path.lay_out, fast_path.lay_out_batch = None, lay_out
    one = batch([entry(n, TAGS="t", KEYS="a b") for n in range(5)], is_binary=is_binary)
    both.feed((1, send()), (1, one), (1, one))
    counts.clear()
    both.feed((1, one + one), (1, one + send(is_binary=is_binary) + one))
    assert counts == [5] * 4
    both.end()


@pytest.mark.skipif(lay_out_sends is None, reason="the lane is not built, or left aside")
@pytest.mark.parametrize("own", ["", "WAIT\x01true", "UNIQ_KEY\x010A0B\x02WAIT\x01true\x02"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_lane_lays_out_batches_among_other_requests(own: str, *, is_binary: bool) -> None:
    both, told = Both(), list[LaidOut]()

    def lay_out(*given: Any) -> LaidOut | None:
        assert lay_out_sends is not None
        found = lay_out_sends(*given)
        if found is not None:
            told.append(found)
        return found

    fast_path = both.sides[2].core.remoting.fast_path
    assert fast_path is not None
    fast_path.lay_out = lay_out
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
    told.clear()
    both.feed((1, b"".join(each)), (1, one))
    shared, alone = told
    assert [(count, is_one_way) for _, count, _, is_one_way in shared[7]] == [
        (5, 0), (5, 1), (3, 0), (5, 0), (3, 0),
    ]  # fmt: skip
    assert shared[8:] == (3, 1)
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
    before = both.short.served_count
    (answer,) = both.feed((1, one))
    assert both.short.served_count == before + is_served
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
COMMON = st.builds(
    Common, st.sampled_from([0, 1, 4, 256]), st.integers(0, 1 << 62), st.just(bytes(8)), INT32
)
HOST, SUFFIX = bytes([10, 0, 0, 1, 0, 0, 42, 159]), b"CLUSTER\x01c\x02"


class Place:
    """The end of a queue, where batches are put in turn by plain Python and by the lane."""

    def __init__(self, left: int | None = None) -> None:
        store, _ = opened(SimDisk(), small(log_segment_size=64 * 1024))
        store.put(message(0), 1_000)
        if left is not None:  # so many bytes before a segment's end
            body = bytes(64 * 1024 - store.end_offset - left - 200)
            store.put(message(1, body=body), 1_000)
        self.run = store.run(HOST)
        self.known = Properties(["DELAY"], ["DELAY"])
        self._batches = ShortBatches(self.run, HOST, self.known, 10)
        self.run.begin(2_000)
        tail = self.run.tail("orders", 0)
        assert tail is not None
        self.tail = tail

    def moment(
        self, *, properties_size: int = PROPERTIES_SIZE_MAX, keys: int = 4, count: int = 1_000
    ) -> Moment:
        run = self.run
        return (
            run.end, run.room_end, run.stored_ms, run.host, bytes(8), SUFFIX, HALF_MARK, 10,
            properties_size, keys, 0, set(), None, count, {},
        )  # fmt: skip

    def put(
        self, lay_out: LayOutBatch | None, data: bytes, begin: int, common: Common
    ) -> tuple[Any, ...] | None:
        """What there is when it is put; nothing is there afterwards."""
        run, tail = self.run, self.tail
        put = self._batches.put(
            lay_out, tail, (data, begin, len(data)), common, SUFFIX, self.moment()
        )
        found = None
        if put is not None:
            records, units = b"".join(run._pieces), tail.units.copy()
            assert len(units) == ENTRY_SIZE * put[1]
            found = (
                put, records, units, run._keys.copy(), run.end, tail.next_offset, tail.log_offset
            )  # fmt: skip
        assert put is not None or not (run._pieces or run._keys or tail.units)
        run.done()
        run.begin(2_000)
        return found

    def lay_out(
        self, data: bytes, common: Common, moment: Moment | None = None
    ) -> BatchLaidOut | None:
        assert lay_out_batch is not None
        return lay_out_batch(
            data, 0, len(data), self.known.plans, tail_given(self.tail), common,
            moment or self.moment(),
        )  # fmt: skip


needs_lane = pytest.mark.skipif(
    lay_out_batch is None, reason="the lane is not built, or left aside"
)


@needs_lane
@given(
    entries=ENTRIES,
    patches=PATCHES,
    cut=st.integers(0, 3),
    has_end=st.booleans(),
    common=COMMON,
    left=st.none() | st.integers(0, 900),
)
def test_batch_is_laid_out_as_plain_python_puts_it(
    entries: list[Entry],
    patches: list[tuple[int, int]],
    cut: int,
    common: Common,
    left: int | None,
    *,
    has_end: bool,
) -> None:
    if not has_end:
        entries = [(flag, body, said.removesuffix(b"\x02")) for flag, body, said in entries]
    data = bytearray(encode_batch(entries))
    for at, byte in patches:
        if at < len(data):
            data[at] = byte
    del data[len(data) - cut :]
    place = Place(left)
    assert place.lay_out(bytes(data), common) is None  # it knows no names yet
    put = place.put(None, b"before" + data, 6, common)
    assert place.put(lay_out_batch, b"before" + data, 6, common) == put
    if not common.sys_flag & SysFlag.TRANSACTION_MASK and not common.sys_flag & ODD_FLAGS:
        assert (place.lay_out(bytes(data), common) is None) == (put is None)


@needs_lane
def test_batch_is_laid_out_up_to_every_limit() -> None:
    place, common = Place(), Common(0, 1, bytes(8), 0)
    said = b"UNIQ_KEY\x01a\x02KEYS\x01b c d e"
    data = encode_batch([(1, b"x" * 10, said)] * 3)
    assert place.put(None, data, 0, common) is not None
    size = len(said + b"\x02" + SUFFIX)
    assert place.lay_out(data, common, place.moment(properties_size=size, count=3)) is not None
    for moment in (
        place.moment(count=2),
        place.moment(properties_size=size - 1),
        place.moment(keys=3),
        (*place.moment()[:7], 9, *place.moment()[8:]),
    ):
        assert place.lay_out(data, common, moment) is None


@needs_lane
def test_batch_needs_room_for_all_of_it() -> None:
    place, common = Place(), Common(0, 1, bytes(8), 0)
    data = encode_batch([(1, b"x", b"UNIQ_KEY\x01a\x02")] * 3)
    put = place.put(None, data, 0, common)
    assert put is not None
    end, size, moment = place.run.end, len(put[1]), place.moment()
    assert place.lay_out(data, common, (end, end + size, *moment[2:])) is not None
    assert place.lay_out(data, common, (end, end + size - 1, *moment[2:])) is None


@needs_lane
def test_lane_that_is_told_nonsense_of_a_batch_refuses_it() -> None:
    lane: Any = lay_out_batch
    place, common = Place(), Common(0, 1, bytes(8), 0)
    data = encode_batch([(1, b"x", b"UNIQ_KEY\x01a\x02")] * 3)
    assert place.put(None, data, 0, common) is not None
    plans, tail, moment = place.known.plans, tail_given(place.tail), place.moment()
    asked = data, 0, len(data), plans, tail, tuple(common), moment
    assert lane(*asked) is not None
    (names,) = plans
    wrong: list[tuple[Any, ...]] = [(*asked[:3], {names: (b"",)}, *asked[4:]), (), asked[:-1]]
    for nth, value in enumerate(asked):
        for odd in (None, "text", (), -1, 1 << 80, [()]):
            wrong.append((*asked[:nth], odd, *asked[nth + 1 :]))
            if isinstance(value, tuple):
                parts = [(*value[:at], odd, *value[at + 1 :]) for at in range(len(value))]
                wrong += [(*asked[:nth], part, *asked[nth + 1 :]) for part in parts]
    refused_count = 0
    for one in wrong:
        try:
            lane(*one)
        except Exception:  # noqa: BLE001 - whichever; the process goes on
            refused_count += 1
    assert refused_count > len(wrong) // 2
    for begin, end in ((-1, 3), (0, len(data) + 1), (9, 8), (len(data) + 1, len(data) + 2)):
        with pytest.raises(ValueError, match="beyond"):
            lane(data, begin, end, *asked[3:])
