"""Topics: their names, attributes and files, and those that a broker makes for itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Topic
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.topics import (
    TopicConfig,
    TopicTable,
    merge_attributes,
    name_fault,
    parse_attributes,
)
from escrowmq.errors import UsageError


def made(settings: BrokerSettings) -> TopicTable:
    topics = TopicTable(settings)
    topics.create_system_topics(1)
    return topics


def test_the_topic_of_traces_is_made_when_asked_for_and_under_the_name_given() -> None:
    assert made(BrokerSettings()).get(Topic.TRACE) is None
    assert made(BrokerSettings(has_trace_topic=True)).get(Topic.TRACE) is not None
    named = made(BrokerSettings(has_trace_topic=True, trace_topic="audit"))
    found = named.get("audit")
    assert found is not None
    assert (found.write_queue_nums, found.perm) == (1, 6)
    assert named.get(Topic.TRACE) is None
    assert named.is_system("audit")


@given(st.text(max_size=140))
def test_name_without_fault_is_one_of_the_peers(name: str) -> None:
    is_fine = name_fault(name) is None
    alphabet = set("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    assert is_fine == (0 < len(name) <= 127 and set(name) <= alphabet)


@pytest.mark.parametrize("name", ["a\n", "\n", "a/b", "../x", "é", "a\x00"])
def test_name_that_is_no_file_name_is_faulty(name: str) -> None:
    assert name_fault(name) is not None


def test_attributes_are_parsed_and_merged() -> None:
    changes = parse_attributes(" +message.type=NORMAL , +reserve.time=5,")
    assert changes == {"+message.type": "NORMAL", "+reserve.time": "5"}
    merged = merge_attributes({}, changes, is_new=True)
    assert merged == {"message.type": "NORMAL", "reserve.time": "5"}
    assert merge_attributes(merged, {"-reserve.time": ""}, is_new=False) == {
        "message.type": "NORMAL"
    }
    assert parse_attributes("") == {}


@pytest.mark.parametrize(
    "text", ["message.type=NORMAL", "+x", "-x=1", "+x=1", "+message.type=none", "+", "-", "="]
)
def test_attributes_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_attributes(text)


@pytest.mark.parametrize(("changes", "is_new"), [({"-a": ""}, True), ({"-a": ""}, False)])
def test_attribute_that_is_not_there_is_not_taken_away(
    changes: dict[str, str], is_new: bool
) -> None:
    with pytest.raises(UsageError):
        merge_attributes({}, changes, is_new=is_new)


def test_fresh_broker_has_the_topics_of_the_peer() -> None:
    table = TopicTable(BrokerSettings())
    table.create_system_topics(5)
    for name, queues, perm in (
        (Topic.DEFAULT, 8, 7), (Topic.HALF, 1, 6), (Topic.SCHEDULE, 18, 6), ("broker-a", 1, 7),
        ("DefaultCluster", 16, 7), ("DefaultCluster_REPLY_TOPIC", 1, 6), (Topic.BENCHMARK, 1024, 6),
    ):  # fmt: skip
        config = table.get(name)
        assert config is not None
        assert (config.write_queue_nums, config.perm) == (queues, perm)
    assert table.get(Topic.TRACE) is None
    assert all(map(table.is_system, table.names()))
    assert not table.is_system("mine")


def test_topics_that_are_there_already_are_left_as_they_are() -> None:
    table = TopicTable(BrokerSettings())
    table.put(TopicConfig(topic_name=Topic.DEFAULT, write_queue_nums=3), 1)
    counter = table.version.counter
    assert table.get_or_create(Topic.DEFAULT, queues_count=9, now_ms=2).write_queue_nums == 3
    assert table.version.counter == counter


def test_every_change_is_counted_and_told() -> None:
    table = TopicTable(BrokerSettings())
    table.put(TopicConfig(topic_name="A"), 5)
    table.delete("A", 6)
    assert not table.delete("A", 7)
    assert (table.version.counter, table.version.timestamp) == (2, 6)
    assert table.unregistered == {"A"}
    assert table.is_changed


def test_forbidden_topics_are_saved() -> None:
    groups = GroupTable(BrokerSettings())
    groups.forbid("G", "T", is_readable=False, now_ms=1)
    again = GroupTable(BrokerSettings())
    again.load(groups.content_to_save())
    assert again.is_forbidden("G", "T")
    again.forbid("G", "T", is_readable=True, now_ms=2)
    assert again.forbidden == {}


def test_topics_are_not_created_without_end() -> None:
    topics = TopicTable(BrokerSettings(), count_max=30)
    topics.create_system_topics(0)

    def create(name: str) -> None:
        topics.create_from_template(
            name, template="TBW102", queues_count=1, is_unit=False, now_ms=0
        )

    for number in range(30 - len(topics.names())):
        create(f"T{number}")
    with pytest.raises(UsageError, match="have an operator create it"):
        create("one more")
    assert len(topics.names()) == 30
    topics.put(TopicConfig(topic_name="by an operator"), 0)
    assert len(topics.names()) == 31
