from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.fixed_limits import (
    CONNECTION_GROUPS_MAX,
    CONNECTION_SUBSCRIPTIONS_MAX,
    CONNECTION_SUBSCRIPTIONS_SIZE_MAX,
)
from escrowmq.codec.client_bodies import SubscriptionBody
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.errors import UsageError


def channel(peer: int, seen_ms: int = 0) -> Channel:
    return Channel(peer, f"c{peer}", "JAVA", 479, f"10.0.0.{peer}:1", seen_ms)


def subscriptions(*topics: str) -> list[SubscriptionBody]:
    return [SubscriptionBody(topic=topic) for topic in topics]


def test_groups_of_one_connection_are_bounded() -> None:
    clients = Clients()
    names = {f"P{number}" for number in range(CONNECTION_GROUPS_MAX - 1)}
    clients.check_limits(1, producers=names, consumers={"C": 1})
    for name in names:
        clients.add_producer(name, channel(1))
    clients.add_consumer("C", channel(1), subscriptions("T"))
    clients.check_limits(1, producers=names, consumers={"C": 5})  # the same again
    clients.check_limits(2, producers={"other"}, consumers={})  # another connection
    with pytest.raises(UsageError, match=f"{CONNECTION_GROUPS_MAX} are allowed; distribute them"):
        clients.check_limits(1, producers={"one more"}, consumers={})
    clients.remove_producer("P0", 1)
    clients.check_limits(1, producers={"one more"}, consumers={})


def test_subscriptions_of_one_connection_are_bounded() -> None:
    clients = Clients()
    topics = [f"T{number}" for number in range(CONNECTION_SUBSCRIPTIONS_MAX)]
    clients.add_consumer("C", channel(1), subscriptions(*topics))
    clients.check_limits(1, producers=set(), consumers={"C": len(topics)})
    with pytest.raises(UsageError, match=f"{CONNECTION_SUBSCRIPTIONS_MAX} are allowed"):
        clients.check_limits(1, producers=set(), consumers={"D": 1})
    clients.check_limits(1, producers=set(), consumers={"C": 10, "D": 1})


def test_a_group_whose_topics_a_heartbeat_does_not_name_keeps_them_and_counts_on() -> None:
    """It counted for nothing then: one connection could have a thousand times what is allowed."""
    clients = Clients()
    topics = [f"T{number}" for number in range(CONNECTION_SUBSCRIPTIONS_MAX)]
    clients.add_consumer("C", channel(1), subscriptions(*topics))
    sizes = {"C": 0, "D": 1}
    with pytest.raises(UsageError, match=f"{CONNECTION_SUBSCRIPTIONS_MAX} are allowed"):
        clients.check_limits(1, producers=set(), consumers={"C": 0, "D": 1}, sizes=sizes)
    clients.check_limits(1, producers=set(), consumers={"C": 0, "D": 0})


def test_subscriptions_of_a_member_that_left_are_counted_for_another() -> None:
    """They were counted for nobody, as long as anybody was a member."""
    clients, count = Clients(), CONNECTION_SUBSCRIPTIONS_MAX
    topics = subscriptions(*(f"T{number}" for number in range(count)))
    for name in "CDE":
        clients.add_consumer(name, channel(2), [])
    clients.add_consumer("C", channel(1), topics)
    clients.remove_consumer("C", 1)
    assert len(clients.consumers["C"].subscriptions) == count
    with pytest.raises(UsageError, match=f"{CONNECTION_SUBSCRIPTIONS_MAX} are allowed"):
        clients.check_limits(2, producers=set(), consumers={"D": 1})
    clients.add_consumer("D", channel(1), topics)
    clients.remove_consumer("D", 1)
    assert not clients.consumers["D"].subscriptions, "there is no room for them"
    clients.remove_consumer("C", 2)
    clients.add_consumer("E", channel(1), topics)
    clients.remove_connection(1)
    assert len(clients.consumers["E"].subscriptions) == count
    clients.remove_connection(2)
    assert not clients.consumers


def test_members_that_subscribe_alike_keep_their_subscriptions_when_one_leaves() -> None:
    clients, half = Clients(), CONNECTION_SUBSCRIPTIONS_MAX // 2
    topics = subscriptions(*(f"T{number}" for number in range(half)))
    for peer in (1, 2, 3):
        for name in "CD":
            clients.add_consumer(name, channel(peer), topics)
    for peer in (3, 1):
        clients.remove_connection(peer)
        assert [len(clients.consumers[name].subscriptions) for name in "CD"] == [half, half]


def test_memory_of_a_connections_subscriptions_is_bounded() -> None:
    tags = [f"{number:04}" for number in range(3_000)]
    (large,) = subscriptions("T")
    large.tags_set, large.code_set = tags, list(range(3_000))
    clients, size = Clients(), large.memory_size
    assert size > 100 * 3_000, "a tag and its code take much more than their letters"
    count = CONNECTION_SUBSCRIPTIONS_SIZE_MAX // size
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count]
    assert len(letters) == count
    topics = [msgspec.structs.replace(large, topic=letter) for letter in letters]
    clients.add_consumer("C", channel(1), topics)
    clients.check_limits(1, producers=set(), consumers={}, sizes={"C": count * size})
    with pytest.raises(UsageError, match=f"{CONNECTION_SUBSCRIPTIONS_SIZE_MAX} are allowed"):
        clients.check_limits(1, producers=set(), consumers={}, sizes={"D": size})
    clients.check_limits(1, producers=set(), consumers={}, sizes={"C": size, "D": size})
    clients.check_limits(2, producers=set(), consumers={}, sizes={"D": size})
    clients.remove_consumer("C", 1)
    clients.check_limits(1, producers=set(), consumers={}, sizes={"D": size})


def test_newer_subscriptions_count_where_older_ones_do_not_replace_them() -> None:
    (new,), (old,), clients = subscriptions("T"), subscriptions("T"), Clients()
    new.tags_set, new.sub_version, old.sub_version = ["tag"] * 100, 2, 1
    group, _ = clients.add_consumer("C", channel(1), [new])
    clients.add_consumer("C", channel(1), [old])
    assert group.subscriptions["T"] is new
    assert clients.memory_with("C", [old]) == new.memory_size > old.memory_size
    assert clients.memory_with("other", [old]) == old.memory_size
    count = CONNECTION_SUBSCRIPTIONS_SIZE_MAX - new.memory_size
    clients.check_limits(1, producers=set(), consumers={"D": 1}, sizes={"D": count})
    with pytest.raises(UsageError, match=f"{CONNECTION_SUBSCRIPTIONS_SIZE_MAX} are allowed"):
        clients.check_limits(1, producers=set(), consumers={"D": 1}, sizes={"D": count + 1})


def test_memberships_of_all_connections_are_bounded() -> None:
    clients = Clients(memberships_max=3)
    clients.add_producer("P", channel(1))
    clients.add_producer("P", channel(2))
    clients.add_consumer("C", channel(2), [])
    with pytest.raises(UsageError, match="3 are allowed"):
        clients.check_limits(3, producers={"P"}, consumers={})
    clients.check_limits(2, producers={"P"}, consumers={"C": 1})
    clients.remove_connection(1)
    clients.check_limits(3, producers={"P"}, consumers={})


def test_connections_that_come_and_go_leave_nothing_behind() -> None:
    clients = Clients(memberships_max=4)
    for peer in range(1, 100):
        clients.check_limits(peer, producers={f"P{peer}"}, consumers={f"C{peer}": 1})
        clients.add_producer(f"P{peer}", channel(peer))
        clients.add_producer(f"P{peer}", channel(peer))
        clients.add_consumer(f"C{peer}", channel(peer), subscriptions("T"))
        clients.add_consumer(f"C{peer}", channel(peer), subscriptions("T"))
        if peer % 2:
            clients.remove_producer(f"P{peer}", peer)
            clients.remove_producer(f"P{peer}", peer)
            clients.remove_consumer(f"C{peer}", peer)
            clients.remove_consumer(f"C{peer}", peer)
        else:
            assert [group.name for group in clients.remove_connection(peer)] == [f"C{peer}"]
        assert clients.remove_connection(peer) == []
    assert (clients.producers, clients.consumers) == ({}, {})
    assert clients.client_id(1) is None


def test_client_id_of_a_connection_is_found_by_either_kind_of_group() -> None:
    clients = Clients()
    clients.add_producer("P", channel(1))
    clients.add_consumer("C", channel(2), [])
    assert [clients.client_id(peer) for peer in (1, 2, 3)] == ["c1", "c2", None]


def test_newest_heartbeat_of_a_producers_connection_is_known_until_it_leaves() -> None:
    clients = Clients()
    assert clients.last_heartbeat_ms(1) == -1
    for name, seen_ms in (("P", 5), ("Q", 9)):
        clients.add_producer(name, msgspec.structs.replace(channel(1), seen_ms=seen_ms))
    assert clients.last_heartbeat_ms(1) == 9
    clients.remove_connection(1)
    assert clients.last_heartbeat_ms(1) == -1


def test_client_is_found_by_its_id_wherever_it_showed_itself() -> None:
    clients = Clients()
    clients.add_producer("PG", channel(1))
    clients.add_consumer("CG", channel(2), [])
    for number in (1, 2):
        assert clients.find_connections(f"c{number}") == [number]
    assert clients.find_connections("c3") == []
    assert clients.find_consumer("CG", "c1") is None
    assert clients.find_consumer("none", "c2") is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["producer", "consumer", "leave", "lose"]),
            st.integers(1, 3),
            st.sampled_from("GH"),
            st.integers(1, 2),
        ),
        max_size=30,
    )
)
def test_connections_are_found_by_the_ids_that_they_have_now(
    steps: list[tuple[str, int, str, int]],
) -> None:
    clients = Clients()
    for what, peer, group, number in steps:
        shown = msgspec.structs.replace(channel(peer), client_id=f"c{number}")
        if what == "producer":
            clients.add_producer(group, shown)
        elif what == "consumer":
            clients.add_consumer(group, shown, [])
        elif what == "leave":
            clients.remove_producer(group, peer)
            clients.remove_consumer(group, peer)
        else:
            clients.remove_connection(peer)
    held = [*clients.producers.values(), *(g.channels for g in clients.consumers.values())]
    for client_id in ("c1", "c2"):
        expected = {
            peer for each in held for peer, one in each.items() if one.client_id == client_id
        }
        found = clients.find_connections(client_id)
        assert len(found) == len(expected)
        assert set(found) == expected


def test_lost_connection_leaves_all_its_groups() -> None:
    clients = Clients()
    for peer in (1, 2):
        clients.add_producer("PG", channel(peer))
        clients.add_consumer("CG", channel(peer), [SubscriptionBody(topic="T")])
        clients.add_consumer(f"G{peer}", channel(peer), [])
    assert {group.name for group in clients.remove_connection(1)} == {"CG", "G1"}
    assert set(clients.consumers) == {"CG", "G2"}
    assert clients.remove_connection(1) == []
    assert clients.groups_on("T") == ["CG"]


def test_a_member_that_no_heartbeat_names_leaves_whatever_else_its_connection_has() -> None:
    clients = Clients()
    clients.add_producer("PG", channel(1, seen_ms=5))
    clients.add_producer("OTHER", channel(1, seen_ms=9))
    clients.add_consumer("CG", channel(1, seen_ms=9), [])
    clients.add_consumer("LEFT", channel(1, seen_ms=5), [])
    clients.add_consumer("CG", channel(2, seen_ms=5), [])
    peers, groups = clients.expire(6)
    assert peers == {1, 2}
    assert {group.name: list(group.channels) for group in groups} == {"CG": [1], "LEFT": []}
    assert set(clients.producers) == {"OTHER"}
    assert set(clients.consumers) == {"CG"}
    assert (clients.client_id(1), clients.client_id(2)) == ("c1", None)
    assert clients.expire(6) == (set(), [])


def test_a_heartbeat_keeps_the_topics_that_a_producer_publishes_in_each_group() -> None:
    clients = Clients()
    both = channel(1)
    clients.add_producer("P", both)
    clients.add_producer("Q", both)
    clients.note_published("P", 1, "paid")
    again = channel(1, seen_ms=30_000)
    assert not clients.add_producer("P", again)
    assert not clients.add_producer("Q", again)
    assert clients.producers["P"][1].published == {"paid"}
    assert clients.producers["Q"][1].published == set()
    assert clients.last_heartbeat_ms(1) == 30_000
    clients.remove_producer("P", 1)
    assert clients.add_producer("P", again)
    assert clients.producers["P"][1].published == set()
