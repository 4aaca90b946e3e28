from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.codec import fastjson
from escrowmq.codec.hashes import index_hash
from escrowmq.codec.record import decode_record
from escrowmq.codec.store_entries import (
    CHECKPOINT_SIZE,
    ENTRY,
    INDEX_ENTRY,
    INDEX_HEADER,
    decode_checkpoint,
    encode_checkpoint,
)
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Exchange

from .captured import load

STORE: dict[str, Any] = load("store-5.3.3.json")
FILES: dict[str, str] = load("tables-5.3.3.json")["files"]
RECORDS: dict[str, dict[str, Any]] = load("records-5.3.3.json")["records"]


@pytest.mark.parametrize("kind", ["consume_queue", "schedule_queue"])
def test_units_of_a_queue_are_read_and_written_byte_for_byte(kind: str) -> None:
    for text in STORE[kind].values():
        data = bytes.fromhex(text)
        units = list(ENTRY.iter_unpack(data))
        assert b"".join(ENTRY.pack(*unit) for unit in units) == data
        assert [unit[0] for unit in units] == sorted(unit[0] for unit in units)


def test_units_lead_to_the_captured_records() -> None:
    units = {
        offset: size
        for kind in ("consume_queue", "schedule_queue")
        for text in STORE[kind].values()
        for offset, size, _ in ENTRY.iter_unpack(bytes.fromhex(text))
    }
    known = {item["log_offset"]: len(item["hex"]) // 2 for item in RECORDS.values()}
    shared = units.keys() & known.keys()
    assert len(shared) >= 3
    assert {offset: units[offset] for offset in shared} == {o: known[o] for o in shared}


def test_unit_of_a_delayed_message_holds_its_time_instead_of_its_tags() -> None:
    waiting = decode_record(bytes.fromhex(RECORDS["delay_waiting"]["hex"]))
    level = int(waiting.properties["DELAY"])
    times = {
        offset: due_ms
        for offset, _, due_ms in ENTRY.iter_unpack(
            bytes.fromhex(STORE["schedule_queue"][str(level - 1)])
        )
    }
    assert times[waiting.log_offset] == waiting.stored_ms + {1: 1_000, 3: 10_000}[level]


# -- index ---------------------------------------------------------------------------------------


def index_entries() -> list[tuple[int, int, int, int]]:
    found = STORE["index"]["entries"]
    data = bytes.fromhex(found if isinstance(found, str) else "".join(found))
    return list(INDEX_ENTRY.iter_unpack(data))


def test_header_of_the_index_counts_its_slots_and_entries() -> None:
    header = bytes.fromhex(STORE["index"]["header"])
    fields = INDEX_HEADER.unpack(header)
    assert INDEX_HEADER.pack(*fields) == header
    begin_ms, end_ms, begin_offset, end_offset, slots, count = fields
    assert begin_ms < end_ms
    assert begin_offset <= end_offset
    assert slots == len(STORE["index"]["used_slots"])
    assert count == len(index_entries())


def test_keys_of_captured_records_are_found_through_slots_and_chains() -> None:
    entries = index_entries()
    slots_count = STORE["index"]["slot_count"]
    begin_ms = INDEX_HEADER.unpack(bytes.fromhex(STORE["index"]["header"]))[0]
    checked = 0
    for item in RECORDS.values():
        message = decode_record(bytes.fromhex(item["hex"]))
        key = message.properties.get("UNIQ_KEY")
        if not key or message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
            continue
        code = index_hash(message.topic, key)
        at = STORE["index"]["used_slots"].get(str(code % slots_count), 0)
        found = {}
        while at:
            entry_code, log_offset, seconds, at = entries[at]
            if entry_code == code:
                found[log_offset] = seconds
        assert message.log_offset in found, item["topic"]
        assert found[message.log_offset] == (message.stored_ms - begin_ms) // 1000
        checked += 1
    assert checked >= 10


# -- checkpoint ----------------------------------------------------------------------------------


def test_checkpoint_is_read_and_written_byte_for_byte() -> None:
    data = bytes.fromhex(STORE["checkpoint"])
    checkpoint = decode_checkpoint(data)
    assert checkpoint.log_ms > 0
    again = encode_checkpoint(checkpoint)
    assert len(again) == CHECKPOINT_SIZE
    assert again[: len(data)] == data


# -- tables --------------------------------------------------------------------------------------


def test_topics_are_loaded_and_saved_with_nothing_lost() -> None:
    table = TopicTable(BrokerSettings())
    table.load(FILES["topics.json"].encode())
    assert fastjson.decode_fastjson(table.content_to_save()) == fastjson.decode_fastjson(
        FILES["topics.json"].encode()
    )


def test_groups_are_loaded_and_saved_with_nothing_lost() -> None:
    table = GroupTable(BrokerSettings())
    table.load(FILES["subscriptionGroup.json"].encode())
    saved = fastjson.decode_fastjson(table.content_to_save())
    theirs = fastjson.decode_fastjson(FILES["subscriptionGroup.json"].encode())
    groups = saved.pop("subscriptionGroupTable")
    expected = theirs.pop("subscriptionGroupTable")
    assert saved == theirs
    assert groups.keys() == expected.keys()
    for name, group in expected.items():
        assert {key: groups[name][key] for key in group} == group


def test_offsets_are_loaded_and_saved_with_nothing_lost() -> None:
    table = OffsetTable()
    table.load(FILES["consumerOffset.json"].encode())
    assert table.saved_log_end == -1
    saved = fastjson.decode_fastjson(table.content_to_save(log_end=0))
    theirs = fastjson.decode_fastjson(FILES["consumerOffset.json"].encode())
    assert saved["offsetTable"] == theirs["offsetTable"]
    assert saved["dataVersion"] == theirs["dataVersion"]


def test_broker_opens_with_the_tables_of_the_peer_and_shows_them() -> None:
    disk = SimDisk()
    for name, text in FILES.items():
        disk.small[f"config/{name}"] = text.encode()
    disk.small["queues.json"] = b"{}"  # a store whose log was empty
    exchange = Exchange(disk=disk)
    caller = exchange.connect()
    topics = json.loads(caller.ask(Request.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    theirs = fastjson.decode_fastjson(FILES["topics.json"].encode())["topicConfigTable"]
    assert {name: topics[name] for name in theirs} == theirs
    groups = json.loads(caller.ask(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    known = fastjson.decode_fastjson(FILES["subscriptionGroup.json"].encode())[
        "subscriptionGroupTable"
    ]
    assert known.keys() <= groups["subscriptionGroupTable"].keys()
    offsets = fastjson.decode_fastjson(caller.ask(Request.GET_ALL_CONSUMER_OFFSET).body)[
        "offsetTable"
    ]
    expected = fastjson.decode_fastjson(FILES["consumerOffset.json"].encode())["offsetTable"]
    assert {key: offsets[key] for key in expected if "CID_RMQ_SYS_TRANS" not in key} == {
        key: value for key, value in expected.items() if "CID_RMQ_SYS_TRANS" not in key
    }
