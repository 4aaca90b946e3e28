"""Faults that a drill injects into this process, and into its connection to the authority
(`group/drills`)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from escrowmq.base.authority import Authority, VersionedRecord
from escrowmq.errors import AuthorityUnreachable
from escrowmq.group.drills import DrillFaults

_log = logging.getLogger(__name__)

_ANSWER_S: Final = 0.1
"""The seconds between a drill's request and its fault, so that the answer is sent before the
process is stopped."""

_KILLED: Final = 128 + signal.SIGKILL
_INIT: Final = 1

_STOPPER: Final = """
import os, signal, sys, time
process, span_s = int(sys.argv[1]), float(sys.argv[2])
if os.getppid() == process:
    os.kill(process, signal.SIGSTOP)
    time.sleep(span_s)
    if os.getppid() == process:
        os.kill(process, signal.SIGCONT)
"""
"""Program of a helper process that stops its parent and continues it later: a stopped process
cannot wake itself up. If the parent is killed meanwhile, its number may be reused; the helper then
has another parent, and sends no signal."""


class ProcessFaults:
    """The faults of this process: it can be killed or frozen."""

    def __init__(self) -> None:
        self._stoppers: set[asyncio.Task[None]] = set()

    def kill(self) -> None:
        """End the process in a moment, without flushing or notifying anything."""
        asyncio.get_running_loop().call_later(_ANSWER_S, _kill_now)

    def freeze(self, span_ms: int) -> None:
        """Suspend the process for a time, in a moment."""
        loop = asyncio.get_running_loop()
        if os.getpid() == _INIT:
            # The first process of a container gets no SIGSTOP from inside.
            loop.call_later(_ANSWER_S, time.sleep, span_ms / 1000)
        else:
            loop.call_later(_ANSWER_S, self._start_suspending, span_ms / 1000)

    def _start_suspending(self, span_s: float) -> None:
        task = asyncio.get_running_loop().create_task(_suspend(span_s))
        self._stoppers.add(task)
        task.add_done_callback(self._stoppers.discard)


def _kill_now() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(_KILLED)  # the first process of a container is not killed from inside


async def _suspend(span_s: float) -> None:
    words = [sys.executable, "-I", "-S", "-c", _STOPPER, str(os.getpid()), str(span_s)]
    try:
        # In a session of its own, so that ending a command line's process group does not end it.
        stopper = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        _log.warning("this process cannot be suspended: %s", error)
        return
    await stopper.wait()


class CutOffAuthority:
    """An authority that a drill can make unreachable for this member."""

    def __init__(self, real: Authority, drills: DrillFaults, now_ms: Callable[[], int]) -> None:
        self._real = real
        self._drills = drills
        self._now_ms = now_ms

    @property
    def name(self) -> str:
        """The engine's name and its address."""
        return self._real.name

    async def read(self, key: str) -> VersionedRecord:
        """Return the newest record of a key. Raises AuthorityUnreachable during a drill."""
        self._raise_if_cut_off()
        found = await self._real.read(key)
        self._raise_if_cut_off()
        return found

    async def write_if(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its key still has a revision. During a drill the answer is dropped, as
        by a broken network: the write may have taken effect."""
        self._raise_if_cut_off()
        found = await self._real.write_if(key, value, revision)
        self._raise_if_cut_off()
        return found

    def _raise_if_cut_off(self) -> None:
        if self._drills.lacks_authority(self._now_ms()):
            raise AuthorityUnreachable(f"{self.name}: a drill cuts this member off from it")

    async def require_fit(self) -> None:
        """Raise AuthorityUnfit if the engine does not compare revisions when it writes."""
        await self._real.require_fit()

    async def close(self) -> None:
        """Close the connections to the engine."""
        await self._real.close()
