import struct

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command
from escrowmq.codec.properties import decode_properties, encode_properties
from escrowmq.codec.request_shapes import Properties, learn_end, learn_send

SEND = {"a": "g", "b": "Orders", "e": "3", "f": "0", "g": "1700000000000", "i": "A\x01b\x02"}
END = {
    "producerGroup": "g", "tranStateTableOffset": "12", "commitLogOffset": "345",
    "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "K", "transactionId": "K",
}  # fmt: skip


def header(code: int, ext: dict[str, str], opaque: int = 1, remark: str | None = None) -> bytes:
    command = Command(code=code, opaque=opaque, ext=ext, remark=remark, is_binary=True)
    return encode_command(command)


def test_send_is_matched_by_what_differs_and_by_nothing_else() -> None:
    first = header(310, SEND)
    shape = learn_send(first, 0, len(first))
    assert shape is not None
    assert shape.header.topic == "Orders"
    other = header(310, SEND | {"e": "7", "i": "longer\x01properties\x02"}, opaque=99)
    opaque, queue, born, properties = shape.match(b"xx" + other, 2, 2 + len(other)) or [b""] * 4
    assert struct.unpack(">i", opaque) == (99,)
    assert (queue, born) == (b"7", b"1700000000000")
    assert properties == b"longer\x01properties\x02"
    for changed in ({"b": "Others"}, {"e": "12"}, {"f": "1"}, {"z": "1"}):
        one = header(310, SEND | changed)
        assert shape.match(one, 0, len(one)) is None


def test_signed_sends_are_alike_but_for_their_signatures() -> None:
    fields = SEND | {"AccessKey": "app", "Signature": "s" * 28, "z": "last"}
    first = header(310, fields)
    shape = learn_send(first, 0, len(first))
    assert shape is not None
    assert shape.signed is not None
    assert shape.signed.access_key == "app"
    other = header(310, fields | {"e": "7", "Signature": "t" * 28})
    assert shape.match(b"xx" + other, 2, 2 + len(other)) is not None
    assert shape.signature(b"xx" + other, 2 + len(other)) == b"t" * 28
    values = {**fields, "e": "7", "g": "8", "i": "9"}
    signed = "".join(values[name] for name in sorted(values) if name != "Signature")
    assert shape.signed.content(b"7", b"8", b"9") == signed.encode()
    for changed in ({"z": "lost"}, {"AccessKey": "apq"}, {"Signature": "t" * 27}):
        one = header(310, fields | changed)
        assert shape.match(one, 0, len(one)) is None


def test_signed_sends_that_are_never_alike_have_no_shape() -> None:
    signed = {"AccessKey": "app", "Signature": "s" * 28}
    for fields in (
        SEND | {"Signature": "s" * 28},
        SEND | signed | {"escrowSigned": "7"},
        SEND | signed | {"Signature": "s" * 20},
        signed | SEND,
    ):
        one = header(310, fields)
        assert learn_send(one, 0, len(one)) is None


def test_odd_sends_have_no_shape() -> None:
    for one in (
        header(310, SEND, remark="a remark"),
        header(310, {name: SEND[name] for name in "abefi"}),  # no time
        header(310, {name: SEND[name] for name in "iabefg"}),  # in another order
        header(310, SEND | {"e": "1" * 30}),
    ):
        assert learn_send(one, 0, len(one)) is None


def test_shape_of_an_end_gives_its_half_whatever_the_order_of_fields() -> None:
    for names in (list(END), list(reversed(END))):
        first = header(37, {name: END[name] for name in names})
        shape = learn_end(first, 0, len(first))
        assert shape is not None
        changed = END | {"tranStateTableOffset": "98", "commitLogOffset": "765", "msgId": "L"}
        other = header(37, {name: changed[name] for name in names}, opaque=5)
        found = shape.match(other, 0, len(other))
        assert found == (struct.pack(">i", 5), b"98", b"765", b"K")
        rollback = header(37, {name: (END | {"commitOrRollback": "4"})[name] for name in names})
        assert shape.match(rollback, 0, len(rollback)) is None


NAMES = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "x", "y", "DELAY", "TRAN_MSG", "PGROUP"])


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "a", "b\x01", "\x02", "c d", "ü"]))))
def test_properties_that_are_read_are_those_that_are_stored(pairs: list[tuple[str, str]]) -> None:
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    found = Properties({"DELAY", "TRAN_MSG"}, {"DELAY"}).read(encoded)
    if found is None:
        return
    plan, fields = found
    texts = [field.decode() for field in fields]
    properties = decode_properties(encoded)
    assert dict(zip(texts[::2], texts[1::2], strict=True)) == properties
    assert encode_properties(properties) == encoded
    assert texts[plan.key] == properties["UNIQ_KEY"]
    assert "DELAY" not in properties
    assert ("TRAN_MSG" in properties) == (plan.is_half >= 0)
