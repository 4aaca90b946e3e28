"""What a drill does to a process in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.group.drills import DrillFaults

if TYPE_CHECKING:
    from tests.harness.group import MemberHost


class HostFaults:
    """Of one member (group.drills.ProcessFaults)."""

    def __init__(self, host: MemberHost) -> None:
        self._host = host

    def kill(self) -> None:
        self._host.world.later(0, self._host.kill)

    def freeze(self, span_ms: int) -> None:
        world = self._host.world
        world.later(0, self._host.freeze)
        world.later(span_ms, self._host.thaw)


def drills_of(host: MemberHost) -> DrillFaults:
    """Its drills, which it refuses unless its world has some."""
    return DrillFaults(HostFaults(host) if host.world.has_drills else None)
