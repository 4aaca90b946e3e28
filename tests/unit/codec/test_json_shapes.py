"""Headers in JSON that are alike, and what is none of them."""

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command
from escrowmq.codec.json_shapes import learn_json_send

SEND = {"a": "g", "b": "Orders", "e": "3", "f": "0", "g": "1700000000000", "i": "A\x01b\x02"}


def in_json(fields: dict[str, str], opaque: int = 7) -> bytes:
    return encode_command(Command(code=310, opaque=opaque, ext=fields))[8:]


def test_shape_in_json_is_all_of_the_header_but_four_values() -> None:
    one = in_json(SEND)
    shape = learn_json_send(b"xx" + one + b"body", 2, 2 + len(one))
    assert shape is not None
    values = [b"3", b"1700000000000", rb"A\u0001b\u0002", b"7"]
    again = b""
    for piece, nth in zip(shape.pieces, shape.order, strict=False):
        again += piece + values[nth]
    assert again + shape.pieces[-1] == one
    assert sorted(shape.order) == [0, 1, 2, 3]
    assert shape.said.extFields.b == "Orders"
    assert shape.may_match(one, 0, len(one))
    other = in_json(SEND | {"e": "77", "i": "B\x01c\x02"}, opaque=1234)
    assert shape.may_match(b"xx" + other, 2, 2 + len(other))
    assert not shape.may_match(other, 0, len(other) - 1)


def test_header_in_json_that_says_more_than_it_seems_to_has_no_shape() -> None:
    one = in_json(SEND)
    assert learn_json_send(one, 0, len(one)) is not None
    for old, new in (
        (b'"e":"3"', b'"e":"03"'), (b'"e":"3"', b'"e" :"3"'), (b'"e":"3"', b'"e":"3","e":"3"'),
        (b'"e":"3"', rb'"\u0065":"4","x\"e":"3"'), (b'"e":"3"', b'"e":3'), (b'"e":"3",', b""),
        (rb"A\u0001", rb"A\"\u0001"), (rb"b\u0002", rb"b\""), (rb"b\u0002", rb"b\u0009\u0002"),
        (rb"b\u0002", "ü".encode()), (b'"opaque":7', b'"opaque":7e1'),
        (b'"opaque":7', b'"opaque":-7'),
        (b'"opaque":7', b'"opaque":7,"x":{"opaque":7}'), (b'"Orders"', rb'"Ord\u0065rs"'),
        (b'"Orders"', b'"Orders","z":"' + b"x" * 1_024 + b'"'), (b'"Orders"', b'"Ord\xc3\xbcrs"'),
        (b"{", b"", ),
    ):  # fmt: skip
        assert old in one
        odd = one.replace(old, new, 1)
        assert learn_json_send(odd, 0, len(odd)) is None, new
