from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.message import SysFlag, Topic
from escrowmq.codec.hashes import tags_code
from escrowmq.codec.ids import offset_id, parse_offset_id, unpack_host
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record, encode_message, encode_record
from escrowmq.txn.half_records import make_final, target_queue
from escrowmq.txn.op_records import decode_op, encode_op

from .captured import load

RECORDS: dict[str, dict[str, Any]] = load("records-5.3.3.json")["records"] | {
    f"ipv6_{name}": record for name, record in load("records-ipv6-5.3.3.json")["records"].items()
}


IPV6_HOSTS = 0x30
"""Flags of records whose hosts have 16 bytes: where it was born, where it is stored."""


def raw(name: str) -> bytes:
    return bytes.fromhex(RECORDS[name]["hex"])


def properties_of(record: bytes) -> bytes:
    """The encoded properties: they end the record."""
    message = decode_record(record)
    size = len(record)
    start = 84 + 4 + len(message.body)
    start += 12 * (message.sys_flag & IPV6_HOSTS).bit_count()
    width = 2 if record[7] == 0xAB else 1
    start += width + int.from_bytes(record[start : start + width], "big")
    assert int.from_bytes(record[start : start + 2], "big") == size - start - 2
    return record[start + 2 :]


@pytest.mark.parametrize("name", RECORDS)
def test_record_is_read_and_written_byte_for_byte(name: str) -> None:
    record = raw(name)
    message = decode_record(record, check_crc=True)
    assert message.log_offset == RECORDS[name]["log_offset"]
    assert message.topic == RECORDS[name]["topic"]
    assert message.record_size == len(record)
    properties = properties_of(record)
    again = encode_record(
        message,
        properties=properties,
        queue_offset=message.queue_offset,
        log_offset=message.log_offset,
        stored_ms=message.stored_ms,
    )
    assert again == record


@pytest.mark.parametrize("name", [name for name in RECORDS if not name.startswith("batch")])
def test_properties_are_read_and_written_byte_for_byte(name: str) -> None:
    record = raw(name)
    message = decode_record(record)
    assert encode_properties(message.properties) == properties_of(record)
    assert encode_message(message) == record


def test_message_of_a_batch_has_the_unique_key_of_its_batch_as_the_peer_reads_it() -> None:
    first, second = decode_record(raw("batch_first")), decode_record(raw("batch_second"))
    assert first.properties["UNIQ_KEY"] == second.properties["UNIQ_KEY"]
    assert second.queue_offset == first.queue_offset + 1


def test_retry_topic_of_more_than_127_characters_is_of_the_second_version() -> None:
    record = raw("long_topic_v2")
    assert record[4:8].hex() == "daa320ab"
    assert len(decode_record(record).topic) > 127


@pytest.mark.parametrize(
    ("name", "flag"),
    [("compressed_zlib", 0x300), ("compressed_lz4", 0x100), ("compressed_zstd", 0x200)],
)
def test_compression_is_told_by_the_flag(name: str, flag: int) -> None:
    sys_flag = decode_record(raw(name)).sys_flag
    assert sys_flag & SysFlag.COMPRESSED
    assert sys_flag & SysFlag.COMPRESSION_MASK in (flag, 0 if "zlib" in name else flag)


def test_half_and_final_message_are_told_apart_as_ours_are() -> None:
    half = decode_record(raw("half"))
    assert (half.topic, half.queue_id) == (Topic.HALF, 0)
    assert half.sys_flag & SysFlag.TRANSACTION_MASK == 0
    assert target_queue(half) is not None
    final = decode_record(raw("final_committed"))
    assert final.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
    assert final.prepared_log_offset > 0
    assert final.properties["REAL_TOPIC"] == final.topic


@pytest.mark.parametrize("front", ["", "ipv6_"])
def test_final_message_of_ours_is_what_the_peer_makes_of_the_same_half(front: str) -> None:
    final = decode_record(raw(f"{front}final_committed"))
    halves = [decode_record(raw(f"{front}{name}")) for name in ("half", "half_put_back")]
    half = next((half for half in halves if half.log_offset == final.prepared_log_offset), None)
    if half is None:
        pytest.skip("another half's")
    ours = make_final(half)
    assert ours is not None
    record = encode_record(
        ours,
        properties=encode_properties(ours.properties),
        queue_offset=final.queue_offset,
        log_offset=final.log_offset,
        stored_ms=final.stored_ms,
    )
    assert record == raw(f"{front}final_committed")


@pytest.mark.parametrize("front", ["", "ipv6_"])
def test_op_record_of_the_peer_is_read_and_ours_differs_by_the_outcomes_alone(front: str) -> None:
    op = decode_record(raw(f"{front}op"))
    named = decode_op(op)
    assert named
    assert {letter for _, letter in named} == {"-"}
    ours = encode_op([(offset, "c") for offset, _ in named], host=op.store_host, now_ms=op.born_ms)
    assert (ours.topic, ours.queue_id, ours.body) == (op.topic, op.queue_id, op.body)
    properties = dict(ours.properties)
    del properties["escrowOutcomes"]
    assert list(properties.items()) == list(op.properties.items())


def test_put_back_copy_counts_its_checks() -> None:
    copy = decode_record(raw("half_put_back"))
    assert copy.topic == Topic.HALF
    assert int(copy.properties["TRANSACTION_CHECK_TIMES"]) >= 1


def test_tags_code_is_what_the_consume_queue_keeps() -> None:
    units = load("store-5.3.3.json")["consume_queue"]
    message = decode_record(raw("single"))
    unit = bytes.fromhex(units[str(message.queue_id)])[:20]
    assert int.from_bytes(unit[:8], "big") == message.log_offset
    assert int.from_bytes(unit[8:12], "big") == message.record_size
    assert int.from_bytes(unit[12:], "big", signed=True) in (
        0,
        tags_code(message.properties["TAGS"]),
    )


@pytest.mark.parametrize("name", [name for name in RECORDS if name.startswith("ipv6_")])
def test_ipv6_hosts_are_read(name: str) -> None:
    message = decode_record(raw(name))
    assert message.sys_flag & IPV6_HOSTS == IPV6_HOSTS
    assert [unpack_host(host)[0] for host in (message.born_host, message.store_host)] == ["::1"] * 2
    found = parse_offset_id(offset_id(message.store_host, message.log_offset))
    assert found == (message.store_host, message.log_offset)
