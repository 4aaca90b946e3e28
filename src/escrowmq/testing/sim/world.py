"""A whole world in one thread, from one seed: broker, name server, producers, consumers, network
and disk, with everything that goes wrong between them, and a judge."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.settings import NameServerSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.frame import FrameReader
from escrowmq.errors import StorageError
from escrowmq.registry.core import RegistryCore
from escrowmq.testing.sim.checker import Checker, engine_of
from escrowmq.testing.sim.consumer import SimConsumer
from escrowmq.testing.sim.disk import Loss, SimCrash, SimDisk
from escrowmq.testing.sim.faults import Faults
from escrowmq.testing.sim.host import SimHost
from escrowmq.testing.sim.ledger import COMMIT, ROLLBACK, Ident, Ledger, Truth
from escrowmq.testing.sim.network import Address, Delays, SimNetwork
from escrowmq.testing.sim.plan import Plan, draw
from escrowmq.testing.sim.producer import SimProducer
from escrowmq.testing.sim.stage import Stage, Violation

_START_MS = 1_700_000_000_000
_BROKER: Address = ("10.0.0.1", 10911)
_REGISTRY: Address = ("10.0.0.2", 9876)
_AUDIT_MS = 120_000
_CALM_MS = 240_000
"""How long whatever is left may take to be settled, beside the intervals between checks."""
_CHECK_MARK = b'"code":%d,' % Request.CHECK_TRANSACTION_STATE
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
        self.checker = Checker(self.stage, self.plan, self.ledger)
        self.disk = SimDisk()
        self.core: BrokerCore | None = None
        self._plant = plant
        self._boot_count = 1
        self._durable_offset = 0
        self._loss = Loss.NOTHING
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
            died=lambda _: self.died(self.stage.chance.choice(list(Loss))),
        )
        self.host.on_send = self._sent
        self.producers = self._make_producers()
        self.consumers = self._make_consumers()
        self._registry: SimHost | None = None
        self._faults = Faults(self)

    def _make_producers(self) -> list[SimProducer]:
        groups = [group for group, count in self.plan.producers for _ in range(count)]
        return [
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

    def _make_consumers(self) -> list[SimConsumer]:
        queues = [(topic, n) for topic, count in self.plan.topics for n in range(count)]
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
            logger.propagate, logger.level = before
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
        for client in (*self.producers, *self.consumers):
            stage.clock.after(stage.chance.randrange(5_000), client.start)
        for number in range(plan.transactions_count):
            stage.clock.after(stage.chance.randrange(plan.chaos_ms), self._transaction(number))
        self._faults.schedule()
        stage.clock.after(_AUDIT_MS, self._audit)
        self.ledger.on_answer = self._answered
        stage.clock.run(_START_MS + plan.chaos_ms)
        self._calm_down()
        calm_ms = 6 * plan.check_interval_ms + _CALM_MS
        stage.clock.run(stage.clock.now_ms() + calm_ms)
        if self.core is None:
            raise Violation("the broker did not come back")
        self.checker.finish(self.core, lost_group=self.lost_group)
        self._finish(self.core)

    def _finish(self, core: BrokerCore) -> None:
        """A clean stop, and a start that finds the same."""
        self.checker.fork(core, self.disk, self.make_core, Loss.NOTHING)
        core.close(self.stage.clock.now_ms())
        self.host.stop()
        self.disk.restart()
        again = self.make_core(self.disk, Loss.NOTHING)
        again.open(self.stage.clock.now_ms())
        self.checker.opened(again, loss=Loss.NOTHING, durable_offset=0)

    def _calm_down(self) -> None:
        self.stage.is_calm = True
        self.stage.note("calm: no more faults")
        self._faults.mend()
        for truth in self.ledger.truths.values():
            if truth.known_ms > self.stage.clock.now_ms() + _CALM_MS:
                # Its producer went before it heard of its half: no local transaction was run.
                truth.verdict, truth.known_ms = ROLLBACK, 0
        for producer in self.producers:
            if producer.group != self.lost_group:
                producer.start()
        for consumer in self.consumers:
            consumer.start()

    def _start_registry(self) -> None:
        disk = SimDisk()
        host = SimHost(
            self.stage, self.network, _REGISTRY, disk=disk, sync_ms=lambda: 0, died=lambda _: None
        )
        now_ms = self.stage.clock.now_ms()
        host.start(RegistryCore(NameServerSettings(), disk, started_ms=now_ms))
        self._registry = host

    def _transaction(self, number: int) -> Callable[[], None]:
        key = f"T{self.plan.seed:06d}{number:06d}"

        def begin() -> None:
            chance = self.stage.chance
            topic, count = chance.choice(self.plan.topics)
            producer = chance.choice(self.producers)
            truth = Truth(
                group=producer.group,
                topic=topic,
                queue_id=chance.randrange(count),
                body=key.encode() + chance.randbytes(chance.choice((1, 50, 900))),
                verdict=COMMIT if chance.random() < 0.7 else ROLLBACK,
            )
            if producer.is_connected:
                self.ledger.truths[key] = truth
                producer.begin(key, truth)

        return begin

    # -- the broker --------------------------------------------------------------------------

    def make_core(self, disk: SimDisk, loss: Loss) -> BrokerCore:
        """A broker process, not yet opened; `loss` says what happened before."""
        boot = ""
        if self.plan.knows_boot:
            boot = f"boot {self._boot_count + (disk is not self.disk and loss is not Loss.NOTHING)}"
        core = BrokerCore(
            disk,
            self.plan.broker_settings("10.0.0.2:9876" if self.plan.has_registry else ""),
            self.plan.store_settings(),
            address=_BROKER,
            ha_address="10.0.0.1:10912",
            chance=random.Random(self.stage.chance.getrandbits(32)),
            boot=boot,
        )
        if self._plant is not None:
            self._plant(core)
        return core

    def open(self) -> None:
        """Start the broker on what its disk holds, unless it runs."""
        if self.core is not None:
            return
        core = self.make_core(self.disk, self._loss)
        now_ms = self.stage.clock.now_ms()
        self.disk.now_ms = now_ms
        try:
            core.open(now_ms)
        except SimCrash as crash:
            self.stage.note("the machine stops while the broker starts: %s", crash)
            self.died(self.stage.chance.choice(list(Loss)))
            return
        except (StorageError, OSError) as error:
            self.stage.note("the broker does not start: %s", error)
            self.disk.restart()
            self.stage.clock.after(5_000, self.open)
            return
        self.stage.note("the broker is open: %d pending", len(engine_of(core).pending))
        self.checker.opened(core, loss=self._loss, durable_offset=self._durable_offset)
        self._loss = Loss.NOTHING
        self._durable_offset = 0
        self.core = core
        self.host.start(core)

    def died(self, loss: Loss) -> None:
        """The broker's process, or its machine, is gone; it comes back after a while."""
        stage = self.stage
        stage.fault("process killed" if loss is Loss.NOTHING else "power lost", loss.name)
        if self.core is not None:
            self._durable_offset = self.core.broker.store.durable_offset
            self._loss = Loss.NOTHING
        if self._loss is Loss.NOTHING:
            self._loss = loss
        if loss is not Loss.NOTHING:
            self._boot_count += 1
        self.core = None
        self.host.stop(drops_bytes=loss is not Loss.NOTHING)
        self.disk.crash(stage.chance, loss)
        stage.clock.after(stage.chance.choice((50, 1_000, 20_000)), self.open)

    def restart(self) -> None:
        """A clean stop; it comes back after a while."""
        core = self.core
        if core is None:
            return
        self.stage.fault("clean restart")
        try:
            core.close(self.stage.clock.now_ms())
        except SimCrash:
            self.died(Loss.NOTHING)
            return
        self._loss = Loss.NOTHING
        self.core = None
        self.host.stop()
        self.disk.restart()
        self.stage.clock.after(self.stage.chance.choice((50, 1_000, 20_000)), self.open)

    # -- looking on --------------------------------------------------------------------------

    def _sent(self, chunk: bytes) -> None:
        """Count the checks that are handed to a connection."""
        if _CHECK_MARK in chunk[:40]:
            for command in FrameReader().feed(chunk):
                ext = command.ext or {}
                ident: Ident = (ext["transactionId"], int(ext["commitLogOffset"]))
                self.ledger.checks[ident] += 1
                self.stage.note("check of %s sent", ident)

    def _audit(self) -> None:
        core, stage = self.core, self.stage
        if core is not None:
            self.checker.audit(core)
            if stage.chance.random() < 0.15:
                self._fork(core)
        stage.clock.after(stage.chance.randrange(_AUDIT_MS * 2), self._audit)

    def _answered(self) -> None:
        """An end was acknowledged: now and then, see what would be left of it."""
        core, stage = self.core, self.stage
        share = _FORKED_ANSWERS / self.plan.transactions_count
        if core is not None and stage.happens(share):
            self.checker.audit(core)
            self._fork(core)

    def _fork(self, core: BrokerCore) -> None:
        loss = self.stage.chance.choice(list(Loss))
        self.checker.fork(core, self.disk, self.make_core, loss)


class _Alarm(logging.Handler):
    """What a core logs with a trace is a mistake of ours: an assertion, or worse."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if record.exc_info and record.exc_info[1] is not None:
            raise Violation(record.getMessage()) from record.exc_info[1]
