"""Who counts as a copy, and who is let in."""

from __future__ import annotations

import pytest

from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.frames import encode_report
from escrowmq.replica.replicas import CONNECTIONS_MAX, Replicas
from escrowmq.replica.sending import Ticket
from tests.unit.replica.logs import TERMS, Bytes, no_ticket


def replicas(size: int = 1000) -> Replicas:
    return Replicas(Bytes(b"x" * size, segment_size=10_000), TERMS, gap_max=500)


def has(known: Replicas, peer: int, host: str, end: int) -> None:
    """A slave connects, and has the log up to an offset."""
    assert known.add(peer, host, 4000 + peer, no_ticket, 0) is None
    known.receive(peer, encode_report(end), 0)


def test_copies_are_counted_with_the_masters_own() -> None:
    known = replicas()
    assert [known.confirmed_offset(n) for n in (0, 1, 2)] == [1000, 1000, -1]
    has(known, 1, "10.0.0.1", 700)
    has(known, 2, "10.0.0.2", 300)
    assert [known.confirmed_offset(n) for n in (1, 2, 3, 4)] == [1000, 700, 300, -1]
    assert known.in_sync_count == 1
    known.remove(1)
    assert [known.confirmed_offset(n) for n in (2, 3)] == [300, -1]


def test_a_slave_that_has_not_said_how_far_it_is_is_none() -> None:
    known = replicas()
    known.add(1, "10.0.0.1", 1, no_ticket, 0)
    assert (known.confirmed_offset(2), known.in_sync_count) == (-1, 0)


def test_two_connections_of_one_slave_are_one_copy() -> None:
    known = replicas()
    has(known, 1, "10.0.0.1", 700)
    has(known, 2, "10.0.0.1", 900)
    assert [known.confirmed_offset(n) for n in (2, 3)] == [900, -1]
    assert known.in_sync_count == 1


def test_tickets_tell_slaves_of_one_address_apart() -> None:
    known = replicas()
    for peer in (1, 2):
        ticket = Ticket(start=1000, identity=f"10.0.0.1:1091{peer}")
        known.add(peer, "10.0.0.1", peer, {1 << 62: ticket}.get, 0)
        known.receive(peer, encode_report(1 << 62), 0)
        known.receive(peer, encode_report(1000), 0)
    assert known.confirmed_offset(3) == 1000


def test_who_reports_what_cannot_be_counts_for_nothing() -> None:
    known = replicas()
    known.add(1, "10.0.0.1", 1, no_ticket, 0)
    with pytest.raises(RemoteProtocolError):
        known.receive(1, b"GET / HTTP/1.1\r\n\r\n", 0)
    assert known.confirmed_offset(2) == -1


def test_connections_are_bounded_and_slaves_stay() -> None:
    known = replicas()
    has(known, 1, "10.0.0.1", 700)
    for peer in range(2, CONNECTIONS_MAX + 1):
        assert known.add(peer, "10.9.9.9", peer, no_ticket, peer) is None
    assert known.add(100, "10.0.0.2", 1, no_ticket, 50) == 2, "the oldest silent one"
    assert len(known) == CONNECTIONS_MAX
    assert 1 in known.peers
    assert 100 in known.peers
    known = replicas()
    for peer in range(CONNECTIONS_MAX):
        has(known, peer, f"10.0.1.{peer}", 700)
    assert known.add(100, "10.0.0.2", 1, no_ticket, 50) == 100, "where all are slaves, the newcomer"


def test_figures() -> None:
    known = replicas()
    has(known, 1, "10.0.0.1", 400)
    known.transfers(1, 0)
    known.receive(1, encode_report(600), 1)
    assert known.wake_at_ms() == 5_000
    assert known.keep_alive(1, 5_000)
    (found,) = known.slaves_progress()
    assert (found.address, found.acknowledged, found.sent_end) == ("10.0.0.1:4001", 600, 1000)
    assert (found.behind_size, found.is_in_sync) == (400, True)
    assert not known.has_lag()
