"""Shapes of requests. That the native lane finds their values is tested here too."""

from __future__ import annotations

import pytest

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command
from escrowmq.codec.request_shapes import (
    BORN,
    END,
    OPAQUE,
    PROPERTIES,
    QUEUE,
    SEND,
    RequestKind,
    RequestShape,
    learn_shape,
)
from escrowmq.codec.signature import signed_content
from escrowmq.lane.native import LaneShape, requests_lane

FIELDS = {"a": "g", "b": "Orders", "e": "3", "f": "0", "g": "1700000000000", "i": "A\x01b\x02"}
SIGNED = FIELDS | {"AccessKey": "app", "Signature": "s" * 27 + "=", "z": "last"}
END_FIELDS = {
    "producerGroup": "g", "tranStateTableOffset": "12", "commitLogOffset": "345",
    "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "K", "transactionId": "K",
}  # fmt: skip

needs_lane = pytest.mark.skipif(requests_lane is None, reason="the lane is not built")


def frame_of(
    code: int, ext: dict[str, str], opaque: int = 1, *, is_binary: bool = True,
    remark: str | None = None, body: bytes = b"",
) -> bytes:  # fmt: skip
    command = Command(
        code=code, opaque=opaque, ext=ext, remark=remark, is_binary=is_binary, body=body
    )
    return encode_command(command)


def shape_of(frame: bytes, kind: RequestKind = SEND) -> RequestShape | None:
    header_end = 8 + int.from_bytes(frame[5:8], "big")
    return learn_shape(b"xx" + frame, 2, 2 + header_end, kind)


def learnt(frame: bytes, kind: RequestKind = SEND) -> RequestShape:
    one = shape_of(frame, kind)
    assert one is not None
    return one


def given_of(one: RequestShape) -> LaneShape:
    return LaneShape(one.pieces, one.order, one.is_json, b"")


def signed_in(
    one: RequestShape, *frames: bytes
) -> list[tuple[int, bytes, bytes, bytes, bytes, bytes]]:
    assert requests_lane is not None
    data = b"xx" + b"".join(frames)
    return requests_lane.find_signed_sends(data, 2, 1 << 20, [given_of(one)], 64)


def ends_in(one: RequestShape, *frames: bytes) -> tuple[list[int], list[int]] | None:
    assert requests_lane is not None
    return requests_lane.find_ends(b"".join(frames), 0, 1 << 20, [given_of(one)], 64)


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("fields", [FIELDS, SIGNED])
def test_shape_is_all_of_the_header_but_some_values(
    fields: dict[str, str], *, is_binary: bool
) -> None:
    first = frame_of(310, fields, 7, is_binary=is_binary, body=b"body")
    one = learnt(first)
    assert one.is_json != is_binary
    assert one.header.topic == "Orders"
    signature = fields.get("Signature", "").encode()
    values = [b"7", b"", b"3", b"1700000000000", rb"A\u0001b\u0002", signature]
    if is_binary:
        values = [b"\0\0\0\7", first[25:29], *values[2:4], b"A\x01b\x02", signature]
    header = one.pieces[0]
    for which, piece in zip(one.order, one.pieces[1:], strict=True):
        text = values[which]
        header += (len(text).to_bytes(4, "big") if is_binary and which > 1 else b"") + text + piece
    assert header == first[8 : 8 + int.from_bytes(first[5:8], "big")]


def test_frame_with_other_values_is_the_one_that_is_encoded() -> None:
    one = learnt(frame_of(310, FIELDS))
    values = {OPAQUE: bytes([0, 0, 1, 0]), QUEUE: b"77", BORN: b"5", PROPERTIES: b"x\x01y\x02"}
    other = FIELDS | {"e": "77", "g": "5", "i": "x\x01y\x02"}
    assert one.frame(values, b"body") == frame_of(310, other, 256, body=b"body")


@needs_lane
@pytest.mark.parametrize("is_binary", [True, False])
def test_sends_are_found_by_what_differs_and_by_nothing_else(*, is_binary: bool) -> None:
    one = learnt(frame_of(310, SIGNED, is_binary=is_binary))
    other = SIGNED | {"e": "7", "i": "longer\x01properties\x02", "Signature": "t" * 28}
    frames = [
        frame_of(310, SIGNED | other, number, is_binary=is_binary, body=b"b" * number)
        for number in range(3)
    ]
    found = signed_in(one, *frames)
    assert found == [
        (0, b"7", b"1700000000000", b"longer\x01properties\x02", b"t" * 28, b"b" * number)
        for number in range(3)
    ]
    for changed in ({"b": "Others"}, {"f": "1"}, {"y": "1"}, {"z": "lost"}, {"AccessKey": "apq"}):
        odd = frame_of(310, SIGNED | changed, is_binary=is_binary)
        assert len(signed_in(one, frames[0], odd)) == 1
    assert signed_in(one, frame_of(320, SIGNED, is_binary=is_binary)) == []
    assert signed_in(one, frame_of(310, SIGNED, is_binary=not is_binary)) == []
    unsigned = learnt(frame_of(310, FIELDS, is_binary=is_binary))
    assert signed_in(unsigned, frame_of(310, FIELDS, is_binary=is_binary)) == []


@pytest.mark.parametrize("is_binary", [True, False])
def test_content_that_is_signed_is_that_of_all_fields(*, is_binary: bool) -> None:
    one = learnt(frame_of(310, SIGNED, is_binary=is_binary))
    assert one.signed is not None
    assert one.signed.access_key == "app"
    other = SIGNED | {"e": "7", "g": "8", "i": "9\x010\x00"}
    assert one.signed.content(b"7", b"8", b"9\x010\x00") == signed_content(other)
    assert learnt(frame_of(310, FIELDS, is_binary=is_binary)).signed is None


@pytest.mark.parametrize("is_binary", [True, False])
def test_sends_that_are_never_alike_have_no_shape(*, is_binary: bool) -> None:
    for fields in (
        SIGNED | {"escrowSigned": "7"},
        SIGNED | {"_UNIQUE_KEY_QUERY": "true"},
        {name: FIELDS[name] for name in "abefi"},  # no time
        FIELDS | {"f": "none"},
    ):
        assert shape_of(frame_of(310, fields, is_binary=is_binary)) is None
    if is_binary:
        assert shape_of(frame_of(310, FIELDS, remark="a remark")) is None
        more = frame_of(310, FIELDS)
        header_size = int.from_bytes(more[5:8], "big") + 2
        longer = more[:5] + header_size.to_bytes(3, "big") + more[8:] + b"zz"
        assert shape_of(longer) is None
        twice = frame_of(310, {**FIELDS, "h": "3"}).replace(b"\0\1h\0\0\0\1", b"\0\1e\0\0\0\1")
        assert shape_of(twice) is None


def test_header_in_json_that_says_more_than_it_seems_to_has_no_shape() -> None:
    frame = frame_of(310, FIELDS, 7, is_binary=False)
    learnt(frame)
    for old, new in (
        (b'"e":"3"', b'"e" :"3"'), (b'"e":"3"', b'"e":"3","e":"3"'), (b'"e":"3"', b'"e":3'),
        (b'"e":"3"', rb'"\u0065":"4","x\"e":"3"'), (b'"e":"3",', b""),
        (rb"A\u0001", rb"A\"\u0001"), (rb"b\u0002", rb"b\""), (rb"b\u0002", rb"b\u0009\u0002"),
        (rb"b\u0002", "ü".encode()), (b'"opaque":7', b'"opaque":7e1'),
        (b'"opaque":7', b'"opaque":-7'), (b'"opaque":7', b'"opaque":07'),
        (b'"opaque":7', b'"opaque":7,"x":{"opaque":7}'), (b'"Orders"', rb'"Ord\u0065rs"'),
        (b'"Orders"', b'"Orders","z":"' + b"x" * 2_048 + b'"'), (b'"Orders"', b'"Ord\xc3\xbcrs"'),
        (b"{", b""),
    ):  # fmt: skip
        header = frame[8:]
        assert old in header
        header = header.replace(old, new, 1)
        odd = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        assert shape_of(odd) is None, new


@needs_lane
@pytest.mark.parametrize("is_binary", [True, False])
def test_shape_of_an_end_gives_its_half_whatever_the_order_of_fields(*, is_binary: bool) -> None:
    for names in (list(END_FIELDS), list(reversed(END_FIELDS))):

        def frame(
            changed: dict[str, str] | None = None, opaque: int = 5, names: list[str] = names
        ) -> bytes:
            fields = {name: (END_FIELDS | (changed or {}))[name] for name in names}
            return frame_of(37, fields, opaque, is_binary=is_binary)

        one = learnt(frame(), END)
        other = frame({"tranStateTableOffset": "9", "commitLogOffset": "76543", "msgId": "LM"}, 77)
        assert ends_in(one, frame(), other) == ([12, 9], [345, 76543])
        for changed in (
            {"commitOrRollback": "12"}, {"tranStateTableOffset": "09"}, {"commitLogOffset": "x"},
            {"msgId": "ü"}, {"transactionId": "ü"}, {"msgId": ""},
        ):  # fmt: skip
            assert ends_in(one, frame(changed)) is None, changed
        assert ends_in(one, frame_of(37, END_FIELDS, is_binary=is_binary, body=b"x")) is None


@pytest.mark.parametrize("is_binary", [True, False])
def test_end_that_says_more_or_less_has_no_shape(*, is_binary: bool) -> None:
    for name in END.varies:
        fields = {one: text for one, text in END_FIELDS.items() if one != name}
        assert shape_of(frame_of(37, fields, is_binary=is_binary), END) is None
    for more in ({"escrowCount": "1"}, {"escrowId": "abc"}, {"other": "x"}):
        assert shape_of(frame_of(37, END_FIELDS | more, is_binary=is_binary), END) is None
    bname = frame_of(37, END_FIELDS | {"bname": "b", "topic": "t"}, is_binary=is_binary)
    assert shape_of(bname, END) is not None


def test_a_send_that_asks_how_safe_its_message_is_goes_the_general_way() -> None:
    assert shape_of(frame_of(310, FIELDS | {"escrowWantsSafety": "true"})) is None
