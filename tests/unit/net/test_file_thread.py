"""Syncs and small files off the loop, over files and disks that do as they are told."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from escrowmq.base.ports import SyncNotStarted
from escrowmq.errors import DiskFull, StorageError
from escrowmq.net.disk import FileDisk
from escrowmq.net.file_thread import FileThread

_WAIT_S = 60.0


class Script:
    """A file whose syncs fail in the given order, and then succeed."""

    size = 1

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.syncs_count = 0

    def write(self, position: int, data: bytes) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        return b""

    def write_again(self, position: int, size: int) -> None: ...

    def reserve(self, position: int, size: int) -> None: ...

    def close(self) -> None: ...

    def sync(self) -> None:
        self.syncs_count += 1
        if self._errors:
            raise self._errors.pop(0)


class Gate(FileDisk):
    """Small files are written when the test lets them be, and fail as often as it says."""

    def __init__(
        self, root: str, *, failures: int = 0, reason: str = "no room on the disk"
    ) -> None:
        super().__init__(root)
        self.reason = reason
        self.may_write = threading.Event()
        self.written: list[bytes] = []
        self.failures = failures

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        assert self.may_write.wait(_WAIT_S)
        if self.failures:
            self.failures -= 1
            kind = DiskFull if "room" in self.reason else StorageError
            raise kind(f"{path}: {self.reason}")
        self.written.append(data)
        super().replace(path, data)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(_WAIT_S):
            await main()

    asyncio.run(bounded())


async def synced(work: FileThread, *files: Script) -> str:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work.sync(files, told.set_result)
    return await told


def test_sync_that_found_no_descriptor_is_tried_again_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        work = FileThread(None, name="test")
        file = Script(
            SyncNotStarted(24, "Too many open files"), SyncNotStarted(24, "still too many")
        )
        assert await synced(work, Script(), file) == ""
        assert file.syncs_count == 3
        await work.close()

    run(main)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "could not begin: [Errno 24]" in line]) == 1


@pytest.mark.parametrize("error", [OSError(5, "I/O"), ValueError("closed"), RuntimeError("odd")])
def test_sync_that_failed_is_told_as_failed_whatever_the_error(error: Exception) -> None:
    async def main() -> None:
        work = FileThread(None, name="test")
        file = Script(error)
        assert str(error) in await synced(work, file)
        assert file.syncs_count == 1, "a second one that succeeds would prove nothing"
        await work.close()

    run(main)


def test_content_that_comes_during_a_write_is_written_behind_it(tmp_path: object) -> None:
    async def main() -> None:
        disk = Gate(str(tmp_path))
        work = FileThread(disk, name="test")
        for number in range(10):
            work.replace("a", b"%d" % number)
        disk.may_write.set()
        await work.close()
        assert disk.written == [b"0", b"9"]

    run(main)


def test_a_file_is_written_for_ever_however_the_threads_take_turns(tmp_path: object) -> None:
    async def main() -> None:
        disk = Gate(str(tmp_path))
        disk.may_write.set()
        work = FileThread(disk, name="test")
        for number in range(300):
            work.replace("a", b"%d" % number)
            await asyncio.sleep(0)
        await work.close()
        assert disk.written[-1] == b"299"
        assert disk.written == sorted(disk.written, key=int)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run(main)
    finally:
        sys.setswitchinterval(interval_s)


@pytest.mark.parametrize("reason", ["no room on the disk", "Read-only file system"])
def test_content_that_could_not_be_written_is_tried_again_without_a_next_change(
    tmp_path: object, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    async def main() -> None:
        disk = Gate(str(tmp_path), failures=3, reason=reason)
        disk.may_write.set()
        work = FileThread(disk, name="test")
        work.replace("a", b"1")
        while not disk.written:
            await asyncio.sleep(0)
        await work.close()
        assert disk.read("a") == b"1"

    run(main)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"test: a: {reason}; it is retried until it is saved"
    assert len([line for line in lines if reason in line]) == 1
    assert not any(record.exc_info for record in caplog.records)


def test_close_ends_although_a_file_cannot_be_written(tmp_path: object) -> None:
    async def main() -> None:
        disk = Gate(str(tmp_path), failures=1_000)
        disk.may_write.set()
        work = FileThread(disk, name="test")
        work.replace("a", b"1")
        await work.close()

    run(main)


class Stuck(Script):
    """The disk answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def sync(self) -> None:
        assert self.may_end.wait(_WAIT_S)


def test_an_end_that_leaves_somebody_without_an_answer_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        work, stuck = FileThread(None, name="broker"), Stuck()
        work.sync((stuck,), lambda failure: None)
        await work.wait_for_sync(0.01)
        stuck.may_end.set()
        await work.wait_for_sync(_WAIT_S)
        await work.close()

    run(main)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("broker: the disk did not answer within 0.01 s")


def test_a_machine_that_is_short_of_threads_later_has_one_for_syncs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        work, file = FileThread(None, name="broker"), Script()
        failures: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            work.sync((file,), failures.append)
            await work.wait_for_sync(_WAIT_S)
        assert (failures, file.syncs_count) == ([""], 1)
        await work.close()

    run(main)
