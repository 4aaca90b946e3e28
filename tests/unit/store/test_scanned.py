"""Units and keys from a record's bytes are those that the decoded message has."""

from __future__ import annotations

import pytest

from escrowmq.base.message import Message, SysFlag, Topic
from escrowmq.codec.hashes import java_hash, tags_code
from escrowmq.codec.log_records import ScannedRecord, parse_records
from escrowmq.store import scanned
from escrowmq.store.index_chains import index_key
from escrowmq.store.scanned import RecordKeys, UnitTagsCodes
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import log_bytes, message, opened


def scan(*messages: Message) -> list[ScannedRecord]:
    store, _ = opened(SimDisk())
    for one in messages:
        store.put(one, 5_000)
    return parse_records(log_bytes(store), 0).records


def keys_of(record: ScannedRecord, keys: RecordKeys | None = None) -> bytes:
    found = bytearray()
    (keys or RecordKeys()).add(found, record)
    return bytes(found)


@pytest.mark.parametrize("tags", ["a", "", "été"])
def test_a_unit_has_the_code_of_the_tags(tags: str) -> None:
    (record,) = scan(message(1, properties={"TAGS": tags, "KEYS": "k"}))
    codes = UnitTagsCodes({1: 1_000})
    for _ in range(2):
        assert codes.code_of(record, is_schedule=False) == tags_code(tags)


def test_a_unit_of_a_delayed_message_says_when_it_is_due() -> None:
    (record,) = scan(message(1, topic=Topic.SCHEDULE, properties={"DELAY": "2", "TAGS": "a"}))
    assert UnitTagsCodes({1: 1_000, 2: 5_000}).code_of(record, is_schedule=True) == 10_000
    assert UnitTagsCodes({}).code_of(record, is_schedule=True) == tags_code("a")


def test_as_many_tags_as_there_are_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanned, "_KNOWN_MAX", 2)
    records = scan(*[message(n, topic=f"t{n}", properties={"TAGS": f"a{n}"}) for n in range(9)])
    codes = UnitTagsCodes({})
    assert [codes.code_of(each, is_schedule=False) for each in records] == [
        tags_code(f"a{n}") for n in range(9)
    ]
    assert len(codes._known) <= 4


def test_the_index_finds_a_record_by_its_unique_key_and_each_of_its_keys() -> None:
    (record,) = scan(message(1, properties={"UNIQ_KEY": "U1", "KEYS": "one  zwölf"}))
    prefix = java_hash("orders#")
    assert keys_of(record) == b"".join(
        index_key(prefix, key, record.log_offset, 5_000) for key in ("U1", "one", "zwölf")
    )


def test_only_what_has_keys_is_found() -> None:
    (record,) = scan(message(1, properties={"KEYS": "k"}))
    assert keys_of(record) == index_key(java_hash("orders#"), "k", record.log_offset, 5_000)
    (record,) = scan(message(1, properties={"TAGS": "a"}))
    assert keys_of(record) == b""


def test_halves_are_found_and_those_that_were_rolled_back_are_not() -> None:
    (record,) = scan(message(1))
    assert keys_of(record._replace(sys_flag=SysFlag.PREPARED)) == keys_of(record)
    assert keys_of(record._replace(sys_flag=SysFlag.ROLLBACK)) == b""


def test_as_many_topics_as_there_are_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanned, "_KNOWN_MAX", 2)
    keys = RecordKeys()
    for number in range(9):
        (record,) = scan(message(1, topic=f"t{number}"))
        assert keys_of(record, keys) == keys_of(record)
    assert len(keys._prefixes) <= 4
