"""The parts of the simulated world that stand under everything else."""

import random
from collections import Counter

from tests.sim.clock import SimClock
from tests.sim.network import Delays, Link, SimNetwork
from tests.sim.plan import draw
from tests.sim.stage import TRACE_LINES_MAX, Stage

from escrowmq.testing.disk import CrashLoss, SimDisk

HOME = ("10.0.0.9", 1)
DOOR = ("10.0.0.1", 2)


class Peer:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.events: list[str] = []

    def opened(self, link: Link) -> None:
        self.events.append("opened")

    def received(self, link: Link, data: bytes) -> None:
        self.heard += data

    def lost(self, link: Link) -> None:
        self.events.append("lost")


def connected(seed: int = 1) -> tuple[Stage, Link, Peer, Peer]:
    stage = Stage(seed, 0)
    delays = Delays(usual_ms=50, late_ms=2_000, late_chance=0.2)
    network = SimNetwork(stage, delays, split_chance=0.5)
    caller, callee = Peer(), Peer()
    network.listen(DOOR, callee)
    link = network.connect(caller, HOME, DOOR)
    stage.clock.run(5_000)
    assert caller.events == callee.events == ["opened"]
    return stage, link, caller, callee


def test_the_clock_jumps_and_keeps_the_order_of_one_moment() -> None:
    clock = SimClock(100)
    seen: list[tuple[str, int]] = []
    clock.at(500, lambda: seen.append(("late", clock.now_ms())))
    clock.after(50, lambda: clock.at(0, lambda: seen.append(("past", clock.now_ms()))))
    clock.after(50, lambda: seen.append(("second", clock.now_ms())))
    clock.run(400)
    assert seen == [("second", 150), ("past", 150)]
    assert clock.now_ms() == 400
    clock.run(500)
    assert seen[-1] == ("late", 500)
    assert clock.events_count == 4


def test_bytes_of_one_connection_stay_in_order() -> None:
    for seed in range(20):
        stage, link, caller, callee = connected(seed)
        for number in range(100):
            link.send(b"%03d" % number, is_from_caller=True)
            link.send(b"%03d" % number, is_from_caller=False)
        stage.clock.run(60_000)
        wanted = b"".join(b"%03d" % number for number in range(100))
        assert caller.heard == callee.heard == wanted


def test_a_cut_loses_what_is_under_way_and_both_sides_learn_of_it() -> None:
    stage, link, caller, callee = connected()
    link.send(b"lost", is_from_caller=True)
    link.cut()
    stage.clock.run(60_000)
    assert callee.heard == b""
    assert caller.events == callee.events == ["opened", "lost"]


def test_half_open_means_that_one_side_does_not_know() -> None:
    stage, link, caller, callee = connected()
    link.break_silently()
    link.send(b"into nothing", is_from_caller=False)
    stage.clock.run(60_000)
    assert caller.heard == b""
    assert caller.events == ["opened", "lost"]
    assert callee.events == ["opened"]


def test_what_was_written_before_a_close_arrives_before_it() -> None:
    stage, link, caller, callee = connected()
    link.send(b"good-bye", is_from_caller=True)
    link.close(is_caller=True)
    stage.clock.run(60_000)
    assert callee.heard == b"good-bye"
    assert callee.events == ["opened", "lost"]
    assert caller.events == ["opened"]


def test_nobody_listens_where_there_is_no_door() -> None:
    stage = Stage(1, 0)
    network = SimNetwork(stage, Delays(usual_ms=5, late_ms=9, late_chance=0), split_chance=0)
    caller = Peer()
    network.connect(caller, HOME, DOOR)
    stage.clock.run(1_000)
    assert caller.events == ["lost"]


def test_a_forked_disk_goes_its_own_way() -> None:
    disk = SimDisk()
    file = disk.open("f", size=100)
    file.write(0, b"durable")
    file.sync()
    file.write(0, b"written")
    disk.replace("small", b"1")
    fork = disk.fork()
    fork.crash(random.Random(1), CrashLoss.ALL)
    assert fork.open("f", size=100).read(0, 7) == b"durable"
    fork.replace("small", b"2")
    assert file.read(0, 7) == b"written"
    assert disk.read("small") == b"1"


def test_the_calm_has_no_faults_and_the_trace_an_end() -> None:
    stage = Stage(1, 0)
    assert stage.happens(1.0)
    stage.is_calm = True
    assert not stage.happens(1.0)
    for number in range(TRACE_LINES_MAX + 5):
        stage.fault("kind", "%d", number)
    assert stage.faults == Counter(kind=TRACE_LINES_MAX + 5)
    assert len(stage.trace(10_000).splitlines()) == TRACE_LINES_MAX


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(7, minutes=90).chaos_ms == 90 * 60_000
    assert {draw(seed).is_sync_flush for seed in range(20)} == {True, False}
