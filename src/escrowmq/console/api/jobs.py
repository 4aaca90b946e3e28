"""Deeds on many that run in the background."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.console.jobs import Job
from escrowmq.console.operations import Asking, Change, Deed, Nothing, Operation


class JobWanted(msgspec.Struct, kw_only=True):
    """Which one."""

    id: int


class JobStopped(Deed, kw_only=True):
    """Which one."""

    id: int


async def listed(asking: Asking, wanted: Nothing) -> list[Job]:
    """Those of this account, the newest first."""
    return asking.desk.jobs.all()


async def show(asking: Asking, wanted: JobWanted) -> Job:
    """How far one is."""
    return asking.desk.jobs.get(wanted.id)


async def stop(asking: Asking, wanted: JobStopped) -> Change:
    """Let one end before it is through."""
    job = asking.desk.jobs.get(wanted.id)
    if wanted.dry_run:
        said = f"Job {job.id} would stop. What it has done stays done."
        return Change(is_dry_run=True, said=said, count=1)
    asking.desk.jobs.stop(wanted.id)
    return Change(is_dry_run=False, said=f"Job {job.id} is stopped.", count=1)


OPERATIONS: Final = (
    Operation(name="jobs.list", method="GET", path="/jobs", wants=Nothing, gives=list[Job],
              summary="Jobs in the background", handler=listed),
    Operation(name="jobs.show", method="GET", path="/jobs/{id}", wants=JobWanted, gives=Job,
              summary="How far a job is", handler=show),
    Operation(name="jobs.stop", method="POST", path="/jobs/{id}/stop", wants=JobStopped,
              gives=Change, summary="Stop the job", handler=stop),
)  # fmt: skip
