from __future__ import annotations

from escrowmq.group.copy_stream import CopyStream, MasterEpoch
from escrowmq.group.copy_streams import CONNECTIONS_MAX, CopyStreams
from escrowmq.group.frames import Hello
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import opened

EPOCH = MasterEpoch("c", "b", "g", 1, ((1, 0),), "m", b"secret")
HELLO = Hello("c", "b", "g", "copy", "life", 0, (), 0, 0, 1 << 16, "nonce")


def stream() -> CopyStream:
    store, _ = opened(SimDisk())
    return CopyStream(store.log, EPOCH, nonce="n", tables=list, now_ms=0)


def full(hosts: str) -> CopyStreams:
    """Connections of hosts with one-letter names; those in capitals are of members."""
    streams, one = CopyStreams(), stream()
    for nth, host in enumerate(hosts):
        added = one
        if host.isupper():
            added = stream()
            added.hello = HELLO
        streams.add(nth, f"{host}:{nth}", added)
    return streams


def test_none_is_closed_while_there_is_room() -> None:
    assert full("a" * (CONNECTIONS_MAX - 1)).peer_to_close() is None


def test_the_oldest_connection_is_closed() -> None:
    assert full("a" * CONNECTIONS_MAX).peer_to_close() == 0


def test_the_host_with_the_most_connections_makes_room() -> None:
    assert full("mx" + "a" * (CONNECTIONS_MAX - 2)).peer_to_close() == 2


def test_members_that_have_named_themselves_stay() -> None:
    streams = full("A" * (CONNECTIONS_MAX - 1) + "b")
    assert streams.peer_to_close() == CONNECTIONS_MAX - 1
    assert full("A" * CONNECTIONS_MAX).peer_to_close() is None


def test_a_connection_is_found_by_the_life_of_its_member() -> None:
    streams = full("aB")
    assert streams.stream_of("copy", "life") is streams.by_peer[1]
    assert streams.stream_of("copy", "another") is None
    assert streams.stream_of("other", "life") is None
    assert [(peer, hello.member) for peer, hello, _ in streams.member_streams()] == [(1, "copy")]


def test_what_was_removed_leaves_nothing() -> None:
    streams = full("a")
    assert streams.address(0) == "a:0"
    assert streams.remove(0) is not None
    assert streams.remove(0) is None
    assert streams.address(0) == ""
    assert not streams.by_peer
