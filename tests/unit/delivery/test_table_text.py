"""Tables that are written out of kept pieces."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.codec import fastjson
from escrowmq.delivery.groups import GroupConfig, GroupTable
from escrowmq.delivery.topics import TopicConfig, TopicTable

NAMES = st.sampled_from(["a", "b", "c-1", 'q"uote', "line\nbreak", "ß"])
CHANGES = st.lists(st.tuples(NAMES, st.sampled_from(["put", "delete", "save"]), st.integers(0, 9)))


def at_once(file: msgspec.Struct) -> bytes:
    return msgspec.json.format(fastjson.encode(file), indent=2)


@given(CHANGES)
def test_topics_are_written_in_pieces_as_they_would_be_at_once(
    changes: list[tuple[str, str, int]],
) -> None:
    table = TopicTable(BrokerSettings())
    for name, change, number in changes:
        if change == "put":
            attributes = {"a\n": "{}", "b": str(number)} if number > 5 else {}
            table.put(
                TopicConfig(topic_name=name, perm=number, attributes=attributes), now_ms=number
            )
        elif change == "delete":
            table.delete(name, now_ms=number)
        assert table.content_to_save() == at_once(table.file())
    again = TopicTable(BrokerSettings())
    again.load(table.content_to_save())
    assert again.content_to_save() == table.content_to_save()


@given(CHANGES)
def test_groups_are_written_in_pieces_as_they_would_be_at_once(
    changes: list[tuple[str, str, int]],
) -> None:
    table = GroupTable(BrokerSettings())
    for name, change, number in changes:
        if change == "put":
            table.put(GroupConfig(group_name=name, retry_queue_nums=number), now_ms=number)
        elif change == "delete":
            table.delete(name, now_ms=number)
        else:
            table.forbid(name, "T", is_readable=number > 4, now_ms=number)
        assert table.content_to_save() == at_once(table.file())
    again = GroupTable(BrokerSettings())
    again.load(table.content_to_save())
    assert again.content_to_save() == table.content_to_save()


def test_what_a_first_send_changes_of_its_template_is_written() -> None:
    table = TopicTable(BrokerSettings(creates_topics=False))
    table.put(TopicConfig(topic_name="TBW102", perm=7), 1)
    table.content_to_save()
    table.create_from_template("new", template="TBW102", queues_count=4, is_unit=False, now_ms=2)
    assert table.content_to_save() == at_once(table.file())


def test_a_change_of_one_encodes_one() -> None:
    table = TopicTable(BrokerSettings())
    for number in range(50):
        table.put(TopicConfig(topic_name=f"t{number}"), 1)
    before = table.content_to_save()
    unseen = table.get("t7")
    assert unseen is not None
    unseen.perm = 0  # behind the table's back: would be seen if it were encoded again
    table.put(TopicConfig(topic_name="t8"), 1)
    assert table.content_to_save().split(b"\n")[5:] == before.split(b"\n")[5:]
    table.put(unseen, 2)
    assert table.content_to_save() == at_once(table.file())
