"""Operations on many items, which run in the background."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.console.jobs import Job
from escrowmq.console.operations import Caller, Change, ChangeParameters, NoParameters, Operation


class JobWanted(msgspec.Struct, kw_only=True):
    """The job to show."""

    id: int


class JobStopped(ChangeParameters, kw_only=True):
    """The job to stop."""

    id: int


async def listed(caller: Caller, wanted: NoParameters) -> list[Job]:
    """List the jobs of this account, the newest first."""
    return caller.desk.jobs.all()


async def show(caller: Caller, wanted: JobWanted) -> Job:
    """Show a job's progress."""
    return caller.desk.jobs.get(wanted.id)


async def stop(caller: Caller, wanted: JobStopped) -> Change:
    """Stop a job before its end."""
    job = caller.desk.jobs.get(wanted.id)
    if wanted.dry_run:
        said = f"Job {job.id} would stop. What it has done stays done."
        return Change(is_dry_run=True, said=said, count=1)
    caller.desk.jobs.stop(wanted.id)
    return Change(is_dry_run=False, said=f"Job {job.id} is stopped.", count=1)


OPERATIONS: Final = (
    Operation(name="jobs.list", method="GET", path="/jobs", wants=NoParameters, gives=list[Job],
              summary="Jobs in the background", handler=listed),
    Operation(name="jobs.show", method="GET", path="/jobs/{id}", wants=JobWanted, gives=Job,
              summary="How far a job is", handler=show),
    Operation(name="jobs.stop", method="POST", path="/jobs/{id}/stop", wants=JobStopped,
              gives=Change, summary="Stop the job", handler=stop),
)  # fmt: skip
