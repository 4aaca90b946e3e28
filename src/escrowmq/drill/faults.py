"""The faults of a drill: their order, their targets, their durations, and the expected effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from escrowmq.errors import UsageError
from escrowmq.group.drills import SPAN_MAX_MS, SPAN_MIN_MS, SUDDEN

Target = Literal["master", "copy"]

STEADY_PHASE: Final = "none"
"""The name of the phase before the first fault, which shows how the group behaves without
faults."""

DEFAULT_FAULTS: Final = ("switch", "authority", "cut", "isolate", "freeze")
"""The default faults, the mildest first. If the group fails during one, the drill stops before the
next."""

KNOWN: Final = (*DEFAULT_FAULTS, "kill")
STEPS_MAX: Final = 50

SPAN_MIN_S: Final = SPAN_MIN_MS / 1000
SPAN_MAX_S: Final = SPAN_MAX_MS / 1000

_SILENCE_MARGIN_MS: Final = 2_000
"""How much longer than `escrowTakeover`, in ms, a silence must last to be noticed with
certainty."""

_DONE: Final = {
    "switch": "hands over to another member",
    "kill": "ends as by kill -9",
    "freeze": "stops as by SIGSTOP",
    "cut": "has no connection to the other members",
    "isolate": "has no connection to the other members and the authority",
    "authority": "does not reach the authority",
}


class FaultStep(msgspec.Struct, frozen=True):
    """One fault of a drill."""

    fault: str
    at: Target
    span_ms: int = 0
    """How long the fault lasts, in ms; 0 if the fault has no set duration."""

    @property
    def name(self) -> str:
        """The fault's name on the command line."""
        return self.fault if self.at == "master" else f"{self.fault}@{self.at}"

    @property
    def description(self) -> str:
        """Describe the fault, as a clause about the member."""
        span = f" for {self.span_ms / 1000:g} s" if self.span_ms else ""
        return _DONE[self.fault] + span

    def moves_master(self, takeover_ms: int) -> bool:
        """Whether another member must be master afterwards."""
        if self.at == "copy":
            return False
        if self.fault in SUDDEN:
            return True
        return (
            self.fault in ("freeze", "isolate") and self.span_ms >= takeover_ms + _SILENCE_MARGIN_MS
        )

    def expected_effect(self, takeover_ms: int) -> str:
        """Describe how a healthy group should behave during the fault."""
        if self.at == "copy":
            return "the master goes on, without it until it is back"
        if self.fault == "switch":
            return "another member is the master, a fraction of a second later"
        if self.fault == "kill":
            return "another member takes over at once; a supervisor starts this one again"
        if self.fault == "authority":
            return "nobody notices"
        if self.fault == "cut":
            return "it goes on alone, from its disk, or another member takes over"
        if self.moves_master(takeover_ms):
            return f"another member takes over after {takeover_ms / 1000:g} s of silence"
        return f"a pause: {takeover_ms / 1000:g} s of silence pass before another takes over"


def plan_steps(
    names: Iterable[str], *, seconds: float, kills: bool, rounds: int = 1
) -> list[FaultStep]:
    """Return the steps of a drill; without names, those of `DEFAULT_FAULTS`. Raises UsageError for
    names or durations that are not allowed."""
    if not SPAN_MIN_S <= seconds <= SPAN_MAX_S:
        raise UsageError(
            f"--seconds {seconds:g}: {SPAN_MIN_S:g} to {SPAN_MAX_S:g} is allowed; a member heals "
            "itself by then"
        )
    chosen = list(names) or [*DEFAULT_FAULTS, *(["kill"] if kills else [])]
    steps = [_make_step(name, seconds) for name in chosen] * rounds
    if not 1 <= len(steps) <= STEPS_MAX:
        raise UsageError(f"{len(steps)} faults: 1 to {STEPS_MAX} are allowed in one drill")
    if not kills and any(step.fault == "kill" for step in steps):
        raise UsageError(
            "kill ends processes, and a supervisor (systemd, Kubernetes, ...) must restart "
            "them: confirm with --kill that there is one"
        )
    return steps


def _make_step(name: str, seconds: float) -> FaultStep:
    fault, _, at = name.partition("@")
    if fault not in KNOWN or at not in ("", "master", "copy"):
        raise UsageError(
            f"{name}: one of {', '.join(KNOWN)} is expected, with @copy appended for a copy"
        )
    if fault == "switch" and at == "copy":
        raise UsageError("switch@copy: only a master can hand over")
    span_ms = 0 if fault in SUDDEN else round(seconds * 1000)
    return FaultStep(fault, "copy" if at == "copy" else "master", span_ms)
