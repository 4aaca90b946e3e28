"""A member's folder was copied to a second machine, and both are started: they are the same member,
and only one of them has what it reports."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.group.frames import Hello
from escrowmq.group.state import PATH, decode_state
from tests.harness.group import GroupWorld, MemberHost

from .test_failover import bodies, formed, report_of, sent, store_of


def stopped_copy(world: GroupWorld, host: MemberHost) -> MemberHost:
    """A member is stopped cleanly, and its folder is copied to another machine."""
    host.kill()
    data = host.disk.read(PATH)
    assert data is not None
    host.disk.replace(PATH, msgspec.structs.replace(decode_state(data), is_open=False).encode())
    other = MemberHost(world, "d")
    other.disk, other.boot = host.disk.fork(), "another machine"
    world.hosts["d"] = other
    return other


def formed_with_copied_folder() -> tuple[GroupWorld, MemberHost, MemberHost, MemberHost]:
    """A master, its copy, and a second process with the copy's folder."""
    world, master = formed(names="ac")
    genuine = next(host for host in world.hosts.values() if host is not master)
    return world, master, genuine, stopped_copy(world, genuine)


def test_the_second_process_is_refused_and_never_leads() -> None:
    world, master, genuine, second = formed_with_copied_folder()
    genuine.start()
    world.until(lambda: world.record is not None and genuine.name in world.record.in_sync)
    life = genuine.life
    second.start()
    for nth in range(40):
        sent(world, master, b"%d" % nth)
        world.advance(100)
    assert f"another process is member {genuine.name} too" in report_of(second).why
    assert genuine.address in report_of(second).why
    assert genuine.life == life
    assert second.member.state.incarnation != genuine.member.state.incarnation
    genuine.kill()
    master.kill()
    world.advance(20_000)
    assert second.leader is None, "it lacks what was acknowledged"
    genuine.start()
    world.until(lambda: world.serving is genuine)
    assert bodies(genuine) == [b"%d" % nth for nth in range(40)]


def test_a_member_that_is_started_again_at_once_is_let_in() -> None:
    """Its machine has lost power, so nobody has closed its former connection."""
    world, master, genuine, _ = formed_with_copied_folder()
    del world.hosts["d"]
    genuine.start()
    world.until(world.are_in_sync)
    world.forget(genuine, tells=False)
    genuine.life += 1
    genuine.broker = None
    genuine.disk.restart()
    incarnation = genuine.member.state.incarnation
    genuine.start()
    sent(world, master, b"one")
    world.until(world.are_in_sync, within_ms=4_000)
    assert genuine.member.state.incarnation == incarnation
    world.until(lambda: store_of(genuine).end_offset == store_of(master).end_offset)


class FormerHello(msgspec.Struct, rename="camel"):
    """Hello, as releases without ids of starts know it."""

    cluster: str
    broker: str
    group: str
    member: str
    incarnation: str
    promised: int
    history: tuple[tuple[int, int], ...]
    log_begin: int
    log_end: int
    segment_size: int
    nonce: str
    proof: str = ""


@pytest.mark.parametrize("start_id", ["", "one"])
def test_a_master_of_an_older_release_verifies_the_proof(start_id: str) -> None:
    hello = Hello("c", "b", "g", "m", "i", 1, ((1, 0),), 0, 9, 1 << 16, "n", "p")
    hello.start_id = start_id or msgspec.UNSET
    hello.takes_queue_ends = bool(start_id) or msgspec.UNSET
    former = msgspec.json.decode(msgspec.json.encode(hello), type=FormerHello)
    former.proof = ""
    assert hello.proved_content() == msgspec.json.encode(former)
    again = msgspec.json.decode(msgspec.json.encode(former), type=Hello)
    assert again.proved_content() == msgspec.json.encode(former)
