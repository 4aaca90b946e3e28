"""Pieces of a store as the Java broker wrote it: records by kind, index entries, tables."""

import struct
from collections.abc import Iterator
from pathlib import Path

from escrowmq.codec.record_layout import (
    FRONT,
    HEADS,
    HOSTS_V6,
    MAGICS,
    PLACED,
    PROPERTIES_SIZE,
    topic_size_width,
)

INDEX_HEADER_SIZE = 40
ENTRY_SIZE = 20
UNIT_SIZE = 20


def records(store: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of every record of a commit log."""
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + FRONT.size <= len(data):
            size, magic = FRONT.unpack_from(data, at)
            if magic not in MAGICS:
                break
            yield int(file.name) + at, data[at : at + size]
            at += size


def topic_and_properties(record: bytes) -> tuple[str, dict[str, str]]:
    """Topic and properties of a record, read as far as finding it needs."""
    _, magic, _, sys_flag = PLACED.unpack_from(record)
    head = HEADS[sys_flag & HOSTS_V6]
    (body_size,) = struct.unpack_from(">i", record, head.body_size_at)
    at = head.size + body_size
    width = topic_size_width(magic)
    topic_size = int.from_bytes(record[at : at + width], "big")
    at += width
    topic = record[at : at + topic_size].decode()
    text = record[at + topic_size + PROPERTIES_SIZE.size :].decode()
    pairs = (pair.partition("\1") for pair in text.split("\2") if "\1" in pair)
    return topic, {name: value for name, _, value in pairs}


def kind(topic: str, properties: dict[str, str], record: bytes) -> str | None:
    """The name under which a record is kept; None for one that is not wanted."""
    sys_flag = PLACED.unpack_from(record)[3]
    by_key = {
        "key-1 key-2": "single",
        "b-0": "batch_first",
        "b-1": "batch_second",
        "zlib": "compressed_zlib",
        "lz4": "compressed_lz4",
        "zstd": "compressed_zstd",
        "timer-1": "timer_delivered",
        "long-1": "long_topic_v2",
    }
    name = by_key.get(properties.get("KEYS", ""))
    if topic == "RMQ_SYS_TRANS_HALF_TOPIC":
        return "half_put_back" if "TRANSACTION_CHECK_TIMES" in properties else "half"
    if topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
        return "op"
    if topic == "SCHEDULE_TOPIC_XXXX":
        return "delay_retry" if properties["REAL_TOPIC"].startswith("%RETRY%") else "delay_waiting"
    if topic == "rmq_sys_wheel_timer":
        return "timer_waiting" if name else None
    if topic.startswith("%RETRY%"):
        return name if name == "long_topic_v2" else "retry"
    if name == "long_topic_v2":
        return None  # the first try of it, in a topic with a short name
    if properties.get("KEYS") == "tx-commit":
        return "final_committed"
    if "DELAY" in properties and not sys_flag & 12:
        return "delay_delivered"
    return name


def pick_records(store: Path) -> dict[str, dict[str, object]]:
    """The first record of each kind, in hex, with its place."""
    picked: dict[str, dict[str, object]] = {}
    for offset, record in records(store):
        topic, properties = topic_and_properties(record)
        name = kind(topic, properties, record)
        if name and name not in picked:
            picked[name] = {"log_offset": offset, "topic": topic, "hex": record.hex()}
    return picked


def consume_queue(store: Path, topic: str) -> dict[str, str]:
    """The used units of each queue of a topic, in hex."""
    queues = {}
    for folder in sorted((store / "consumequeue" / topic).iterdir()):
        data = next(iter(sorted(folder.iterdir()))).read_bytes()
        end = 0
        while data[end + 8 : end + 12] not in {b"", bytes(4)}:
            end += UNIT_SIZE
        queues[folder.name] = data[:end].hex()
    return queues


def index(store: Path, slot_count: int) -> dict[str, object]:
    """Header, used slots and entries of the index file."""
    (file,) = sorted((store / "index").iterdir())
    data = file.read_bytes()
    (entry_count,) = struct.unpack_from(">i", data, 36)
    slots = struct.unpack_from(f">{slot_count}i", data, INDEX_HEADER_SIZE)
    start = INDEX_HEADER_SIZE + 4 * slot_count
    entries = data[start : start + ENTRY_SIZE * entry_count]
    return {
        "file_name": file.name,
        "file_size": len(data),
        "slot_count": slot_count,
        "header": data[:INDEX_HEADER_SIZE].hex(),
        "used_slots": {str(number): entry for number, entry in enumerate(slots) if entry},
        "entries": [
            entries[at : at + ENTRY_SIZE].hex() for at in range(0, len(entries), ENTRY_SIZE)
        ],
    }


def timer(store: Path) -> dict[str, object]:
    """The timer's checkpoint, the used part of its log, and its used slots."""
    log = next(iter(sorted((store / "timerlog").iterdir()))).read_bytes()
    end = 0
    while log[end : end + 4] == b"\0\0\0\x34":
        end += 0x34
    wheel = (store / "timerwheel").read_bytes()
    used = {
        str(at // 32): wheel[at : at + 32].hex()
        for at in range(0, len(wheel), 32)
        if wheel[at : at + 8] not in {bytes(8), b"\xff" * 8}
    }
    return {
        "timercheck": (store / "config" / "timercheck").read_bytes()[:56].hex(),
        "timerlog": log[:end].hex(),
        "timerwheel_size": len(wheel),
        "timerwheel_used_slots": dict(list(used.items())[:16]),
    }


def tables(store: Path) -> dict[str, str]:
    """The files under config/ as text, byte for byte."""
    names = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset", "consumerFilter")
    texts = {}
    for name in (*(f"{name}.json" for name in names), "transactionMetrics"):
        file = store / "config" / name
        if file.exists():
            texts[name] = file.read_text(encoding="utf-8")
    return texts
