"""What a drill does to a process: real ones, also the first of a container."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from escrowmq.base.authority import ABSENT
from escrowmq.base.group_report import FaultReport
from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import AuthorityUnreachable
from escrowmq.group.drills import DrillFaults, decode_fault_order
from escrowmq.node.drill_faults import CutOffAuthority, ProcessFaults
from escrowmq.node.group_folder import GroupFolder
from escrowmq.testing.authority import MemoryAuthority

PROGRAM = """
import asyncio, sys, threading, time
from escrowmq.node.drill_faults import ProcessFaults

class Gap:
    def __init__(self): self.last, self.longest = time.monotonic(), 0.0
    def tick(self):
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now

loop_gap, thread_gap, over = Gap(), Gap(), threading.Event()

def run():
    while not over.wait(0.01): thread_gap.tick()
    thread_gap.tick()

async def main():
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    process = ProcessFaults()
    if sys.argv[1] == "kill": process.kill()
    else: process.freeze(int(sys.argv[2]))
    begun = time.monotonic()
    while loop_gap.longest < 0.5 and time.monotonic() < begun + 10:
        await asyncio.sleep(0.01)
        loop_gap.tick()
    over.set()
    thread.join()
    print(loop_gap.longest, thread_gap.longest, flush=True)

asyncio.run(main())
"""

INIT = ("unshare", "--fork", "--pid", "--kill-child")


def run(*words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def gaps(*words: str, before: tuple[str, ...] = ()) -> tuple[float, float]:
    done = run(*words, before=before)
    assert done.returncode == 0, done.stderr
    of_loop, of_thread = map(float, done.stdout.split())
    return of_loop, of_thread


def can_be_init() -> bool:
    if shutil.which(INIT[0]) is None:
        return False
    return subprocess.run([*INIT, "true"], capture_output=True, check=False).returncode == 0


needs_init = pytest.mark.skipif(not can_be_init(), reason="no new namespace of processes here")


def test_a_frozen_process_stops_with_all_its_threads_and_goes_on() -> None:
    of_loop, of_thread = gaps("freeze", "700")
    assert 0.6 < of_loop < 5
    assert of_thread > 0.6


def test_a_killed_process_ends_by_signal_9() -> None:
    done = run("kill")
    assert (done.returncode, done.stdout) == (-9, "")


@needs_init
def test_the_first_process_of_a_container_stops_its_loop() -> None:
    of_loop, _ = gaps("freeze", "700", before=INIT)
    assert 0.6 < of_loop < 5


@needs_init
def test_the_first_process_of_a_container_ends_at_once() -> None:
    done = run("kill", before=INIT)
    assert (done.returncode, done.stdout) == (137, "")


def test_an_authority_is_not_reached_while_a_drill_says_so() -> None:
    real, now_ms = MemoryAuthority(), 0
    drills = DrillFaults(ProcessFaults())
    drilled = CutOffAuthority(real, drills, lambda: now_ms)

    def order(fault: str) -> None:
        fields = {"fault": fault, "ms": "1000", "drill": "d"}
        drills.inject(decode_fault_order(fields, who="me", at_ms=0), me="a", now_ms=now_ms)

    async def play() -> None:
        nonlocal now_ms
        assert drilled.name == real.name
        await drilled.require_fit()
        assert await drilled.read("k") == ABSENT
        order("authority")
        writes = real.writes_count
        with pytest.raises(AuthorityUnreachable, match="a drill cuts this member off from it"):
            await drilled.read("k")
        with pytest.raises(AuthorityUnreachable):
            await drilled.write_if("k", b"v", "")
        assert real.writes_count == writes
        now_ms = 1_000
        assert await drilled.write_if("k", b"v", "") is not None
        assert (await drilled.read("k")).value == b"v"

    asyncio.run(play())


def test_an_answer_that_comes_during_a_drill_is_lost() -> None:
    """The write has taken effect, as when a network loses the answer."""
    drills = DrillFaults(ProcessFaults())
    order = decode_fault_order({"fault": "isolate", "ms": "1000", "drill": "d"}, who="me", at_ms=0)

    class Slow(MemoryAuthority):
        async def write_if(self, key: str, value: bytes, revision: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
            found = await super().write_if(key, value, revision)
            drills.inject(order, me="a", now_ms=0)
            return found

        async def read(self, key: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
            found = await super().read(key)
            drills.inject(order, me="a", now_ms=5_000)
            return found

    real, now_ms = Slow(), 0

    async def play() -> None:
        nonlocal now_ms
        drilled = CutOffAuthority(real, drills, lambda: now_ms)
        with pytest.raises(AuthorityUnreachable):
            await drilled.write_if("k", b"v", "")
        assert real.read_now("k").value == b"v"
        now_ms = 5_000
        with pytest.raises(AuthorityUnreachable):
            await drilled.read("k")

    asyncio.run(play())


def test_what_drills_did_outlives_the_process(tmp_path: Path) -> None:
    def folder() -> GroupFolder:
        return GroupFolder(str(tmp_path), "", StoreSettings(), boot="b")

    note = FaultReport(at_ms=1, fault="authority", span_ms=100, who="anna", drill="d")
    assert folder().read_faults() == ()
    drills = DrillFaults(ProcessFaults(), notes=folder().read_faults(), keep=folder().write_faults)
    fields = {"fault": "authority", "ms": "100", "drill": "d"}
    drills.inject(decode_fault_order(fields, who="anna", at_ms=1), me="a", now_ms=0)
    assert folder().read_faults() == (note,)
    (tmp_path / "drills.json").write_text(json.dumps({"odd": 1}))
    assert folder().read_faults() == ()
