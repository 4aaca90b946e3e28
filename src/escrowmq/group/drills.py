"""Faults that a member injects into itself when an operator requests it (`escrowmq cluster drill`).
Each ends by itself, at the latest after `SPAN_MAX_MS`, even if the operator is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from escrowmq.base.group_report import FaultReport
from escrowmq.errors import UsageError

_log = logging.getLogger(__name__)

SPAN_MIN_MS: Final = 100
SPAN_MAX_MS: Final = 60_000

DRILL_MS: Final = 120_000
"""A member takes a drill for ended if it has heard nothing of it for this many ms."""

FAULTS_REMEMBERED_MAX: Final = 50
"""Limit of the faults that are remembered."""

_NAME_MAX: Final = 64
_DIGITS: Final = 9
"""Limit of the digits of a number in a request; `SPAN_MAX_MS` has fewer."""

JOIN: Final = ""
"""The request to join a drill: it injects no fault, and keeps other drills from beginning."""
END: Final = "end"
"""The request to end a drill, and to undo its faults at this member."""
SWITCH: Final = "switch"
SUDDEN: Final = frozenset({SWITCH, "kill"})
SPANS: Final = frozenset({"freeze", "cut", "isolate", "authority"})

CUT_OFF: Final = "a drill keeps this member from the others"
"""The reason with which connections to other members are closed."""

_CUT: Final = frozenset({"cut", "isolate"})
_WITHOUT_AUTHORITY: Final = frozenset({"isolate", "authority"})


class ProcessFaults(Protocol):
    """Faults that only the process can inject. Both begin a moment later, after the answer was
    sent."""

    def kill(self) -> None:
        """End the process as by kill -9."""

    def freeze(self, span_ms: int) -> None:
        """Suspend the process for a time, as by SIGSTOP."""


class FaultOrder(msgspec.Struct, kw_only=True, frozen=True):
    """An operator's request for a fault."""

    fault: str
    span_ms: int
    drill: str
    """The drill that it belongs to."""
    member: str
    """The member that is meant, because the address may belong to another member by now; empty for
    any."""
    is_dry_run: bool
    who: str
    at_ms: int

    @property
    def is_fault(self) -> bool:
        """Whether the request injects a fault into the member."""
        return self.fault not in (JOIN, END)


def decode_fault_order(fields: Mapping[str, str], *, who: str, at_ms: int) -> FaultOrder:
    """Decode a request for a fault. Raises UsageError if it is invalid."""
    fault, span, drill = fields.get("fault", JOIN), fields.get("ms", "0"), fields.get("drill", "")
    if fault not in {JOIN, END} | SUDDEN | SPANS:
        raise UsageError(f"fault={fault}: one of {', '.join(sorted(SUDDEN | SPANS))} is expected")
    span_ms = int(span[:_DIGITS]) if span.isdecimal() else -1
    if fault in SPANS and not SPAN_MIN_MS <= span_ms <= SPAN_MAX_MS:
        raise UsageError(f"ms={span[:_NAME_MAX]}: {SPAN_MIN_MS} to {SPAN_MAX_MS} is allowed")
    if not 0 < len(drill) <= _NAME_MAX:
        raise UsageError(f"a drill has a name of 1 to {_NAME_MAX} characters")
    return FaultOrder(
        fault=fault,
        span_ms=span_ms if fault in SPANS else 0,
        drill=drill,
        member=fields.get("member", ""),
        is_dry_run=fields.get("isDryRun") == "true",
        who=who,
        at_ms=at_ms,
    )


class DrillFaults:
    """The faults of one member, in whatever role it is. Times are the member's own, which do not
    jump with the clock."""

    def __init__(
        self,
        process: ProcessFaults | None = None,
        *,
        notes: tuple[FaultReport, ...] = (),
        keep: Callable[[tuple[FaultReport, ...]], None] | None = None,
    ) -> None:
        """Without `process` (escrowDrills=false) every order is refused. `keep` stores `notes`
        durably, because the process may be about to end."""
        self._process = process
        self.notes = notes
        self._keep = keep
        self._drill = self._who = ""
        self._heard_ms = 0
        self._fault = ""
        self._until_ms = 0

    def inject(self, order: FaultOrder, *, me: str, now_ms: int) -> None:
        """Inject a fault, or join or end a drill. A change of the master is left to the caller.
        Raises UsageError before anything is done."""
        process = self._process
        if process is None:
            raise UsageError(
                f"member {me} takes part in no drill: it was not started with escrowDrills=true"
            )
        if order.member not in ("", me):
            raise UsageError(f"this is member {me}, and the order is for {order.member}")
        is_busy = self._drill not in ("", order.drill) and now_ms < self._heard_ms + DRILL_MS
        if is_busy:
            raise UsageError(
                f"member {me} is in drill {self._drill} of {self._who}, which was active "
                f"{(now_ms - self._heard_ms) / 1000:.0f} s ago; only one drill is allowed at "
                "a time, and a drill that does not sign off is forgotten after "
                f"{DRILL_MS // 1000} s"
            )
        if order.is_fault and self._active_fault(now_ms):
            raise UsageError(
                f"{self._fault} of member {me} lasts for another "
                f"{(self._until_ms - now_ms) / 1000:.1f} s; only one fault is allowed at a "
                "time"
            )
        if order.is_dry_run:
            return
        self._drill, self._who, self._heard_ms = order.drill, order.who, now_ms
        if order.fault == END:
            self._end_drill()
        elif order.is_fault:
            self._begin_fault(order, process, now_ms)

    def _begin_fault(self, order: FaultOrder, process: ProcessFaults, now_ms: int) -> None:
        self._record_fault(order)
        if order.fault == "kill":
            process.kill()
        elif order.fault in SPANS:
            self._fault, self._until_ms = order.fault, now_ms + order.span_ms
            if order.fault == "freeze":
                process.freeze(order.span_ms)

    def _record_fault(self, order: FaultOrder) -> None:
        span = f" for {order.span_ms} ms" if order.span_ms else ""
        _log.warning("drill %s of %s: %s%s", order.drill, order.who, order.fault, span)
        note = FaultReport(
            at_ms=order.at_ms, fault=order.fault, span_ms=order.span_ms, who=order.who,
            drill=order.drill,
        )  # fmt: skip
        self.notes = (*self.notes, note)[-FAULTS_REMEMBERED_MAX:]
        if self._keep is not None:
            self._keep(self.notes)

    def _end_drill(self) -> None:
        _log.info("drill %s of %s has ended", self._drill, self._who)
        self._drill = self._who = self._fault = ""

    def _active_fault(self, now_ms: int) -> str:
        return self._fault if now_ms < self._until_ms else ""

    def is_cut_off(self, now_ms: int) -> bool:
        """Whether a fault cuts this member off from the other members."""
        return self._active_fault(now_ms) in _CUT

    def lacks_authority(self, now_ms: int) -> bool:
        """Whether a fault cuts this member off from the authority."""
        return self._active_fault(now_ms) in _WITHOUT_AUTHORITY
