"""Topics, subscriptions, clients, offsets, locks and statistics, below the requests about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.message import Topic
from escrowmq.base.settings import BrokerSettings
from escrowmq.codec.bodies import SubscriptionBody
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.delivery.locks import LOCK_MS, QueueLocks
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.stats import SAMPLE_MS, Stats
from escrowmq.delivery.subscriptions import GroupTable
from escrowmq.delivery.topics import (
    TopicConfig,
    TopicTable,
    merge_attributes,
    name_fault,
    parse_attributes,
)
from escrowmq.errors import UsageError

# -- topics --------------------------------------------------------------------------------------


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
    assert table.ensure(Topic.DEFAULT, queues_count=9, now_ms=2).write_queue_nums == 3
    assert table.version.counter == counter


def test_every_change_is_counted_and_told() -> None:
    table = TopicTable(BrokerSettings())
    table.put(TopicConfig(topic_name="A"), 5)
    table.delete("A", 6)
    assert not table.delete("A", 7)
    assert (table.version.counter, table.version.timestamp) == (2, 6)
    assert table.unregistered == {"A"}
    assert table.is_changed


# -- groups --------------------------------------------------------------------------------------


def test_groups_of_the_broker_are_there_and_others_are_created_on_use() -> None:
    groups = GroupTable(BrokerSettings())
    groups.create_system_groups(1)
    transactions = groups.peek("CID_RMQ_SYS_TRANS")
    assert transactions is not None
    assert transactions.consume_broadcast_enable
    assert groups.peek("G") is None
    assert groups.get("G", 2) is groups.peek("G")
    assert groups.delete("G", 3)
    assert not groups.delete("G", 4)


@pytest.mark.parametrize("name", ["", "a b", "g" * 256])
def test_group_with_a_bad_name_is_not_created(name: str) -> None:
    assert GroupTable(BrokerSettings()).get(name, 1) is None


def test_forbidden_topics_are_saved() -> None:
    groups = GroupTable(BrokerSettings())
    groups.forbid("G", "T", is_readable=False, now_ms=1)
    again = GroupTable(BrokerSettings())
    again.load(groups.save())
    assert again.is_forbidden("G", "T")
    again.forbid("G", "T", is_readable=True, now_ms=2)
    assert again.forbidden == {}


# -- clients -------------------------------------------------------------------------------------


def channel(peer: int, seen_ms: int = 0) -> Channel:
    return Channel(peer, f"c{peer}", "JAVA", 479, f"10.0.0.{peer}:1", seen_ms)


def test_client_is_found_by_its_id_wherever_it_showed_itself() -> None:
    clients = Clients()
    clients.produce("PG", channel(1))
    clients.consume("CG", channel(2), [])
    for number in (1, 2):
        (found,) = clients.find_clients(f"c{number}")
        assert found.peer == number
    assert list(clients.find_clients("c3")) == []
    assert clients.find_consumer("CG", "c1") is None
    assert clients.find_consumer("none", "c2") is None


def test_lost_connection_leaves_all_its_groups() -> None:
    clients = Clients()
    for peer in (1, 2):
        clients.produce("PG", channel(peer))
        clients.consume("CG", channel(peer), [SubscriptionBody(topic="T")])
        clients.consume(f"G{peer}", channel(peer), [])
    assert {group.name for group in clients.lost(1)} == {"CG", "G1"}
    assert set(clients.consumers) == {"CG", "G2"}
    assert clients.lost(1) == []
    assert clients.groups_on("T") == ["CG"]


def test_silent_connection_is_one_without_any_heartbeat() -> None:
    clients = Clients()
    clients.produce("PG", channel(1, seen_ms=5))
    clients.consume("CG", channel(1, seen_ms=9), [])
    clients.produce("PG", channel(2, seen_ms=5))
    assert list(clients.silent_since(6)) == [2]


# -- offsets -------------------------------------------------------------------------------------

PLACES = st.tuples(st.sampled_from("GH"), st.sampled_from(["T", "%RETRY%G"]), st.integers(0, 2))


@given(st.lists(st.tuples(PLACES, st.integers(0, 99)), max_size=30))
def test_last_commit_counts_and_is_saved(commits: list[tuple[tuple[str, str, int], int]]) -> None:
    table, again = OffsetTable(), OffsetTable()
    for place, offset in commits:
        table.commit(*place, offset, 1)
    again.load(table.save())
    wanted = dict(commits)
    for found in (table, again):
        assert {place: found.get(*place) for place in wanted} == wanted
        assert found.get("none", "T", 0) == -1
        assert set(found.groups_of("T")) == {g for g, t, _ in wanted if t == "T"}
        assert set(found.topics_of("G")) == {t for g, t, _ in wanted if g == "G"}


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
            table.pulled(group, topic, 0, 6)
    table.forget_topic("T")
    table.forget_group("H")
    assert (table.get("G", "T", 0), table.get("H", "U", 0), table.get("G", "U", 0)) == (-1, -1, 5)
    assert table.pulled_offset("G", "T", 0) == -1


@pytest.mark.parametrize(
    "data", [None, b"", b"{}", b'{"offsetTable":{"T@G":{0:5}}}', b'{"offsetTable":null}']
)
def test_file_of_offsets_may_be_small(data: bytes | None) -> None:
    table = OffsetTable()
    table.load(data)
    assert table.get("G", "T", 0) in (5, -1)


# -- locks ---------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans(), st.integers(0, 70_000)),
    max_size=30,
)


@given(STEPS)
def test_queue_has_one_owner_at_a_time(steps: list[tuple[str, int, bool, int]]) -> None:
    locks, now_ms = QueueLocks(), 0
    model: dict[int, tuple[str, int]] = {}
    for client, queue_id, locks_it, span_ms in steps:
        now_ms += span_ms
        owner, until_ms = model.get(queue_id, ("", 0))
        if locks_it:
            is_free = owner in ("", client) or until_ms <= now_ms
            assert locks.lock("G", client, "T", queue_id, now_ms) == is_free
            if is_free:
                model[queue_id] = (client, now_ms + LOCK_MS)
        else:
            locks.unlock("G", client, "T", queue_id)
            if owner == client:
                del model[queue_id]
        assert locks.is_orderly("G", now_ms) == any(u > now_ms for _, u in model.values())


def test_client_without_a_name_unlocks_nothing() -> None:
    locks = QueueLocks()
    locks.lock("G", "a", "T", 0, 0)
    locks.unlock("G", "", "T", 1)
    locks.unlock("none", "", "T", 1)
    assert not locks.lock("G", "b", "T", 0, 1)


# -- statistics ----------------------------------------------------------------------------------


def test_meter_tells_sum_and_rate_of_its_spans() -> None:
    stats = Stats()
    stats.put("T", 0, 0)
    for number in range(400):
        stats.wake(number * SAMPLE_MS)
        stats.put("T", 10, 100)
    meter = stats.meter("TOPIC_PUT_NUMS", "T")
    assert meter is not None
    assert meter.total == 4_000
    minute = meter.minute()
    assert (minute.sum, minute.tps, minute.avgpt) == (60, 1.0, 10.0)
    assert meter.hour().sum == 3_600
    assert meter.tps(1) == 1.0
    assert stats.meter("TOPIC_PUT_SIZE", "T") is not None
    assert stats.meter("TOPIC_PUT_NUMS", "U") is None


def test_topic_that_is_gone_leaves_no_meters() -> None:
    stats = Stats()
    stats.put("T", 1, 1)
    stats.get("G", "T", 1, 1)
    stats.back("G", "T")
    stats.get("G", "U", 1, 1)
    stats.forget("T")
    assert stats.meter("TOPIC_PUT_NUMS", "T") is None
    assert stats.meter("GROUP_GET_NUMS", "T@G") is None
    assert stats.meter("GROUP_GET_NUMS", "U@G") is not None
    stats.put("T", 1, 1)
    found = stats.meter("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.total == 1


def test_locks_are_bounded_and_those_that_are_over_make_room() -> None:
    locks = QueueLocks(count_max=2)
    assert locks.lock("G", "a", "T", 0, 0)
    assert locks.lock("H", "a", "T", 0, 1)
    assert not locks.lock("G", "a", "T", 1, 1)
    assert locks.lock("G", "a", "T", 0, 1), "what is held can be renewed"
    locks.unlock("H", "a", "T", 0)
    assert locks.lock("G", "a", "T", 1, 2)
    assert not locks.lock("G", "a", "T", 2, LOCK_MS)
    assert locks.lock("K", "b", "T", 0, LOCK_MS + 1_000)
    assert not locks.is_orderly("G", LOCK_MS + 1_000)


def test_topics_are_not_created_without_end() -> None:
    topics = TopicTable(BrokerSettings(), count_max=30)
    topics.create_system_topics(0)

    def create(name: str) -> None:
        topics.create_from(name, template="TBW102", queues_count=1, is_unit=False, now_ms=0)

    for number in range(30 - len(topics.names())):
        create(f"T{number}")
    with pytest.raises(UsageError, match="let an operator create it"):
        create("one more")
    assert len(topics.names()) == 30
    topics.put(TopicConfig(topic_name="by an operator"), 0)
    assert len(topics.names()) == 31
