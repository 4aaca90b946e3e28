from __future__ import annotations

import datetime as dt
import re

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.unique_ids import UniqueIds


def test_ids_of_another_month_are_other_ids_at_the_same_count() -> None:
    made = set()
    for month in range(1, 13):
        ids = UniqueIds(host="10.1.2.3", process=1, mark=1)
        start = dt.datetime(2026, month, 5).astimezone()
        made |= {ids.make(int(start.timestamp() * 1000)) for _ in range(100)}
    assert len(made) == 1200


@given(st.integers(0, 4_000_000_000_000))
def test_ids_have_the_peers_form_and_never_come_twice(now_ms: int) -> None:
    ids = UniqueIds(host="10.1.2.3", process=0x12345, mark=0xABCDEF01)
    made = [ids.make(now_ms) for _ in range(300)]
    assert len(set(made)) == 300
    assert all(re.fullmatch(r"0A0102032345[0-9A-F]{20}", each) for each in made)


def test_ids_after_the_clock_was_set_back_are_other_ids_at_the_same_counts() -> None:
    ids = UniqueIds(host="10.1.2.3", process=1, mark=1)
    begun = int(dt.datetime(2026, 3, 5).astimezone().timestamp() * 1000)
    made = [ids.make(begun + at_ms) for _ in range(2) for at_ms in range(0x1_0000)]
    assert len(set(made)) == len(made)


def test_threads_whose_times_differ_a_little_change_no_mark() -> None:
    ids = UniqueIds(host="10.1.2.3", process=1, mark=1)
    begun = int(dt.datetime(2026, 3, 5).astimezone().timestamp() * 1000)
    made = [ids.make(begun + at_ms) for at_ms in (101, 1, 101, 0)]
    assert len({each[:20] for each in made[:3]}) == 1
    assert made[3][:20] != made[0][:20]


def test_an_id_tells_the_time_since_its_month_began() -> None:
    ids = UniqueIds(host="::ffff:1.2.3.4", process=1, mark=2)
    begun = dt.datetime(2024, 12, 1).astimezone()
    at_ms = int(begun.timestamp() * 1000)
    assert ids.make(at_ms)[20:28] == "00000000"
    assert ids.make(at_ms + 5)[20:28] == "00000005"
    assert ids.make(at_ms - 1)[20:28] == f"{30 * 86_400_000 - 1:08X}"
    year = dt.datetime(2025, 1, 1).astimezone()
    assert ids.make(int(year.timestamp() * 1000))[20:28] == "00000000"
