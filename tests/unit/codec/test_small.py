"""The small coders: ids, hashes, recall handles, batches, headers, RocketMQ's JSON, replies."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.codec import fastjson
from escrowmq.codec.batch import decode_batch, encode_batch
from escrowmq.codec.command import encode_reply
from escrowmq.codec.entries import Checkpoint, decode_checkpoint, encode_checkpoint
from escrowmq.codec.fastjson import Queue
from escrowmq.codec.hashes import body_crc, index_hash, java_hash, tags_code
from escrowmq.codec.headers import (
    CommitHeader,
    CreateTopicHeader,
    HeaderError,
    OffsetHeader,
    PullHeader,
    SendHeaderV2,
    read_header,
)
from escrowmq.codec.ids import format_host, offset_id, pack_host, parse_offset_id, unpack_host
from escrowmq.codec.recall import Handle, decode_handle, encode_handle
from escrowmq.codec.sent import SentReplies
from escrowmq.errors import RemoteProtocolError, UsageError

# -- ids and hashes ------------------------------------------------------------------------------


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6), st.integers(0, 65_535), st.integers(0, 1 << 62))
def test_hosts_and_offset_ids_are_read_as_written(host: object, port: int, offset: int) -> None:
    packed = pack_host(str(host), port)
    assert unpack_host(packed)[1] == port
    assert pack_host(*unpack_host(packed)) == packed
    text = offset_id(packed, offset)
    assert len(text) in (32, 56)
    assert parse_offset_id(text) == (packed, offset)


def test_offset_id_is_that_of_the_peer() -> None:
    packed = pack_host("127.0.0.2", 10_747)
    assert offset_id(packed, 423) == "7F000002000029FB00000000000001A7"
    assert format_host(packed) == "127.0.0.2:10747"
    assert pack_host("::ffff:127.0.0.2", 1) == pack_host("127.0.0.2", 1)
    assert len(pack_host("fe80::1%eth0", 1)) == 20


def plain_java_hash(text: str) -> int:
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (code * 31 + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


@given(st.text(max_size=60) | st.text("ab", min_size=1_000, max_size=1_100))
def test_hash_of_a_text_is_that_of_java(text: str) -> None:
    assert java_hash(text) == plain_java_hash(text)


def test_known_hashes() -> None:
    assert (java_hash("TagA"), java_hash("TagB"), tags_code("")) == (2_598_919, 2_598_920, 0)
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert body_crc(b"hello") == 907_060_870
    assert index_hash("T", "k") == abs(java_hash("T#k"))


@given(st.integers(0, 1 << 62), st.from_regex(r"[A-Za-z0-9_%-]{1,20}", fullmatch=True))
def test_recall_handle_is_read_as_written(deliver_ms: int, name: str) -> None:
    handle = Handle(topic=name, broker_name="b", deliver_ms=deliver_ms, unique_key="U")
    assert decode_handle(encode_handle(handle)) == handle


@pytest.mark.parametrize(
    "text", ["", "x", "djIgYSBiIDEgYw==", "djEgYSBiIHggYw==", "é", "A" * 2_000]
)
def test_recall_handle_of_nobody_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        decode_handle(text)


# -- batches -------------------------------------------------------------------------------------

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
ENTRIES = st.lists(st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5)


@given(ENTRIES)
def test_batch_is_read_as_written(entries: list[tuple[int, bytes, bytes]]) -> None:
    assert decode_batch(encode_batch(entries)) == entries


@given(ENTRIES.filter(bool), st.data())
def test_cut_batch_is_refused(entries: list[tuple[int, bytes, bytes]], data: st.DataObject) -> None:
    last = len(encode_batch(entries[-1:]))
    body = encode_batch(entries)
    with pytest.raises(RemoteProtocolError):
        decode_batch(body[: len(body) - data.draw(st.integers(1, last - 1))])


@given(st.builds(Checkpoint, *[st.integers(0, (1 << 63) - 1)] * 5))
def test_checkpoint_is_read_as_written(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
    assert decode_checkpoint(b"") == Checkpoint()


# -- header fields -------------------------------------------------------------------------------


def test_unparsable_number_is_a_missing_one_but_for_the_headers_decoded_by_hand() -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "x", "commitOffset": "9" * 30}
    assert read_header(CommitHeader, ext) == CommitHeader("g", "t", None, None)
    send = {"b": "t", "e": "x", "f": "0", "g": "1"}
    pull = {"consumerGroup": "g", "topic": "t", "queueId": "x"}
    for kind, bad in ((SendHeaderV2, send), (PullHeader, pull)):
        with pytest.raises(HeaderError):
            read_header(kind, bad)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("1", True), ("yes", False), ("", False)]
)
def test_booleans_are_read_as_java_reads_them(text: str, value: bool) -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "0", "setZeroIfNotFound": text}
    found = read_header(OffsetHeader, ext).set_zero_if_not_found
    assert found is (value if text != "1" else found)


def test_missing_field_that_is_needed_is_an_error_and_unknown_ones_are_not() -> None:
    with pytest.raises(HeaderError, match="topic"):
        read_header(CreateTopicHeader, {"perm": "6"})
    with pytest.raises(HeaderError):
        read_header(CreateTopicHeader, None)
    ext = {"topic": "t", "perm": "6", "readQueueNums": "1", "writeQueueNums": "1", "bname": "b"}
    assert read_header(CreateTopicHeader, ext).topic == "t"


# -- RocketMQ's JSON -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{0:"x",1:[1,2,]}', {"0": "x", "1": [1, 2]}),
        (b'{{"b":2,"a":1}:5}', {'{"a":1,"b":2}': 5}),
        (b' { "t" : { {"q":0} : {} , } } ', {"t": {'{"q":0}': {}}}),
        (b"{true:null}", {"true": None}),
        (b'{-1:1.5e3,"\\u00e9\\"":"\\n"}', {"-1": 1500.0, 'é"': "\n"}),
        (b"[]", []),
        (b"{}", {}),
    ],
)
def test_dialect_is_read(text: bytes, value: object) -> None:
    assert fastjson.decode(text) == value


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{1}", b"{1:}", b"{:1}", b"[1 2]", b"{1:2}x", b"{1:2,,}", b"]", b"{0:01}",
             b"{0:'x'}", b"{" * 65, b'{0:"\xff"}', b"[" * 100_000]
)  # fmt: skip
def test_what_is_not_even_the_dialect_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        fastjson.decode(text)


QUEUES = st.builds(Queue, st.text('ab\u00e9"', max_size=5), st.integers(0, 99), st.text(max_size=5))


@given(st.dictionaries(QUEUES, st.integers(0, 1 << 62), max_size=5))
def test_map_of_queues_is_read_as_written(table: dict[Queue, int]) -> None:
    data = b'{"offsetTable":' + fastjson.encode_map(table.items()) + b"}"
    assert fastjson.decode_queue_map(fastjson.decode(data)["offsetTable"]) == table


# -- replies to sends ----------------------------------------------------------------------------


@given(
    st.booleans(),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 99),
    st.integers(0, 1 << 62),
    st.text(max_size=300) | st.from_regex(r"[A-Z0-9]{1,300}", fullmatch=True),
    st.sampled_from([{}, {"MSG_REGION": "R", "TRACE_ON": "true"}, {"MSG_REGION": 'odd "%s" é'}]),
)
def test_template_of_a_reply_gives_what_the_general_coder_gives(
    is_binary: bool, opaque: int, queue_id: int, offset: int, key: str, always: dict[str, str]
) -> None:
    request = Command(opaque=opaque, is_binary=is_binary)
    found = SentReplies(always).encode(
        request, "0A" * 16, queue_id=queue_id, queue_offset=offset, unique_key=key
    )
    ext = {
        **always,
        "msgId": "0A" * 16,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "transactionId": key,
    }
    assert found == encode_reply(request, 0, ext=ext)
    assert msgspec.structs.asdict(request)["opaque"] == opaque
