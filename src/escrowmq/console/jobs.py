"""Operations on many items, run in the background. Each has a previewed plan, a progress and a
result, and can be stopped. Jobs are kept in memory: a restart forgets them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal

import msgspec

from escrowmq.console.answers import Answer
from escrowmq.console.audit import write_audit_line
from escrowmq.console.problems import Problem
from escrowmq.errors import EscrowMQError

KEPT_MAX: Final = 100
RUNNING_MAX: Final = 4
FAILURES_MAX: Final = 20
"""The most failures of a job that are described; further ones are only counted."""


class Job(Answer, kw_only=True):
    """One operation on many items, running or finished."""

    id: int
    what: str
    who: str
    state: Literal["running", "done", "stopped", "failed"] = "running"
    total: int | None = None
    """Number of items when the job began; null if they were not counted."""
    done: int = 0
    failed: int = 0
    failures: list[str] = msgspec.field(default_factory=list)
    began_s: float
    ended_s: float | None = None


JobSteps = Callable[[], AsyncIterator[str]]
"""The steps of a job. Each processes one item, and yields an empty text, or why that failed."""


class AccountJobs:
    """The jobs of one account."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._next = 1

    def start_job(self, what: str, steps: JobSteps, *, who: str, total: int | None) -> Job:
        """Start a job. Raises Problem if too many are running."""
        if len(self._tasks) >= RUNNING_MAX:
            raise Problem(
                429, "too_many_jobs", f"{RUNNING_MAX} jobs are already running",
                "wait for one of them, or stop it",
            )  # fmt: skip
        job = Job(id=self._next, what=what, who=who, total=total, began_s=self._now_s())
        self._next += 1
        self._jobs[job.id] = job
        while len(self._jobs) > KEPT_MAX:
            oldest = next(number for number in self._jobs if number not in self._tasks)
            del self._jobs[oldest]
        write_audit_line("job", id=job.id, who=who, state="running", what=what)
        task = asyncio.ensure_future(self._run_job(job, steps))
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.id, None))
        return job

    @property
    def running_count(self) -> int:
        """Number of running jobs."""
        return len(self._tasks)

    async def _run_job(self, job: Job, steps: JobSteps) -> None:
        try:
            async for failure in steps():
                job.done += 1
                if failure:
                    job.failed += 1
                    if len(job.failures) < FAILURES_MAX:
                        job.failures.append(failure)
            job.state = "done"
        except asyncio.CancelledError:
            job.state = "stopped"
            raise
        except EscrowMQError as error:
            job.state = "failed"
            job.failures.append(str(error))
        finally:
            if job.state == "running":
                job.state = "failed"
            job.ended_s = self._now_s()
            write_audit_line(
                "job", id=job.id, who=job.who, state=job.state, done=job.done, failed=job.failed
            )

    def all_jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""
        return list(reversed(self._jobs.values()))

    def find_job(self, id: int) -> Job:  # noqa: A002 - as the API calls it
        """Return the job with this id. Raises Problem if there is none."""
        found = self._jobs.get(id)
        if found is None:
            raise Problem(404, "no_job", f"there is no job {id}", "GET /api/v1/jobs lists them")
        return found

    def stop_job(self, id: int) -> Job:  # noqa: A002
        """Stop a job before its end; finished items stay as they are."""
        job = self.find_job(id)
        task = self._tasks.get(id)
        if task is not None:
            task.cancel()
        return job

    async def stop_all(self) -> None:
        """Stop all jobs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
