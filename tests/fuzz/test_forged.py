"""Messages that forge records of others in their bodies and properties, and what a start makes of
them: others' queues are what they were, whatever one account writes."""

import random
from zlib import crc32

import pytest

from escrowmq.codec.record import decode_record

from .forged import THEIRS, Forger, main, play
from .frames import SEED, TALLY, tries


@pytest.mark.parametrize("seed", range(150))
def test_a_forged_record_changes_nothing_of_others(seed: int) -> None:
    play(seed)


def test_the_forger_forges_what_would_pass_for_a_record() -> None:
    chance = random.Random(1)
    found = 0
    for _ in range(200):
        record = Forger(chance).record(4711, 1_000)
        size = int.from_bytes(record[:4], "big")
        if size == len(record):
            stored = decode_record(record, check_crc=True)
            found += stored.log_offset == 4711 and stored.topic == THEIRS
    assert found > 30
    assert crc32(b"FORGED") & 0x7FFFFFFF == int.from_bytes(record[8:12], "big")


def test_forged_records_for_a_while() -> None:
    for number in tries(30):
        play(SEED * 1_000_000 + number)
        TALLY["stores with forged records"] += 1


def test_many_are_tried_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stores", "20", "--workers", "1", "--first", "7"]) == 0
    assert "20 stores with forged records, 0 broken" in capsys.readouterr().out
