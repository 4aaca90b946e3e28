"""Runs a drill: injects one fault after another into a healthy group, while clients work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from escrowmq.client.admin.admin import Admin
from escrowmq.client.producer_settings import ConnectionSettings
from escrowmq.drill import final
from escrowmq.drill.faults import STEADY_PHASE, FaultStep
from escrowmq.drill.history import Event
from escrowmq.drill.judge import Violation
from escrowmq.drill.load import ClientLoad
from escrowmq.drill.preconditions import HealthyGroup
from escrowmq.drill.report import DrillReport, FaultSpan, make_rows, violations_in, with_verdict
from escrowmq.drill.watch import GroupWatch
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.net.clock import SystemClock, steady_ns

QUEUES: Final = 4
PREFIX: Final = "escrow-drill-"

_WARM_COUNT: Final = 20
_WARM_S: Final = 30.0
_MOVED_S: Final = 30.0
_ENDED_S: Final = 10.0
_SERVED_S: Final = 30.0
_LOOK_S: Final = 0.05


class DrillParameters(msgspec.Struct, kw_only=True, frozen=True):
    """The parameters of a drill."""

    drill: str
    rate: int
    steady_s: float = 3.0
    """Seconds for which the group is observed before the first fault and after each fault."""
    within_s: float = 120.0
    """Timeout in seconds until all members must be in sync again."""


class GroupUnhealthy(Exception):
    """Raised if the group does not behave like a healthy one, so that the drill stops."""


class Drill:
    """Runs one drill. Calling `stop`, as a signal handler does, ends the current phase: the first
    call ends the faults, the next one ends the waiting that follows."""

    def __init__(
        self,
        admin: Admin,
        ground: HealthyGroup,
        steps: Sequence[FaultStep],
        terms: DrillParameters,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """`tell` is called with lines about the progress, for people."""
        self._admin = admin
        self._ground = ground
        self._steps = steps
        self._terms = terms
        self._tell = tell
        self._clock = SystemClock()
        self._watch = GroupWatch(admin, ground.broker, ground.members)
        self._load: ClientLoad | None = None
        self._phase: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._spans: list[FaultSpan] = []
        self.final: list[Event] = []
        """All messages in the queues at the end."""
        self._is_read = False
        self._pending: frozenset[str] = frozenset()
        """Transactions that are still pending at the end."""
        self._notes: list[str] = []

    def stop(self) -> None:
        """End the current phase."""
        self._is_stopped = True
        if self._phase is not None:
            self._phase.cancel()

    async def run(
        self, servers: str | None, settings: ConnectionSettings, file: BinaryIO | None = None
    ) -> DrillReport:
        """Run the whole drill, and return the report. `file` gets the clients' results."""
        ground, terms = self._ground, self._terms
        topic = PREFIX + terms.drill
        begun_ms, begun_ns = self._clock.now_ms(), steady_ns()
        load = self._load = ClientLoad(servers, settings, name=topic, rate=terms.rate, file=file)
        hints: list[str] = []
        try:
            await self._reserve_members()
            await self._admin.topics.create(topic, queues=QUEUES, broker=ground.broker)
            try:
                async with self._watch, load:
                    if not self._is_stopped:
                        await self._run_phase(self._inject_faults(load))
                    await self._release_members()
                    await self._run_phase(self._finish(load))
            finally:
                hints += await final.clean_up(self._admin, topic, (load.readers,))
        finally:
            await self._release_members()
        findings: list[Violation] = []
        if self._is_read:
            findings = violations_in(load.events, self.final, pending=self._pending)
        report = DrillReport(
            drill=terms.drill, broker=ground.broker, members=sorted(ground.members),
            rate=terms.rate, begun_ms=begun_ms,
            took_ms=(steady_ns() - begun_ns) // 1_000_000,
            rows=make_rows(self._spans, load.events, findings), findings=[], findings_count=0,
            notes=self._notes, hints=hints, is_interrupted=self._is_stopped,
            is_judged=self._is_read,
        )  # fmt: skip
        return with_verdict(report, findings)

    async def _run_phase(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one phase, unless `stop` ends it. A refusal is added to the report."""
        self._phase = asyncio.create_task(work)
        try:
            await self._phase
        except asyncio.CancelledError:
            if not self._phase.cancelled() or not self._is_stopped:
                raise
        except (EscrowMQError, GroupUnhealthy) as error:
            self._notes.append(str(error))
        finally:
            self._phase = None

    # -- members -----------------------------------------------------------------------------

    async def _send_order(self, name: str, fault: str = "", span_ms: int = 0) -> None:
        await self._admin.replicas.drill(
            self._watch.addresses[name], self._terms.drill, fault, span_ms=span_ms, member=name
        )

    async def _reserve_members(self) -> None:
        """Reserve all members for this drill, so that no other one begins."""
        await asyncio.gather(*map(self._send_order, self._ground.members))

    async def _release_members(self) -> None:
        """End the drill, and its faults, at all members. An unreachable member ends them by
        itself."""
        ends = (self._send_order(name, "end") for name in self._ground.members)
        await asyncio.gather(*ends, return_exceptions=True)

    # -- faults ------------------------------------------------------------------------------

    async def _inject_faults(self, load: ClientLoad) -> None:
        def is_warm() -> bool:
            return len(load.acknowledged_ns) >= _WARM_COUNT

        if not await self._await_condition(is_warm, _WARM_S):
            raise UsageError(
                f"the group acknowledges too little before any fault: {len(load.acknowledged_ns)} "
                f"in {_WARM_S:g} s ({load.last_error or 'no error'})"
            )
        span = self._begin_span(
            STEADY_PHASE, "", "nothing happens", "all is acknowledged without a pause"
        )
        await asyncio.sleep(self._terms.steady_s)
        await self._await_recovery(span, load)
        for step in self._steps:
            await self._run_step(step, load)
            await asyncio.sleep(self._terms.steady_s)

    def _begin_span(self, fault: str, member: str, what: str, expected: str) -> FaultSpan:
        watch = self._watch
        span = FaultSpan(
            fault=fault, member=member, what=what, expected=expected, at_ms=self._clock.now_ms(),
            begin_ns=steady_ns(), master_before=watch.master, epoch_before=watch.newest_epoch,
        )  # fmt: skip
        span.end_ns = span.begin_ns + 1  # until more is known
        self._spans.append(span)
        return span

    async def _run_step(self, step: FaultStep, load: ClientLoad) -> None:
        await self._reserve_members()
        watch, takeover_ms = self._watch, self._ground.takeover_ms
        copies = sorted(self._ground.members.keys() - {watch.master})
        member = watch.master if step.at == "master" else copies[0]
        silences = watch.silences[member]
        span = self._begin_span(
            step.name, member, step.description, step.expected_effect(takeover_ms)
        )
        self._tell(f"{step.name}: {member} {step.description}; expected: {span.expected}")
        try:
            await self._send_order(member, step.fault, step.span_ms)
            await asyncio.sleep(step.span_ms / 1000)
            if step.moves_master(takeover_ms):
                await self._await_master_change(span)
            if step.fault == "kill":
                await self._await_restart(member, silences)
            await self._await_recovery(span, load)
        except (EscrowMQError, GroupUnhealthy) as error:
            span.notes.append(str(error))
            raise GroupUnhealthy(f"no further fault was tried after {step.name}") from error
        finally:
            self._end_span(span)

    def _end_span(self, span: FaultSpan) -> None:
        span.end_ns = max(steady_ns(), span.begin_ns + 1)
        span.master_after, span.epoch_after = self._watch.master, self._watch.newest_epoch

    async def _await_master_change(self, span: FaultSpan) -> None:
        watch = self._watch

        def has_moved() -> bool:
            return watch.newest_epoch > span.epoch_before and watch.master not in (
                "",
                span.master_before,
            )

        if not await self._await_condition(has_moved, _MOVED_S):
            raise GroupUnhealthy(
                f"no other member became the master within {_MOVED_S:g} s; it is "
                f"{watch.master or 'none'}"
            )

    async def _await_restart(self, member: str, silences: int) -> None:
        """Wait until a killed member has stopped answering, and its supervisor has started it
        again."""
        watch = self._watch
        if not await self._await_condition(lambda: watch.silences[member] > silences, _ENDED_S):
            raise GroupUnhealthy(f"{member} did not end")
        within_s = self._terms.within_s
        if not await self._await_condition(lambda: watch.reports[member] is not None, within_s):
            raise GroupUnhealthy(
                f"{member} did not come back within {within_s:g} s: no supervisor started it"
            )

    async def _await_recovery(self, span: FaultSpan, load: ClientLoad) -> None:
        """Wait until all members are in sync, and a send that began after that is acknowledged."""
        watch, within_s = self._watch, self._terms.within_s
        if not await self._await_condition(lambda: not watch.members_out_of_sync, within_s):
            raise GroupUnhealthy(
                f"not in sync again within {within_s:g} s: {', '.join(watch.members_out_of_sync)}"
            )
        span.in_sync_ns = steady_ns()
        if not await self._await_condition(lambda: load.begun_ns > span.in_sync_ns, _SERVED_S):
            raise GroupUnhealthy(
                f"nothing was acknowledged for {_SERVED_S:g} s ({load.last_error or 'no error'})"
            )
        self._end_span(span)
        took_s = (span.in_sync_ns - span.begin_ns) / 1e9
        if span.member:
            self._tell(
                f"{span.fault}: the master is {watch.master} (epoch {watch.newest_epoch}), all "
                f"members are in sync after {took_s:.1f} s"
            )
        for epoch, names in watch.epochs_with_rivals.items():
            raise GroupUnhealthy(f"epoch {epoch} has several masters: {', '.join(names)}")

    async def _await_condition(self, what: Callable[[], bool], within_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while not what():
            if loop.time() >= end_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    # -- the end -----------------------------------------------------------------------------

    async def _finish(self, load: ClientLoad) -> None:
        self._tell("transactions settle, and all queues are read")
        within_s = self._terms.within_s
        if not await self._await_condition(lambda: not self._watch.members_out_of_sync, within_s):
            lacking = ", ".join(self._watch.members_out_of_sync)
            self._notes.append(f"not in sync after {within_s:g} s: {lacking}")
        await load.stop()
        self._pending = await final.settle_transactions(
            self._admin, self._ground.broker, load.group
        )
        if self._pending:
            self._notes.append(
                f"{len(self._pending)} transactions are pending still: they are not judged"
            )
        self.final, notes = await final.read_all_queues(self._admin, load.topic)
        self._notes += notes
        self._is_read = not notes
