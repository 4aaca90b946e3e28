"""Runs syncs, and writes of small files, on a separate thread.

Only the loop's thread knows what is in progress and what waits; the other thread gets its work as
arguments. A sync that could not start without a descriptor is retried, and so is a small file that
could not be written. A failed fdatasync is not retried here: Linux may have marked unwritten pages
clean, and dropped them, so a second fdatasync that succeeds proves nothing. The core has to write
their content again (store/failed_syncs.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from escrowmq.base.ports import Disk, File, SyncNotStarted
from escrowmq.errors import StorageError

_log = logging.getLogger(__name__)

AGAIN_S: Final = 0.05
"""The first pause in seconds before a retry; it doubles each time."""

AGAIN_MAX_S: Final = 5.0


class _SyncResult(NamedTuple):
    failure: str
    """The error of the sync; empty if everything is durable."""
    is_begun: bool = True


class _WaitingWrite(NamedTuple):
    """A small file that could not be written, and when it is retried."""

    timer: asyncio.TimerHandle
    wait_s: float


class FileThread:
    """Runs a shell's file operations on a separate thread."""

    def __init__(self, disk: Disk | None, *, name: str) -> None:
        self._disk = disk
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-files")
        self._thread.submit(int)  # it is there from now on, however few threads there are later
        self._newest: dict[str, bytes] = {}
        """By path of a small file: the newest content that waits, for a write in progress or for a
        retry."""
        self._writing: set[str] = set()
        self._again: dict[str, _WaitingWrite] = {}
        self._syncs_count = 0
        self._no_sync = asyncio.Event()
        self._no_sync.set()
        self._is_closed = False

    # -- syncs -----------------------------------------------------------------------------------

    def sync(self, files: tuple[File, ...], done: Callable[[str], None]) -> None:
        """Make files durable, then call `done` with an empty text or the error."""
        self._syncs_count += 1
        self._no_sync.clear()
        self._try_to_sync(files, done, AGAIN_S)

    def _try_to_sync(
        self, files: tuple[File, ...], done: Callable[[str], None], wait_s: float
    ) -> None:
        if self._is_closed:
            return
        future = self._loop.run_in_executor(self._thread, _sync_all, files)
        future.add_done_callback(partial(self._sync_ended, files, done, wait_s))

    def _sync_ended(
        self,
        files: tuple[File, ...],
        done: Callable[[str], None],
        wait_s: float,
        future: asyncio.Future[_SyncResult],
    ) -> None:
        outcome = future.result()
        if not outcome.is_begun and not self._is_closed:
            if wait_s == AGAIN_S:
                _log.error(
                    "%s: a sync could not begin: %s; nothing is lost, and it is retried. "
                        "Allow the process more files (ulimit -n), or fewer connections",
                    self._name, outcome.failure,
                )  # fmt: skip
            again_s = min(2 * wait_s, AGAIN_MAX_S)
            self._loop.call_later(wait_s, self._try_to_sync, files, done, again_s)
            return
        if outcome.failure:
            _log.error("%s: %s", self._name, outcome.failure)
        elif wait_s != AGAIN_S:
            _log.warning("%s: the sync that could not begin is done", self._name)
        self._syncs_count -= 1
        assert self._syncs_count >= 0, self._syncs_count
        try:
            done(outcome.failure)
        finally:
            if not self._syncs_count:
                self._no_sync.set()

    # -- small files -----------------------------------------------------------------------------

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file soon; if several contents wait for it, only the newest is
        written."""
        self._newest[path] = data
        if path not in self._writing:
            self._start_write(path)

    def _start_write(self, path: str) -> None:
        assert self._disk is not None, "a core without a disk wants to write a file"
        waiting = self._again.pop(path, None)
        wait_s = AGAIN_S if waiting is None else waiting.wait_s
        if waiting is not None:
            waiting.timer.cancel()
        data = self._newest.pop(path)
        self._writing.add(path)
        future = self._loop.run_in_executor(self._thread, _try_to_replace, self._disk, path, data)
        future.add_done_callback(partial(self._write_ended, path, data, wait_s))

    def _write_ended(
        self, path: str, data: bytes, wait_s: float, future: asyncio.Future[Exception | None]
    ) -> None:
        self._writing.discard(path)
        error = future.result()
        if error is None:
            if wait_s != AGAIN_S:
                _log.warning("%s: %s is saved again", self._name, path)
            if path in self._newest:
                self._start_write(path)
            return
        self._newest.setdefault(path, data)  # unless newer content came during the write
        if wait_s == AGAIN_S:
            self._log_failure(path, error)
        if self._is_closed:
            return
        timer = self._loop.call_later(wait_s, self._start_write, path)
        self._again[path] = _WaitingWrite(timer, min(2 * wait_s, AGAIN_MAX_S))

    def _log_failure(self, path: str, error: Exception) -> None:
        if isinstance(error, (StorageError, OSError)):  # no room, read-only, broken: the disk's
            _log.error("%s: %s; it is retried until it is saved", self._name, error)
        else:
            _log.error("%s: %s could not be saved; it is retried", self._name, path, exc_info=error)

    # -- end -------------------------------------------------------------------------------------

    @property
    def is_syncing(self) -> bool:
        """Whether a sync is in progress."""
        return self._syncs_count > 0

    async def wait_for_sync(self, timeout_s: float) -> None:
        """Wait, up to a timeout, until no sync is in progress."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._no_sync.wait()
        except TimeoutError:
            _log.error(
                "%s: the disk did not answer within %g s: clients that wait for it get no "
                    "answer, and will retry",
                self._name, timeout_s,
            )  # fmt: skip

    async def close(self) -> None:
        """Finish the work in progress, and end the thread. Waiting contents are dropped, because a
        core writes all its files when it ends."""
        self._is_closed = True
        for waiting in self._again.values():
            waiting.timer.cancel()
        while self._writing:
            # There is one thread, so this ends after the write, whose end may begin another one.
            await self._loop.run_in_executor(self._thread, int)
        self._thread.shutdown(wait=True)


def _sync_all(files: tuple[File, ...]) -> _SyncResult:
    try:
        for file in files:
            file.sync()
    except SyncNotStarted as error:
        return _SyncResult(str(error), is_begun=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be called durable
        return _SyncResult(f"the disk could not make the store durable: {error}")
    return _SyncResult("")


def _try_to_replace(disk: Disk, path: str, data: bytes) -> Exception | None:
    try:
        disk.replace(path, data)
    except Exception as error:  # noqa: BLE001 - one file; told and tried again on the loop
        return error
    return None
