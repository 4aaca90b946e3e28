"""A copy that has no TLS with its master: real cores, the handshake fails as the shell tells it."""

from __future__ import annotations

import pytest

from escrowmq.base.wire import Wire
from escrowmq.errors import RemoteProtocolError
from escrowmq.group.copy_stream import CopyStream, MasterEpoch
from escrowmq.group.copy_streams import CONNECTIONS_MAX
from tests.harness.group import GroupWorld, MemberHost
from tests.harness.pair import log_of

from .test_failover import formed, report_of, sent, store_of

WHY = "gives this member nothing: its certificate is not taken"


def distrust(world: GroupWorld, copy: MemberHost, master: MemberHost) -> None:
    """The connection of a copy is lost, and TLS fails when it dials again."""
    world.tls_failed.add(copy.name)
    for (name, life, peer), (other, *_) in [*world.links.items()]:
        if (name, life, other) == (copy.name, copy.life, master):
            world.close(copy, peer)


def test_a_copy_without_tls_knows_that_its_master_lives(caplog: pytest.LogCaptureFixture) -> None:
    """It was in sync, and its connection is lost: it does not take over, since nobody has refused
    the connection."""
    world, master = formed()
    copy = next(host for host in world.hosts.values() if host is not master)
    before = log_of(store_of(copy))
    distrust(world, copy, master)
    caplog.clear()
    world.dials_count = 0
    began_ms = world.now_ms
    world.until(lambda: world.record is not None and copy.name not in world.record.in_sync)
    world.advance(100)
    assert world.serving is master
    sent(world, master, b"without it")
    world.advance(10_000 - (world.now_ms - began_ms))
    assert world.dials_count <= 11, "a handshake a second at most"
    assert world.serving is master
    assert world.record is not None
    assert world.record.epoch == 1
    assert log_of(store_of(copy)) == before
    assert WHY in report_of(copy).why
    assert copy.broker is not None
    assert WHY in copy.broker.core.write_refusal_reason()
    assert caplog.text.count(WHY) == 1
    assert "is not reached" not in caplog.text
    world.tls_failed.clear()
    world.until(world.are_in_sync)
    assert report_of(copy).why == ""
    assert log_of(store_of(copy)) == log_of(store_of(master))


def test_a_master_that_ends_is_replaced_at_once_by_who_failed_to_shake_hands_before() -> None:
    """What a refused connection says is not delayed by much."""
    world, master = formed(names="ab")
    copy = next(host for host in world.hosts.values() if host is not master)
    world.dials_count = 0
    distrust(world, copy, master)
    world.until(lambda: world.dials_count)
    world.advance(20)
    master.kill()
    began_ms = world.now_ms
    assert world.until(lambda: world.serving) is copy
    assert world.now_ms - began_ms < 1_500


def test_a_copy_that_speaks_tls_to_a_plain_master_is_refused_with_what_to_set() -> None:
    world, master = formed(names="a")
    epoch = MasterEpoch("cluster", "b", "g", 1, (), "a", b"")
    stream = CopyStream(store_of(master).log, epoch, nonce="n", tables=list, now_ms=world.now_ms)
    with pytest.raises(RemoteProtocolError, match=r"it uses TLS, .* set escrowGroupTls at all"):
        stream.receive(b"\x16\x03\x01\x02\0\x01", world.now_ms)


def test_strangers_do_not_keep_a_member_out() -> None:
    """They open as many connections as there may be, and send a byte from time to time."""
    world, master = formed(names="ab")
    copy = next(host for host in world.hosts.values() if host is not master)
    copy.kill()
    world.until(lambda: world.record is not None and copy.name not in world.record.in_sync)
    broker = master.broker
    assert broker is not None
    opened_count = 0

    def open_some(count: int) -> None:
        nonlocal opened_count
        for _ in range(count):
            peer, opened_count = 90_000 + opened_count, opened_count + 1
            broker.core.connected(peer, "6.6.6.6", 4_000, broker.now_ms, Wire.GROUP)
            broker.core.receive(peer, bytes(1), broker.now_ms)
        broker.perform()

    open_some(CONNECTIONS_MAX)
    copy.start()
    for _ in range(20):
        open_some(3)
        world.advance(100)
    assert world.are_in_sync()
