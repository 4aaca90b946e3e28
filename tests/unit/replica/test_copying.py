"""A master and its slave over connections that are cut anywhere, from one seed: at the end both
logs are the same, byte by byte, and so are the queues."""

from __future__ import annotations

import random

import msgspec
import pytest

from escrowmq.replica.following import ComparedOverlap, Follower, ForeignLogError, SlaveTimeouts
from escrowmq.replica.sending import LogSender, SendingLimits, Ticket
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.unit.store.stores import SMALL, log_bytes, message, opened, sync, units

TERMS = SendingLimits(batch_size=700, heartbeat_ms=5_000, housekeeping_ms=20_000)
FOLLOWING = SlaveTimeouts(heartbeat_ms=5_000, housekeeping_ms=1 << 40)
TICKET = 1 << 62


class World:
    """Both, and what is under way between them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 1_000
        self.settings = msgspec.structs.replace(SMALL, is_sync_flush=seed % 3 == 0)
        self.has_tickets = seed % 2 == 0
        self.master = Store(SimDisk(), SMALL)
        self.master.open(1_000)
        self.disk = SimDisk()
        self.open_slave()
        self.sender: LogSender | None = None
        self.follower: Follower | None = None
        self.to_master = self.to_slave = b""
        self.puts_count = self.cuts_count = 0

    def open_slave(self) -> None:
        self.slave, report = opened(self.disk, self.settings, now_ms=self.now_ms)
        assert not report.damaged
        self.log = self.slave.become_copy()

    def put(self) -> None:
        chance, number = self.chance, self.puts_count
        body = chance.randbytes(chance.choice((0, 10, 200, 2_500)))
        flag = 4 if chance.random() < 0.1 else 0
        self.master.put(message(number, queue_id=number % 3, body=body, sys_flag=flag), self.now_ms)
        self.puts_count += 1

    def connect(self) -> None:
        self.cut()
        master, log = self.master.log, self.log
        tickets: dict[int, Ticket] = {}
        start, begins_at = 0, None
        if not log.is_empty:
            start = ComparedOverlap().start_offset(log)
        elif self.has_tickets:
            begins_at = start = master.min_offset
            tickets[TICKET] = Ticket(start=start, identity="slave")
        self.sender = LogSender(master, TERMS, tickets.get, host="h", now_ms=self.now_ms)
        self.follower = Follower(
            log,
            FOLLOWING,
            start=start,
            begins_at=begins_at,
            ticket=TICKET if tickets else None,
            now_ms=self.now_ms,
        )

    def cut(self) -> None:
        self.sender = self.follower = None
        self.to_master = self.to_slave = b""

    def carry(self, *, everything: bool = False) -> None:
        """Some bytes of either direction arrive."""
        sender, follower = self.sender, self.follower
        if sender is None or follower is None:
            return
        count = len(self.to_master) if everything else self.chance.randrange(20)
        sender.receive(self.to_master[:count], self.now_ms)
        self.to_master = self.to_master[count:]
        self.to_slave += b"".join(sender.transfers(self.now_ms))
        count = len(self.to_slave) if everything else self.chance.randrange(1_500)
        if count:
            follower.receive(self.to_slave[:count], self.now_ms)
        self.to_slave = self.to_slave[count:]
        self.to_master += follower.next_report(self.now_ms)
        assert sender.acknowledged <= self.master.end_offset

    def crash_slave(self) -> None:
        self.cut()
        self.disk.crash(self.chance, self.chance.choice(list(CrashLoss)))
        self.open_slave()

    def restart_master(self) -> None:
        self.cut()
        disk = self.master.disk
        assert isinstance(disk, SimDisk)
        disk.crash(self.chance, CrashLoss.NOTHING)
        self.master, report = opened(disk, SMALL, now_ms=self.now_ms)
        assert not report.damaged

    def step(self) -> None:
        self.now_ms += self.chance.randrange(50)
        lot = self.chance.random()
        if lot < 0.25:
            self.put()
        elif lot < 0.28:
            self.cuts_count += 1
            self.connect()
        elif lot < 0.29:
            self.cut()
        elif lot < 0.30:
            self.crash_slave()
        elif lot < 0.305:
            self.restart_master()
        elif lot < 0.35:
            sync(self.slave, self.now_ms)
            self.slave.wake(self.now_ms)
        else:
            self.carry()

    def settle(self) -> None:
        self.connect()
        for _ in range(1_000):
            self.carry(everything=True)
            sync(self.slave, self.now_ms)
            if self.sender is not None and self.sender.acknowledged == self.master.end_offset:
                break


@pytest.mark.parametrize("seed", range(60))
def test_both_are_the_same_at_the_end(seed: int) -> None:
    world = World(seed)
    for _ in range(800):
        world.step()
    world.settle()
    assert world.sender is not None
    assert world.sender.acknowledged == world.master.end_offset
    low = world.log.min_offset
    assert low == 0 or not world.has_tickets, "slaves of ours get all that the master has"
    assert log_bytes(world.slave, low) == log_bytes(world.master, low)
    for place, ours in units(world.slave).items():
        assert units(world.master)[place].endswith(ours)
        assert len(ours) == len(units(world.master)[place]) or low


def test_worlds_are_cut_and_long_enough() -> None:
    world = World(1)
    for _ in range(800):
        world.step()
    assert world.cuts_count > 5
    assert world.master.end_offset > 10 * SMALL.log_segment_size


def test_a_slave_ahead_of_its_master_is_not_mixed() -> None:
    """A master that lost its unsynced tail with the power, and goes on with other messages."""
    world = World(2)
    for _ in range(10):
        world.put()
    disk = world.master.disk
    assert isinstance(disk, SimDisk)
    sync(world.master, 60_000)
    for _ in range(10):
        world.put()
    world.settle()
    assert world.log.end_offset == world.master.end_offset
    ours = log_bytes(world.slave)
    disk.crash(world.chance, CrashLoss.ALL)
    world.cut()
    world.master, _ = opened(disk, SMALL, now_ms=70_000)
    kept = world.master.end_offset
    assert 0 < kept < len(ours)
    world.now_ms = 80_000
    for _ in range(10):
        world.put()
    with pytest.raises(ForeignLogError) as caught:
        world.settle()
    theirs = log_bytes(world.master)
    first = next(n for n, pair in enumerate(zip(ours, theirs, strict=False)) if len({*pair}) > 1)
    assert caught.value.log_offset == first >= kept
    assert log_bytes(world.slave) == ours
