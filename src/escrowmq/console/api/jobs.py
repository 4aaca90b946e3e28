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


async def list_jobs(caller: Caller, wanted: NoParameters) -> list[Job]:
    """List the jobs of this account, the newest first."""
    return caller.account_client.jobs.all_jobs()


async def show_job(caller: Caller, wanted: JobWanted) -> Job:
    """Show a job's progress."""
    return caller.account_client.jobs.find_job(wanted.id)


async def stop_job(caller: Caller, wanted: JobStopped) -> Change:
    """Stop a job before its end."""
    job = caller.account_client.jobs.find_job(wanted.id)
    if wanted.dry_run:
        said = f"Job {job.id} would stop. What it has done stays done."
        return Change(is_dry_run=True, said=said, count=1)
    caller.account_client.jobs.stop_job(wanted.id)
    return Change(is_dry_run=False, said=f"Job {job.id} is stopped.", count=1)


OPERATIONS: Final = (
    Operation(name="jobs.list", method="GET", path="/jobs", wants=NoParameters, gives=list[Job],
              summary="Jobs in the background", handler=list_jobs),
    Operation(name="jobs.show", method="GET", path="/jobs/{id}", wants=JobWanted, gives=Job,
              summary="How far a job is", handler=show_job),
    Operation(name="jobs.stop", method="POST", path="/jobs/{id}/stop", wants=JobStopped,
              gives=Change, summary="Stop the job", handler=stop_job),
)  # fmt: skip
