from __future__ import annotations

from escrowmq.group.copy_stream import CopyStream, Epoch
from escrowmq.group.copy_streams import CONNECTIONS_MAX, CopyStreams
from escrowmq.group.frames import Hello
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import opened

EPOCH = Epoch("c", "b", "g", 1, ((1, 0),), "m", b"secret")
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
    assert full("a" * (CONNECTIONS_MAX - 1)).crowding() is None


def test_the_oldest_connection_is_closed() -> None:
    assert full("a" * CONNECTIONS_MAX).crowding() == 0


def test_the_host_with_the_most_connections_makes_room() -> None:
    assert full("mx" + "a" * (CONNECTIONS_MAX - 2)).crowding() == 2


def test_members_that_have_named_themselves_stay() -> None:
    streams = full("A" * (CONNECTIONS_MAX - 1) + "b")
    assert streams.crowding() == CONNECTIONS_MAX - 1
    assert full("A" * CONNECTIONS_MAX).crowding() is None


def test_a_connection_is_found_by_the_life_of_its_member() -> None:
    streams = full("aB")
    assert streams.of("copy", "life") is streams.by_peer[1]
    assert streams.of("copy", "another") is None
    assert streams.of("other", "life") is None
    assert [(peer, hello.member) for peer, hello, _ in streams.named()] == [(1, "copy")]


def test_what_was_removed_leaves_nothing() -> None:
    streams = full("a")
    assert streams.address(0) == "a:0"
    assert streams.remove(0) is not None
    assert streams.remove(0) is None
    assert streams.address(0) == ""
    assert not streams.by_peer
