from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec import fastjson
from escrowmq.delivery.offsets import OffsetTable

PLACES = st.tuples(st.sampled_from("GH"), st.sampled_from(["T", "%RETRY%G"]), st.integers(0, 2))


@given(st.lists(st.tuples(PLACES, st.integers(0, 99)), max_size=30))
def test_last_commit_counts_and_is_saved(commits: list[tuple[tuple[str, str, int], int]]) -> None:
    table, again = OffsetTable(), OffsetTable()
    for place, offset in commits:
        table.commit(*place, offset, 1)
    again.load(table.content_to_save(log_end=7))
    assert again.saved_log_end == 7
    wanted = dict(commits)
    for found in (table, again):
        assert {place: found.get(*place) for place in wanted} == wanted
        assert found.get("none", "T", 0) == -1
        assert set(found.groups_of("T")) == {g for g, t, _ in wanted if t == "T"}
        assert set(found.topics_of("G")) == {t for g, t, _ in wanted if g == "G"}


@given(st.data())
def test_file_has_the_present_offsets_after_any_changes(data: st.DataObject) -> None:
    table = OffsetTable()
    for _ in range(data.draw(st.integers(0, 12))):
        match data.draw(st.sampled_from(["commit", "topic", "group", "replace", "save"])):
            case "commit":
                table.commit(*data.draw(PLACES), data.draw(st.integers(0, 99)), 1)
            case "topic":
                table.forget_topics({"T"})
            case "group":
                table.forget_group("G")
            case "replace":
                table.replace_with(b'{"offsetTable":{"T@G":{"10":5,"9":4},"\xc3\xa4\\"@G":{}}}')
            case _:
                table.content_to_save(log_end=3)
    members = msgspec.json.decode(table.encode()) | {"escrowLogEnd": 7}
    expected = msgspec.json.format(fastjson.encode(members), indent=2)
    assert table.content_to_save(log_end=7) == expected


def test_reset_is_taken_once() -> None:
    table = OffsetTable()
    table.reset("G", "T", 0, 5, 1)
    assert table.has_reset("G", "T", 0)
    assert not table.has_reset("G", "T", 1)
    assert (table.take_reset("G", "T", 1), table.take_reset("G", "T", 0)) == (None, 5)
    assert table.take_reset("G", "T", 0) is None
    assert table.get("G", "T", 0) == 5


def test_topic_and_group_that_are_gone_leave_nothing() -> None:
    table = OffsetTable()
    for group in ("G", "H"):
        for topic in ("T", "U"):
            table.commit(group, topic, 0, 5, 1)
            table.note_pulled(group, topic, 0, 6)
    before = table.changes_count
    table.forget_topics({"T"})
    table.forget_group("H")
    assert table.changes_count > before, "slaves fetch them again"
    assert (table.get("G", "T", 0), table.get("H", "U", 0), table.get("G", "U", 0)) == (-1, -1, 5)
    assert table.pulled_offset("G", "T", 0) == -1


@pytest.mark.parametrize(
    "data", [None, b"", b"{}", b'{"offsetTable":{"T@G":{0:5}}}', b'{"offsetTable":null}']
)
def test_file_of_offsets_may_be_small(data: bytes | None) -> None:
    table = OffsetTable()
    table.load(data)
    assert table.get("G", "T", 0) in (5, -1)
