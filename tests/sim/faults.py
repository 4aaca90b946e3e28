"""What happens to a world now and then: to its broker, its disk, its connections and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from escrowmq.testing.disk import CrashLoss, DescriptorShortage

if TYPE_CHECKING:
    from tests.sim.world import World

_RESTARTED_SHARE = 0.5
"""Of the clocks that are set right, those whose broker is started again at once."""

_HELPED_SHARE = 0.5
"""Of the failed syncs, those after which the broker does not go on by itself."""

_POWER = (CrashLoss.ALL, CrashLoss.PREFIX, CrashLoss.SECTORS, CrashLoss.SUBSET)


class Faults:
    """Fires the faults of a world's plan at random times."""

    def __init__(self, world: World) -> None:
        self._world = world

    def schedule(self) -> None:
        """Begin."""
        plan = self._world.plan
        for mean_ms, fire in (
            (plan.cut_every_ms, self._cut),
            (plan.kill_every_ms, self._kill),
            (plan.power_every_ms, self._lose_power),
            (plan.pause_every_ms, self._pause),
            (plan.full_every_ms, self._fill_disk),
            (plan.sync_failure_every_ms, self._fail_sync),
            (plan.slow_sync_every_ms, self._slow_sync),
            (plan.offline_every_ms, self._offline),
            (plan.offline_every_ms, self._crash_consumer),
            (plan.habits.shortage_every_ms, self._run_out),
            (plan.habits.jump_every_ms, self._set_clock),
            (plan.habits.admin_every_ms, self._world.admin.act),
            (plan.habits.vandal_every_ms, self._world.vandal.act),
            (plan.habits.tenant_every_ms, self._world.tenant.act),
            (plan.habits.stranger_every_ms, self._world.stranger.act),
        ):
            if mean_ms:
                self._plan(mean_ms, fire)
        if plan.habits.ahead_at_ms:
            self._later(plan.habits.ahead_at_ms, self._go_ahead)
        if plan.habits.grow_at_ms:
            self._later(plan.habits.grow_at_ms, self._grow)
        if plan.habits.narrow_at_ms and plan.queues_count > 1:
            self._later(plan.habits.narrow_at_ms, self._narrow)
        if self._world.lost_group:
            self._later(plan.chaos_ms // 2, self._lose_group)

    def mend(self) -> None:
        """Take back whatever lasts."""
        world = self._world
        world.disk.room = world.disk.stop_at = world.disk.sync_error = None
        world.disk.shortage = None
        world.sync_ms_max = world.plan.sync_ms

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        stage = self._world.stage

        def act() -> None:
            if not stage.is_calm:
                action()

        stage.clock.after(delay_ms, act)

    def _plan(self, mean_ms: int, fire: Callable[[], None]) -> None:
        def again() -> None:
            fire()
            self._plan(mean_ms, fire)

        self._later(int(self._world.stage.chance.expovariate(1 / mean_ms)), again)

    # -- the broker --------------------------------------------------------------------------

    def _kill(self) -> None:
        world = self._world
        if world.core is None:
            return
        if world.stage.chance.random() < 0.3:
            world.restart()
        elif not self._stop_anywhere("kill"):
            world.died(CrashLoss.NOTHING)

    def _lose_power(self) -> None:
        world = self._world
        if world.core is not None and not self._stop_anywhere("power"):
            world.died(world.stage.chance.choice(_POWER))

    def _stop_anywhere(self, kind: str) -> bool:
        """Let the machine stop at some operation soon, instead of now."""
        world = self._world
        if not world.stage.happens(world.plan.stop_anywhere_chance):
            return False
        steps = world.stage.chance.choice((3, 30, 300))
        world.disk.stop_at = world.disk.steps_count + world.stage.chance.randint(1, steps)
        world.stage.note("%s: the machine will stop at operation %d", kind, world.disk.stop_at)
        return True

    def _pause(self) -> None:
        """SIGSTOP, or a machine that is put to sleep."""
        world = self._world
        span_ms = world.stage.chance.choice((1_000, 20_000, 150_000))
        world.stage.fault("broker paused", "for %d ms", span_ms)
        world.host.paused_until_ms = world.stage.clock.now_ms() + span_ms

    def _set_clock(self) -> None:
        world = self._world
        by_ms = world.stage.chance.choice(world.plan.habits.jumps_ms)
        world.stage.fault("clock set forward" if by_ms > 0 else "clock set back")
        world.set_clock(by_ms)

    def _go_ahead(self) -> None:
        """The clock is days ahead for a while. The process goes on from there when it is set right,
        the next one believes what it finds."""
        world, chance = self._world, self._world.stage.chance
        by_ms = world.plan.habits.ahead_ms
        world.stage.fault("clock days ahead")
        world.set_clock(by_ms)

        def set_right() -> None:
            world.stage.note("the clock is set right")
            world.set_clock(-by_ms)
            if chance.random() < _RESTARTED_SHARE:
                world.restart()

        world.stage.clock.after(chance.choice((100, 5_000, 60_000)), set_right)

    def _grow(self) -> None:
        """A topic gets a queue more."""
        world = self._world
        topic, _ = world.stage.chance.choice(world.plan.topics)
        world.admin.grow(topic, world.plan.queues_count + 1)
        for consumer in world.consumers:
            consumer.add_queue((topic, world.plan.queues_count))

    def _narrow(self) -> None:
        """A topic has a queue less."""
        world = self._world
        topic, _ = world.stage.chance.choice(world.plan.topics)
        world.admin.narrow(topic, world.plan.queues_count - 1)

    # -- the disk ----------------------------------------------------------------------------

    def _fill_disk(self) -> None:
        world, chance = self._world, self._world.stage.chance
        world.stage.fault("disk full")
        world.disk.room = world.disk.used + chance.choice((0, 0, 4_096, 8_192, 40_960))

        def empty() -> None:
            world.disk.room = None

        self._later(chance.choice((2_000, 10_000, 40_000, 150_000)), empty)

    def _fail_sync(self) -> None:
        """The disk loses writes and says so, for a while; now and then somebody starts the broker
        again, or takes its power."""
        world, chance = self._world, self._world.stage.chance
        world.stage.fault("sync fails")
        world.disk.sync_error = "Input/output error"

        def mend() -> None:
            world.disk.sync_error = None
            if world.core is not None and chance.random() < _HELPED_SHARE:
                world.died(chance.choice((CrashLoss.NOTHING, *_POWER)))

        self._later(chance.randrange(500, 60_000), mend)

    def _run_out(self) -> None:
        """Something else in the process has used up its descriptors."""
        world, chance = self._world, self._world.stage.chance
        world.stage.fault("no descriptors")
        world.disk.exhaust_descriptors(chance.choice(list(DescriptorShortage)), chance)

        def come_back() -> None:
            world.disk.shortage = None

        self._later(chance.choice((100, 2_000, 15_000, 60_000)), come_back)

    def _slow_sync(self) -> None:
        world, chance = self._world, self._world.stage.chance
        world.stage.fault("slow disk")
        world.sync_ms_max = chance.choice((200, 2_000, 12_000))

        def mend() -> None:
            world.sync_ms_max = world.plan.sync_ms

        self._later(chance.randrange(5_000, 120_000), mend)

    # -- connections and clients -------------------------------------------------------------

    def _cut(self) -> None:
        world = self._world
        links = world.host.links()
        if not links:
            return
        link = world.stage.chance.choice(links)
        if world.stage.happens(world.plan.half_open_chance):
            world.stage.fault("half-open connection")
            link.break_silently()
        else:
            world.stage.fault("connection cut")
            link.cut()

    def _offline(self) -> None:
        """A whole producer group is away, longer than the peer would wait for it."""
        world, chance = self._world, self._world.stage.chance
        group = chance.choice(world.plan.producers)[0]
        span_ms = chance.choice((20_000, 200_000, 600_000))
        world.stage.fault("group offline", "%s for %d ms", group, span_ms)
        for producer in world.producers:
            if producer.group == group and producer.is_running:
                producer.crash()
                if group != world.lost_group:
                    self._later(span_ms, producer.start)

    def _lose_group(self) -> None:
        world = self._world
        world.stage.fault("group gone for good", world.lost_group)
        for producer in world.producers:
            if producer.group == world.lost_group:
                producer.crash()

    def _crash_consumer(self) -> None:
        world, chance = self._world, self._world.stage.chance
        consumer = chance.choice(world.consumers)
        if consumer.is_running:
            world.stage.fault("consumer crash", consumer.name)
            consumer.crash()
            self._later(chance.randrange(100, 60_000), consumer.start)
