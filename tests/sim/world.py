"""A whole world in one thread, from one seed: broker, name server, producers, consumers, network
and disk, with everything that goes wrong between them, and a judge."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.errors import StorageError
from escrowmq.registry.core import RegistryCore
from escrowmq.testing.disk import CrashLoss, SimCrash, SimDisk, is_out_of_descriptors
from tests.sim.admin import SimAdmin
from tests.sim.checker import Checker, engine_of
from tests.sim.client import SimClient
from tests.sim.consumer import SimConsumer
from tests.sim.faults import Faults
from tests.sim.halves import draw_message, draw_transaction
from tests.sim.host import SimHost
from tests.sim.ledger import ROLLBACK, Ledger
from tests.sim.network import Address, Delays, SimNetwork
from tests.sim.overheard import Overheard
from tests.sim.plan import Plan, draw
from tests.sim.popper import SimPopper
from tests.sim.producer import SimProducer
from tests.sim.sdk_consumer import SdkConsumer, sdk_consumers
from tests.sim.sdk_producer import GROUP, SdkProducer, sdk_producers
from tests.sim.stage import Stage, Violation
from tests.sim.stranger import SimStranger
from tests.sim.tenant import SimTenant
from tests.sim.vandal import SimVandal

_START_MS = 1_700_000_000_000
_GENERAL_WAY_EVERY = 3
"""One in so many brokers uses no fast path."""

_BROKER: Address = ("10.0.0.1", 10911)
_REGISTRY: Address = ("10.0.0.2", 9876)
_AUDIT_MS = 120_000
_CALM_MS = 240_000
"""How long whatever is left may take to be settled, beside the intervals between checks."""
_SET_BACK_MS = 300_000
_FORKED_COMMITS_SHARE = 0.5
"""Commits of several messages in the middle of which the power is tried."""
_SAVED_AFTER_MS = 6_000
"""Progress is saved within this time."""
_POWER = (CrashLoss.PREFIX, CrashLoss.SECTORS, CrashLoss.SUBSET)
_FORKED_ANSWERS = 4
"""Answers of a run, about, at which the power is tried."""

Plant = Callable[[BrokerCore], None]


class Result(msgspec.Struct):
    """What one world was like."""

    seed: int
    simulated_ms: int
    events_count: int
    faults: Counter[str]
    done: Counter[str]


class World:
    """One seed's world. `plant` may spoil every broker that is made in it."""

    def __init__(
        self, seed: int, *, minutes: int | None = None, plant: Plant | None = None
    ) -> None:
        self.plan: Plan = draw(seed, minutes=minutes)
        self.stage = Stage(seed, _START_MS)
        self.ledger = Ledger(self.stage)
        self.disk = SimDisk()
        self.core: BrokerCore | None = None
        self._plant = plant
        self._boot_count = 1
        self._durable_offset = self._committed_count = self._undone_count = self._last_stored_ms = 0
        self._loss = CrashLoss.NOTHING
        plan = self.plan
        delays = Delays(usual_ms=plan.usual_delay_ms, late_ms=5_000, late_chance=plan.late_chance)
        self.network = SimNetwork(self.stage, delays, split_chance=plan.split_chance)
        self.sync_ms_max = plan.sync_ms
        self.host = SimHost(
            self.stage,
            self.network,
            _BROKER,
            disk=self.disk,
            sync_ms=lambda: self.stage.chance.randint(0, self.sync_ms_max),
            died=lambda _: self.died(self.stage.chance.choice(list(CrashLoss))),
        )
        self.host.on_step = self._stepped
        self.tenant = SimTenant(self.stage, self.network, _BROKER)
        self.tenant.is_kept = lambda: self.core is None or self.core.broker.store.deleted.is_saved
        self.checker = Checker(self.stage, plan, self.ledger, self.host.wall, self.tenant)
        self._overheard = self._listen()
        self.producers = self._make_producers()
        self.consumers = self._make_consumers()
        self.sdk_producers = self._make_sdk()
        self.popper = SimPopper(
            self.stage,
            self.network,
            _BROKER,
            topics=[topic for topic, _ in plan.topics],
            checker=self.checker,
            broker_ms=self.host.wall.now_ms,
        )
        self.admin = SimAdmin(self.stage, self.network, _BROKER, plan=plan, ledger=self.ledger)
        self.vandal = SimVandal(
            self.stage,
            self.network,
            _BROKER,
            plan=plan,
            ledger=self.ledger,
            group=plan.producers[0][0],
        )
        self.stranger = SimStranger(
            self.stage,
            self.network,
            _BROKER,
            plan=plan,
            ledger=self.ledger,
            group=plan.producers[0][0],
        )
        self._registry: SimHost | None = None
        self._faults = Faults(self)

    def _listen(self) -> Overheard:
        """Hear what is said about checks; an SDK alone says that a transaction is open."""
        host = self.host
        overheard = Overheard(self.stage, self.checker.tally, host.wall.now_ms)
        host.on_send, host.on_lost = overheard.sent, overheard.lost
        if self.plan.has_sdk:
            host.on_received = overheard.received
        return overheard

    def _make_producers(self) -> list[SimProducer]:
        groups = [group for group, count in self.plan.producers for _ in range(count)]
        made = [
            SimProducer(
                self.stage,
                self.network,
                _BROKER,
                group=group,
                number=number,
                plan=self.plan,
                ledger=self.ledger,
            )
            for number, group in enumerate(groups, 1)
        ]
        for producer in made:
            producer.colleagues = made
            producer.broker_ms = self.host.wall.now_ms
        return made

    def _make_consumers(self) -> list[SimConsumer | SdkConsumer]:
        topics = [topic for topic, _ in self.plan.topics]
        queues = [(topic, n) for topic in topics for n in range(self.plan.queues_count)]
        return [
            SimConsumer(
                self.stage,
                self.network,
                _BROKER,
                group=group,
                host=(f"10.0.2.{number}", 50_000),
                queues=queues,
                checker=self.checker,
            )
            for number, group in enumerate(("shipping", "billing"), 1)
        ]

    def _make_sdk(self) -> list[SdkProducer]:
        """Clients that decide as the SDK does, in the worlds that have them."""
        stage, plan = self.stage, self.plan
        self.consumers += sdk_consumers(
            stage, self.network, _BROKER, plan=plan, checker=self.checker
        )
        made = sdk_producers(stage, self.network, _BROKER, plan=plan, ledger=self.ledger)
        for producer in made:
            producer.broker_ms = self.host.wall.now_ms
        return made

    def clients(self) -> list[SimClient]:
        """Everybody who talks to the broker."""
        habits = self.plan.habits
        others: list[SimClient] = [self.popper] if habits.has_popper else []
        others += [self.tenant] if habits.tenant_every_ms else []
        others += [self.stranger] if habits.stranger_every_ms else []
        own = [*self.producers, *self.sdk_producers]
        return [*own, *self.consumers, self.admin, self.vandal, *others]

    @property
    def lost_group(self) -> str:
        """The group that goes and never comes back; empty when there is none."""
        return self.plan.producers[-1][0] if self.plan.has_lost_group else ""

    # -- the run -----------------------------------------------------------------------------

    def run(self) -> Result:
        """Play it to its end. A Violation carries the seed and the newest lines of the trace."""
        logger = logging.getLogger("escrowmq")
        before = (logger.propagate, logger.level)
        handler = _Alarm()
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        logger.addHandler(handler)
        try:
            self._play()
        except Exception as error:
            error.add_note(f"seed {self.plan.seed}: {self.plan}\n{self.stage.trace()}")
            raise
        finally:
            logger.removeHandler(handler)
            logger.propagate = before[0]
            logger.setLevel(before[1])  # which forgets what loggers below have made of it
        clock = self.stage.clock
        return Result(
            seed=self.plan.seed,
            simulated_ms=clock.now_ms() - _START_MS,
            events_count=clock.events_count,
            faults=self.stage.faults,
            done=self.stage.done,
        )

    def _play(self) -> None:
        stage, plan = self.stage, self.plan
        if plan.has_registry:
            self._start_registry()
        self.open()
        for client in self.clients():
            stage.clock.after(stage.chance.randrange(5_000), client.start)
        for number in range(plan.transactions_count):
            stage.clock.after(stage.chance.randrange(plan.chaos_ms), self._transaction(number))
        for number in range(plan.transactions_count if plan.has_sdk else 0):
            stage.clock.after(stage.chance.randrange(plan.chaos_ms), self._sdk_transaction(number))
        self._faults.schedule()
        stage.clock.after(_AUDIT_MS, self._audit)
        self.ledger.on_answer = self._answered
        self.admin.on_settled = self._settled
        stage.clock.run(_START_MS + plan.chaos_ms)
        self._calm_down()
        calm_ms = 6 * plan.check_interval_ms + _CALM_MS
        if plan.habits.jump_every_ms:
            calm_ms += _SET_BACK_MS  # a start after the clock was set back is late with everything
        stage.clock.run(stage.clock.now_ms() + calm_ms)
        if self.core is None:
            raise Violation("the broker did not come back")
        if self.core.broker.store.refusal is not None:
            raise Violation(f"nothing is taken any more: {self.core.broker.store.refusal}")
        self.checker.finish(self.core, lost_group=self.lost_group)
        self._finish(self.core)

    def _finish(self, core: BrokerCore) -> None:
        """A clean stop, and a start that finds the same."""
        self.checker.fork(core, self.disk, self.make_core, CrashLoss.NOTHING)
        core.close(self.host.wall.now_ms())
        self.host.stop()
        self.disk.restart()
        again = self.make_core(self.disk, CrashLoss.NOTHING)
        again.open(self.host.wall.now_ms())
        self.checker.opened(again, loss=CrashLoss.NOTHING, durable_offset=0)

    def _calm_down(self) -> None:
        self.stage.is_calm = True
        self.stage.note("calm: no more faults")
        self._faults.mend()
        for sent in self.ledger.sent.values():
            truth = sent.truth
            if truth.known_ms > self.stage.clock.now_ms() + _CALM_MS:
                # Its producer went before it heard of its half: no local transaction was run.
                truth.verdict, truth.known_ms = ROLLBACK, 0
        for producer in self.producers:
            if producer.group != self.lost_group:
                producer.start()
        for client in (*self.sdk_producers, *self.consumers, self.admin):
            client.start()

    def _start_registry(self) -> None:
        disk = SimDisk()
        host = SimHost(
            self.stage, self.network, _REGISTRY, disk=disk, sync_ms=lambda: 0, died=lambda _: None
        )
        now_ms = self.stage.clock.now_ms()
        host.start(RegistryCore(NameServerSettings(), disk, started_ms=now_ms))
        self._registry = host

    def _transaction(self, number: int) -> Callable[[], None]:
        name = f"T{self.plan.seed:06d}{number:06d}"

        def begin() -> None:
            chance = self.stage.chance
            producer = chance.choice(self.producers)
            if producer.is_connected:
                now_ms = self.host.wall.now_ms()
                producer.begin(
                    draw_transaction(
                        self.plan, chance, group=producer.group, name=name, now_ms=now_ms
                    )
                )

        return begin

    def _sdk_transaction(self, number: int) -> Callable[[], None]:
        key = f"S{self.plan.seed:06d}{number:06d}00"

        def begin() -> None:
            chance = self.stage.chance
            producer = chance.choice(self.sdk_producers)
            if producer.is_running:
                producer.begin(draw_message(self.plan, chance, group=GROUP, key=key))

        return begin

    # -- the broker --------------------------------------------------------------------------

    def make_core(self, disk: SimDisk, loss: CrashLoss) -> BrokerCore:
        """A broker process, not yet opened; `loss` says what happened before."""
        boot = ""
        if self.plan.knows_boot:
            is_next = disk is not self.disk and loss is not CrashLoss.NOTHING
            boot = f"boot {self._boot_count + is_next}"
        core = BrokerCore(
            disk,
            self.plan.broker_settings("10.0.0.2:9876" if self.plan.has_registry else ""),
            self.plan.store_settings(),
            address=_BROKER,
            ha_address="10.0.0.1:10912",
            chance=random.Random(self.stage.chance.getrandbits(32)),
            boot=boot,
        )
        # So that worlds of a few hundred halves have snapshots of what is pending.
        transactions = core.transactions
        transactions.snapshot_ms, transactions.snapshot_min = 1_000, 2
        if (self.plan.seed + self._boot_count) % _GENERAL_WAY_EVERY == 0:
            core.remoting.fast_path = None
        if self._plant is not None:
            self._plant(core)
        return core

    def open(self) -> None:
        """Start the broker on what its disk holds, unless it runs."""
        if self.core is not None:
            return
        self.host.wall.restart()
        now_ms = self.disk.now_ms = self.host.wall.now_ms()
        try:
            core = self.make_core(self.disk, self._loss)
            opened_ms = core.open(now_ms)
            self.host.wall.continue_from(opened_ms)
            self.host.wall.has_gone_back |= self._last_stored_ms > opened_ms
        except SimCrash as crash:
            self.stage.note("the machine stops while the broker starts: %s", crash)
            self.died(self.stage.chance.choice(list(CrashLoss)))
            return
        except (StorageError, OSError) as error:
            self.stage.note("the broker does not start: %s", error)
            self.disk.restart()
            self.stage.clock.after(5_000, self.open)
            return
        self.stage.note("the broker is open: %d pending", len(engine_of(core).halves.pending))
        self._overheard.hang_up()
        with self.disk.without_shortage():
            self.checker.opened(core, loss=self._loss, durable_offset=self._durable_offset)
        self._loss = CrashLoss.NOTHING
        self._durable_offset = 0
        self.core = core
        self.host.start(core)

    def died(self, loss: CrashLoss) -> None:
        """The broker's process, or its machine, is gone; it comes back after a while."""
        stage = self.stage
        stage.fault("process killed" if loss is CrashLoss.NOTHING else "power lost", loss.name)
        if self.core is not None:
            self._last_stored_ms = self.core.broker.store.last_stored_ms
            self._durable_offset = self.core.broker.store.durable_offset
            self._loss = CrashLoss.NOTHING
        if self._loss is CrashLoss.NOTHING:
            self._loss = loss
        if loss is not CrashLoss.NOTHING:
            self._boot_count += 1
        self.core = None
        self.host.stop(drops_bytes=loss is not CrashLoss.NOTHING)
        self.disk.crash(stage.chance, loss)
        stage.clock.after(stage.chance.choice((50, 1_000, 20_000)), self.open)

    def restart(self) -> None:
        """A clean stop; it comes back after a while."""
        core = self.core
        if core is None:
            return
        self.stage.fault("clean restart")
        self._last_stored_ms = core.broker.store.last_stored_ms
        try:
            core.close(self.host.wall.now_ms())
        except SimCrash:
            self.died(CrashLoss.NOTHING)
            return
        except (StorageError, OSError) as error:
            if not is_out_of_descriptors(error):
                raise
            self.stage.note("the broker does not stop cleanly: %s", error)
            self.died(CrashLoss.NOTHING)
            return
        self._loss = CrashLoss.NOTHING
        self.core = None
        self.host.stop()
        self.disk.restart()
        self.stage.clock.after(self.stage.chance.choice((50, 1_000, 20_000)), self.open)

    # -- looking on --------------------------------------------------------------------------

    def _stepped(self) -> None:
        core = self.core
        if core is None:
            return
        with self.disk.without_shortage():
            self.checker.stepped(core)
        counters = engine_of(core).halves.counters
        count, self._committed_count = self._committed_count, counters.committed
        if self._committed_count > count + 1 and self.stage.happens(_FORKED_COMMITS_SHARE):
            self._fork(core, _POWER)
        count, self._undone_count = self._undone_count, counters.undone
        if self._undone_count > count:
            self.stage.fault("end undone")
            for after_ms in (_SAVED_AFTER_MS, 2 * _SAVED_AFTER_MS):
                self.stage.clock.after(after_ms, self._look_at_all)

    def set_clock(self, by_ms: int) -> None:
        """Somebody sets the clock of the broker's machine."""
        if self.core is not None:
            self._audit_now(self.core)
        leap_ms = self.host.wall.set(by_ms)
        if self.core is not None and leap_ms:
            self.core.clock_leapt(leap_ms)

    def _audit(self) -> None:
        core, stage = self.core, self.stage
        if core is not None:
            self._audit_now(core)
            if stage.chance.random() < 0.15:
                self._fork(core)
        stage.clock.after(stage.chance.randrange(_AUDIT_MS * 2), self._audit)

    def _answered(self) -> None:
        """An end was acknowledged: now and then, see what would be left of it."""
        core, stage = self.core, self.stage
        share = _FORKED_ANSWERS / self.plan.transactions_count
        if core is not None and stage.happens(share):
            self._audit_now(core)
            self._fork(core)

    def _look_at_all(self) -> None:
        if self.core is not None:
            self._audit_now(self.core)
            self._fork(self.core, (CrashLoss.NOTHING,))

    def _audit_now(self, core: BrokerCore) -> None:
        with self.disk.without_shortage():
            self.checker.audit(core)

    def _settled(self) -> None:
        if self.core is not None and not self.stage.is_calm:
            self._fork(self.core, (CrashLoss.ALL,))

    def _fork(self, core: BrokerCore, losses: Sequence[CrashLoss] = tuple(CrashLoss)) -> None:
        loss = self.stage.chance.choice(losses)
        with self.disk.without_shortage():
            self.checker.fork(core, self.disk, self.make_core, loss)


class _Alarm(logging.Handler):
    """What a core logs with a trace is a mistake of ours: an assertion, or worse."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if record.exc_info and record.exc_info[1] is not None:
            if is_out_of_descriptors(record.exc_info[1]):
                return
            raise Violation(record.getMessage()) from record.exc_info[1]
