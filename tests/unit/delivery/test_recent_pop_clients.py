from __future__ import annotations

from escrowmq.codec.client_bodies import SubscriptionBody
from escrowmq.delivery.clients import Channel
from escrowmq.delivery.recent_pop_clients import TOPIC_IDLE_MS, RecentPopClients

IDLE_MS = 120_000


def channel(peer: int, seen_ms: int = 0) -> Channel:
    return Channel(peer, f"c{peer}", "JAVA", 479, f"h:{peer}", seen_ms)


def pop(poppers: RecentPopClients, group: str, peer: int, *topics: str, at_ms: int = 0) -> None:
    found = [SubscriptionBody(topic=topic, sub_version=at_ms) for topic in topics]
    poppers.note_pop(group, channel(peer, at_ms), found)


def members(poppers: RecentPopClients, group: str) -> tuple[list[int], list[str]] | None:
    found = poppers.find(group)
    return None if found is None else (sorted(found.channels), sorted(found.subscriptions))


def test_topics_and_connections_that_pop_no_more_are_forgotten() -> None:
    poppers = RecentPopClients()
    pop(poppers, "G", 1, "T")
    pop(poppers, "G", 2, "T", "U", at_ms=IDLE_MS)
    poppers.forget_idle(IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([2], ["T", "U"])
    pop(poppers, "G", 2, "U", at_ms=TOPIC_IDLE_MS)
    poppers.forget_idle(TOPIC_IDLE_MS + IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([], ["U"])
    assert poppers.groups_on("U") == ["G"]
    poppers.forget_idle(2 * TOPIC_IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") is None
    assert poppers.groups_on("U") == []


def test_idle_group_goes_with_connections_that_are_not_idle_by_their_own_measure() -> None:
    poppers = RecentPopClients()
    pop(poppers, "G", 1, "T")
    poppers.forget_idle(TOPIC_IDLE_MS + 1, channel_idle_ms=10 * TOPIC_IDLE_MS)
    assert members(poppers, "G") is None
    poppers.remove_connection(1)


def test_a_clock_that_is_set_forward_makes_nobody_idle() -> None:
    poppers = RecentPopClients()
    pop(poppers, "G", 1, "T")
    leap_ms = 2 * TOPIC_IDLE_MS
    poppers.clock_leapt(leap_ms)
    poppers.forget_idle(leap_ms + IDLE_MS, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([1], ["T"])
    poppers.forget_idle(leap_ms + IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([], ["T"])


def test_what_finds_no_room_is_not_noted() -> None:
    poppers = RecentPopClients(topics_max=2, channels_max=2)
    pop(poppers, "G", 1, "T", "U")
    pop(poppers, "H", 2, "T")
    assert members(poppers, "H") is None
    pop(poppers, "G", 2, "T")
    pop(poppers, "G", 3, "T")
    assert members(poppers, "G") == ([1, 2], ["T", "U"])
    poppers.remove_connection(1)
    pop(poppers, "G", 3, "T")
    assert members(poppers, "G") == ([2, 3], ["T", "U"])
    poppers.forget_idle(TOPIC_IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    pop(poppers, "H", 2, "V", "W")
    assert members(poppers, "H") == ([2], ["V", "W"])


def test_what_takes_too_much_memory_is_not_noted() -> None:
    """An expression of many short tags takes a lot more than its letters."""

    def tagged(topic: str, count: int) -> SubscriptionBody:
        tags = [f"{n:02}" for n in range(count)]
        return SubscriptionBody(topic=topic, sub_string="||".join(tags), tags_set=tags)

    poppers = RecentPopClients(size_max=10_000)
    poppers.note_pop("G", channel(1), [tagged("T", 60), tagged("U", 60), tagged("V", 60)])
    assert members(poppers, "G") == ([1], ["T", "U"])
    poppers.note_pop("H", channel(1), [tagged("T", 60)])
    assert members(poppers, "H") is None
    poppers.note_pop("G", channel(1), [tagged("T", 1), tagged("V", 60)])
    assert members(poppers, "G") == ([1], ["T", "U", "V"]), "the first one takes less now"
    poppers.forget_idle(TOPIC_IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    poppers.note_pop("H", channel(1), [tagged("T", 60), tagged("U", 60)])
    assert members(poppers, "H") == ([1], ["T", "U"])


def test_what_was_noted_a_moment_ago_is_fresh() -> None:
    poppers = RecentPopClients()
    assert not poppers.was_just_noted("G", 1, "T", "*", 0)
    found = SubscriptionBody(topic="T", sub_string="*", sub_version=0)
    poppers.note_pop("G", channel(1), [found])
    assert poppers.was_just_noted("G", 1, "T", "*", 999)
    for other in (("G", 2, "T", "*", 0), ("G", 1, "U", "*", 0), ("G", 1, "T", "a", 0)):
        assert not poppers.was_just_noted(*other)
    assert not poppers.was_just_noted("G", 1, "T", "*", 1_000)


def test_nothing_is_forgotten_before_its_time_and_nothing_is_kept_after_it() -> None:
    poppers = RecentPopClients()
    pop(poppers, "G", 1, "T")
    poppers.forget_idle(IDLE_MS, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([1], ["T"])
    poppers.forget_idle(IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([], ["T"])
    assert poppers._by_peer == {}
    poppers.forget_idle(TOPIC_IDLE_MS, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([], ["T"])
    poppers.forget_idle(TOPIC_IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") is None


def test_a_connection_that_pops_for_two_groups_is_known_for_the_other_still() -> None:
    poppers = RecentPopClients()
    pop(poppers, "G", 1, "T")
    pop(poppers, "H", 1, "T", at_ms=IDLE_MS)
    poppers.forget_idle(IDLE_MS + 1, channel_idle_ms=IDLE_MS)
    assert (members(poppers, "G"), members(poppers, "H")) == (([], ["T"]), ([1], ["T"]))
    poppers.remove_connection(1)
    assert members(poppers, "H") == ([], ["T"])


def test_who_pops_again_takes_no_more_room() -> None:
    poppers = RecentPopClients(channels_max=2)
    for at_ms in range(5):
        pop(poppers, "G", 1, "T", at_ms=at_ms)
    pop(poppers, "G", 2, "T")
    assert members(poppers, "G") == ([1, 2], ["T"])
    poppers.forget_idle(IDLE_MS + 4, channel_idle_ms=IDLE_MS)
    assert members(poppers, "G") == ([1], ["T"]), "it was seen last at 4"
