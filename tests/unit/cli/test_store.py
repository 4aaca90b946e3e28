"""`escrowmq store check` and `escrowmq store dump` on real folders."""

import argparse
import json
from pathlib import Path

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.human_format import LAST_MS
from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.cli import store as cli
from escrowmq.codec.record_layout import BORN_MS_AT
from escrowmq.delivery.topics import TopicTable
from escrowmq.net.disk import FileDisk
from escrowmq.store.store import Store

SETTINGS = StoreSettings(
    log_segment_size=65_536,
    queue_segment_size=2_000,
    index_slots_count=64,
    index_entries_max=500,
    reserve_size=4_096,
)
STORED_MS_AT = BORN_MS_AT + 16
"""After the time when the message was born, and its sender's address."""

INDEX = ["--index-slots", "64", "--index-entries", "500"]


def message(number: int, *, topic: str = "orders", queue_id: int = 0) -> Message:
    properties = {"UNIQ_KEY": f"U{number:05d}", "KEYS": f"k{number} all"}
    body = b"body %05d" % number
    return Message(topic=topic, queue_id=queue_id, body=body, properties=properties)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disk = FileDisk(str(tmp_path))
    store = Store(disk, SETTINGS)
    store.open(1_000)
    for number in range(200):
        store.put(message(number, queue_id=number % 2), 1_000 + number)
    store.put(message(0, topic="paid"), 1_300)
    store.close(2_000)
    topics = TopicTable(BrokerSettings())
    for name in ("orders", "paid"):
        topics.get_or_create(name, now_ms=2_000)
    disk.replace("config/topics.json", topics.content_to_save())
    disk.close()
    return tmp_path


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_options(parser)
    return cli.run(parser.parse_args(words))


def test_check_of_a_sound_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert run("check", str(folder), *INDEX) == 0
    assert "201 records; 3 queues, 201 units; 603 index entries\nsound" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_check_of_a_store_whose_log_lies_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "commitlog").rename(folder.parent / "elsewhere")
    assert run("check", str(folder), *INDEX) == 2
    assert "commitlog has no file, but queues.json knows 2 topics" in capsys.readouterr().err
    assert run("check", str(folder), *INDEX, "--commitlog", str(folder.parent / "elsewhere")) == 0
    assert "sound" in capsys.readouterr().out


def test_check_of_a_damaged_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    assert run("check", str(folder), "--json", *INDEX) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["is_sound"]
    assert found["findings"][0]["where"] == "commitlog/00000000000000000000"


def test_damaged_queue_comes_with_advice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "consumequeue" / "orders" / "0" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[46] ^= 1
    path.write_bytes(data)
    assert run("check", str(folder), *INDEX) == 1
    out = capsys.readouterr().out
    assert "DAMAGE consumequeue/orders/0: 1 units lead to other places, from 2 on" in out
    assert "a start repairs queues and index from it" in out


def test_what_is_no_store_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("check", "dump"):
        assert run(verb, str(tmp_path)) == 2
        assert run(verb, str(tmp_path / "none")) == 2
        assert f"escrowmq store {verb}:" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_dump_of_the_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dump", str(folder), "--limit", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["orders/0@0", "orders/1@0", "orders/0@1"]
    assert "keys=k0 all 10 bytes b'body 00000'" in lines[0]
    assert run("dump", str(folder), "--topic", "paid", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["body"]) == ("paid", "body 00000")
    assert run("dump", str(folder), "--from", "140", "--limit", "1") == 0
    assert " orders/0@1 " in capsys.readouterr().out


def test_dump_of_a_queue(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dump", str(folder), "--topic", "orders", "--queue", "1", "--from", "98"]
    assert run(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["orders/1@98", "orders/1@99"]
    assert run("dump", str(folder), "--queue", "1") == 2


def test_dump_passes_over_damage_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    for words in ([], ["--topic", "orders", "--queue", "0"]):
        assert run("dump", str(folder), *words, "--limit", "2") == 1
        found = capsys.readouterr()
        assert "log offset 0: cannot be read" in found.err
        assert len(found.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("stored_ms", "shown"),
    [(LAST_MS + 1, f"{LAST_MS + 1} ms"), (-(1 << 63), f"{-(1 << 63)} ms")],
)
def test_dump_shows_an_impossible_time_as_a_number(
    folder: Path, capsys: pytest.CaptureFixture[str], stored_ms: int, shown: str
) -> None:
    """It ended in a traceback, and no record after it was shown."""
    path = folder / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[STORED_MS_AT : STORED_MS_AT + 8] = stored_ms.to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    assert run("dump", str(folder), "--limit", "2") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert f" orders/0@0 {shown} flags=" in first
    assert " 1970-01-01T00:00:01.001Z " in second
