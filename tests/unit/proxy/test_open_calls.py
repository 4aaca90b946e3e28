from __future__ import annotations

import random

from escrowmq.proxy.open_calls import OpenCalls


class Connection:
    def __init__(self, room: OpenCalls) -> None:
        self.room = room
        self.reason = ""

    def give_up(self, reason: str) -> None:
        self.reason = reason
        self.room.free(self)


def test_the_largest_is_given_up() -> None:
    room = OpenCalls(1_000)
    small, large, last = (Connection(room) for _ in range(3))
    room.hold(small, 3)
    room.hold(large, 600)
    room.hold(last, 400)
    assert (room.size, room.given_up_count) == (403, 1)
    assert large.reason == (
        "the open calls of all strangers take more than 1000 bytes, and those of this connection "
        "600; end some, or prove who you are"
    )
    room.hold(small, 2)
    room.hold(last, 0)
    room.free(large)
    assert room.size == 2


def test_who_asks_for_too_much_alone_is_given_up() -> None:
    room = OpenCalls(1_000)
    first, greedy = Connection(room), Connection(room)
    room.hold(first, 900)
    room.hold(greedy, 5_000)
    assert (first.reason, room.size) == ("", 900)
    assert greedy.reason


def test_the_sum_stays_in_its_bound_whatever_happens() -> None:
    chance = random.Random(5)
    room = OpenCalls(50_000)
    connections = [Connection(room) for _ in range(100)]
    for _ in range(5_000):
        room.hold(chance.choice(connections), chance.choice([0, 1, 700, 1_024, 9_000]))
        assert 0 <= room.size <= 50_000
    for connection in connections:
        room.free(connection)
    assert room.size == 0
