from __future__ import annotations

import random

from escrowmq.proxy.open_calls import OpenCallsLimit


class Connection:
    def __init__(self, room: OpenCallsLimit) -> None:
        self.room = room
        self.reason = ""

    def drop_input(self, reason: str) -> None:
        self.reason = reason
        self.room.remove_connection(self)


def test_the_largest_is_given_up() -> None:
    room = OpenCallsLimit(1_000)
    small, large, last = (Connection(room) for _ in range(3))
    room.set_size(small, 3)
    room.set_size(large, 600)
    room.set_size(last, 400)
    assert (room.size, room.given_up_count) == (403, 1)
    assert large.reason == (
        "the open calls of all strangers take more than 1000 bytes, and those of this connection "
        "600; end some, or prove who you are"
    )
    room.set_size(small, 2)
    room.set_size(last, 0)
    room.remove_connection(large)
    assert room.size == 2


def test_who_asks_for_too_much_alone_is_given_up() -> None:
    room = OpenCallsLimit(1_000)
    first, greedy = Connection(room), Connection(room)
    room.set_size(first, 900)
    room.set_size(greedy, 5_000)
    assert (first.reason, room.size) == ("", 900)
    assert greedy.reason


def test_the_sum_stays_in_its_bound_whatever_happens() -> None:
    chance = random.Random(5)
    room = OpenCallsLimit(50_000)
    connections = [Connection(room) for _ in range(100)]
    for _ in range(5_000):
        room.set_size(chance.choice(connections), chance.choice([0, 1, 700, 1_024, 9_000]))
        assert 0 <= room.size <= 50_000
    for connection in connections:
        room.remove_connection(connection)
    assert room.size == 0
