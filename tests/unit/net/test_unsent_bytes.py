from __future__ import annotations

from escrowmq.net.unsent_bytes import UnsentBytes


class Slow:
    """A connection of which so much waits now."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def unsent_size(self) -> int:
        return self.size


def test_those_with_the_most_go_first_and_no_more_than_is_needed() -> None:
    unsent = UnsentBytes(size_max=100)
    peers = [Slow(size) for size in (10, 40, 20, 25)]
    for peer in peers:
        assert unsent.record_size(peer, peer.size) == []
    last = Slow(15)
    assert unsent.record_size(last, 15) == [peers[1]]
    assert (unsent.size, unsent.cut_count) == (70, 1)


def test_what_has_left_meanwhile_is_looked_at_before_anybody_goes() -> None:
    unsent = UnsentBytes(size_max=100)
    quick = [Slow() for _ in range(50)]
    for peer in quick:
        assert unsent.record_size(peer, 30) == []
    assert unsent.size <= 100
    assert unsent.cut_count == 0


def test_a_connection_that_is_gone_counts_no_more() -> None:
    unsent = UnsentBytes(size_max=100)
    peers = [Slow(30) for _ in range(50)]
    for peer in peers:
        assert unsent.record_size(peer, 30) == []
        unsent.forget_connection(peer)
        unsent.forget_connection(peer)
    assert unsent.size == 0


def test_the_newest_size_of_a_connection_counts() -> None:
    unsent = UnsentBytes(size_max=100)
    peer = Slow(90)
    for size in (50, 90, 20, 90):
        assert unsent.record_size(peer, size) == []
    assert unsent.size == 90
