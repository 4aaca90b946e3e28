from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from escrowmq.console import jobs
from escrowmq.console.jobs import AccountJobs
from escrowmq.console.problems import Problem
from escrowmq.errors import ConnectionLost


async def three() -> AsyncIterator[str]:
    for nth in range(3):
        yield "it was settled before" if nth == 1 else ""


async def for_ever() -> AsyncIterator[str]:
    while True:
        yield ""
        await asyncio.sleep(0)


async def broken() -> AsyncIterator[str]:
    yield ""
    raise ConnectionLost("the broker is gone")


async def ended(found: AccountJobs, number: int) -> None:
    while found.find_job(number).ended_s is None:
        await asyncio.sleep(0)


def test_a_job_counts_what_it_did_and_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "escrowmq.audit")

    async def main() -> None:
        found = AccountJobs(lambda: 5.0)
        job = found.start_job("commit all", three, who="ann", total=3)
        assert job.state == "running"
        await ended(found, job.id)
        assert (job.state, job.done, job.failed) == ("done", 3, 1)
        assert job.failures == ["it was settled before"]
        assert found.all_jobs() == [job]

    asyncio.run(main())
    assert 'who=ann state=running what="commit all"' in caplog.text
    assert "state=done done=3 failed=1" in caplog.text


def test_a_job_can_be_stopped_and_says_how_far_it_was() -> None:
    async def main() -> None:
        found = AccountJobs(lambda: 5.0)
        job = found.start_job("all", for_ever, who="ann", total=None)
        while job.done < 10:
            await asyncio.sleep(0)
        found.stop_job(job.id)
        await ended(found, job.id)
        assert job.state == "stopped"
        assert job.done >= 10
        found.stop_job(job.id)
        assert job.state == "stopped"

    asyncio.run(main())


def test_a_broker_that_goes_ends_the_job_with_its_reason() -> None:
    async def main() -> None:
        found = AccountJobs(lambda: 5.0)
        job = found.start_job("all", broken, who="ann", total=None)
        await ended(found, job.id)
        assert (job.state, job.done, job.failures) == ("failed", 1, ["the broker is gone"])

    asyncio.run(main())


def test_jobs_are_bounded() -> None:
    async def main() -> None:
        found = AccountJobs(lambda: 5.0)
        for _ in range(jobs.RUNNING_MAX):
            found.start_job("all", for_ever, who="ann", total=None)
        with pytest.raises(Problem, match="already running"):
            found.start_job("one more", three, who="ann", total=None)
        with pytest.raises(Problem, match="there is no job 99"):
            found.stop_job(99)
        await found.stop_all()
        await asyncio.sleep(0)
        for _ in range(jobs.KEPT_MAX + 5):
            await ended(found, found.start_job("short", three, who="ann", total=3).id)
            await asyncio.sleep(0)
        assert len(found.all_jobs()) == jobs.KEPT_MAX

    asyncio.run(main())
