"""The real disk: what a File and a Disk promise, on this machine's file system."""

import contextlib
import errno
import os
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.base.message import Message
from escrowmq.base.ports import SyncNotStarted
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_records
from escrowmq.errors import DiskFull, StorageError, StoreLocked
from escrowmq.net.disk import FileDisk
from escrowmq.net.mapped_file import MappedFile
from escrowmq.store.store import Store

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FileDisk]:
    found = FileDisk(str(tmp_path / "store"))
    yield found
    found.close()


def test_file_has_its_full_length_at_once_and_takes_no_room(disk: FileDisk) -> None:
    file = disk.open("a/b/c", size=64 * MIB)
    assert file.size == 64 * MIB
    assert disk.size("a/b/c") == 64 * MIB
    assert file.read(64 * MIB - 2, 10) == b"\0\0"
    assert os.stat(f"{disk.root}/a/b/c").st_blocks * 512 < MIB
    assert disk.size("a/b") is None
    assert disk.names("a") == ["b"]
    assert disk.names("none") == []


def test_writes_are_read_back_and_survive_closing(disk: FileDisk) -> None:
    file = disk.open("f", size=MIB)
    for position in (0, 70_000, 5, MIB - 3, 300_000):
        file.write(position, b"abc")
    file.sync()
    file.close()
    again = disk.open("f", size=MIB)
    assert all(again.read(at, 3) == b"abc" for at in (70_000, 5, MIB - 3, 300_000))
    assert disk.read("f") == again.read(0, MIB)
    with pytest.raises(StorageError, match="1048576 bytes, 5 expected"):
        disk.open("f", size=5)


def test_write_behind_the_end_is_refused(disk: FileDisk) -> None:
    with pytest.raises(StorageError):
        disk.open("f", size=100).write(99, b"ab")


def test_sequential_writes_allocate_ahead_and_rarely(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    real = os.posix_fallocate

    def counted(descriptor: int, position: int, size: int) -> None:
        calls.append((position, size))
        real(descriptor, position, size)

    monkeypatch.setattr(os, "posix_fallocate", counted)
    file = disk.open("f", size=16 * MIB)
    for position in range(0, 4 * MIB, 1_000):
        file.write(position, b"x" * 1_000)
    assert len(calls) < 10
    calls.clear()
    other = disk.open("g", size=16 * MIB)
    other.reserve(MIB, 2 * MIB)
    for position in range(MIB, 3 * MIB, 4_096):
        other.write(position, b"y" * 4_096)
    assert calls == [(MIB, 2 * MIB)]


def test_full_disk_is_an_error_with_nothing_written(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("f", size=16 * MIB)
    file.write(0, b"first")

    def full(descriptor: int, position: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    file.write(5, b"fits what was allocated")
    with pytest.raises(DiskFull):
        file.write(8 * MIB, b"x")
    with pytest.raises(DiskFull):
        file.reserve(MIB, MIB)
    assert isinstance(file, MappedFile)
    with pytest.raises(DiskFull):
        file.write_many([(9 * MIB, b"abcd")])
    assert file.read(8 * MIB, 1) == b"\0"
    monkeypatch.undo()
    file.write(8 * MIB, b"x")
    assert file.read(8 * MIB, 1) == b"x"


def test_failing_fdatasync_surfaces(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("f", size=4096)
    file.write(0, b"x")

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()


def test_first_sync_makes_the_new_names_durable(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    file = disk.open("a/b/f", size=4096)
    file.sync()
    root = disk.root
    assert synced == [f"{root}/a/b", f"{root}/a", root]
    file.sync()
    assert len(synced) == 3


def test_sync_of_an_unmapped_or_removed_file_is_fine(disk: FileDisk) -> None:
    file = disk.open("f", size=4096)
    file.write(0, b"x")
    file.close()
    file.sync()
    disk.remove("f")
    disk.remove("f")
    file.sync()


def test_few_files_stay_mapped(tmp_path: Path) -> None:
    disk = FileDisk(str(tmp_path), open_files_max=3)
    files = [disk.open(f"f{n}", size=4096) for n in range(10)]
    before = len(os.listdir("/proc/self/fd"))
    for n, file in enumerate(files):
        file.write(0, bytes([n + 1]))
    assert len(os.listdir("/proc/self/fd")) <= before + 6
    assert [file.read(0, 1) for file in files] == [bytes([n + 1]) for n in range(10)]
    files[0].sync()
    disk.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_many_small_pieces_in_one_call(disk: FileDisk) -> None:
    file = disk.open("f", size=MIB)
    assert isinstance(file, MappedFile)
    file.write_many([(at, struct.pack(">i", at)) for at in (0, 65_536, 200_000)])
    assert file.read_many([200_000, 0, 4], 4) == struct.pack(">iii", 200_000, 0, 0)


def test_many_pieces_are_written_all_or_none(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("f", size=16 * MIB)
    assert isinstance(file, MappedFile)
    file.write_many([(0, b"old.")])

    def full(descriptor: int, position: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFull):
        file.write_many([(0, b"new."), (8 * MIB, b"far.")])
    assert file.read(0, 4) == b"old."


IN_MEMORY = Path("/dev/shm")


@pytest.mark.skipif(not IN_MEMORY.is_mount(), reason="no file system in memory is mounted")
def test_reading_a_hole_takes_no_room_in_memory() -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        disk = FileDisk(folder)
        file = disk.open("f", size=MIB)
        assert isinstance(file, MappedFile)
        file.write(MIB // 2, b"something")
        taken = (Path(folder) / "f").stat().st_blocks
        assert file.read(0, MIB)[MIB // 2 :].startswith(b"something")
        assert file.read_many([0, MIB // 2], 4) == b"\0\0\0\0some"
        assert (Path(folder) / "f").stat().st_blocks == taken
        file.close()


def test_holes_are_seen(disk: FileDisk) -> None:
    file = disk.open("f", size=8 * MIB)
    assert isinstance(file, MappedFile)
    file.write(4 * MIB, b"x")
    file.sync()
    assert file.next_data_position(0) <= 4 * MIB
    assert file.next_data_position(4 * MIB) == 4 * MIB


def test_replace_is_whole_and_leaves_nothing_behind(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.replace("config/t.json", b"one")
    disk.replace("config/t.json", b"two")
    assert disk.read("config/t.json") == b"two"
    assert disk.names("config") == ["t.json", "t.json.bak"]
    assert disk.read("config/t.json.bak") == b"one"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        disk.replace("config/t.json", b"three")
    assert disk.read("config/t.json") == b"two"
    assert disk.names("config") == ["t.json", "t.json.bak"]
    assert disk.read("config/t.json.bak") == b"one"


def test_a_good_former_content_outlives_a_torn_one(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.replace("config/t.json", b"one")
    disk.replace("config/t.json", b"two")
    (Path(disk.root) / "config/t.json").write_bytes(b"to")
    renames = []
    rename = os.replace

    def stopping(source: str, target: str) -> None:
        renames.append(Path(target).name)
        if len(renames) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        disk.replace("config/t.json", b"three")
    assert disk.read("config/t.json") == b"three"
    assert disk.read("config/t.json.bak") == b"one"
    monkeypatch.undo()
    disk.replace("config/t.json", b"four")
    assert disk.read("config/t.json.bak") == b"three"
    (Path(disk.root) / "config/t.json").write_bytes(b"")
    disk.replace("config/t.json", b"five")
    assert disk.read("config/t.json.bak") == b"three"


def test_a_folder_may_lie_on_another_disk(tmp_path: Path) -> None:
    disk = FileDisk(
        str(tmp_path / "store"), elsewhere={"commitlog": str(tmp_path / "fast" / "log")}
    )
    disk.open("commitlog/0", size=100).write(0, b"abc")
    disk.replace("commitlogs", b"x")
    assert disk.names("commitlog") == ["0"]
    assert disk.size("commitlog/0") == 100
    assert (tmp_path / "fast" / "log" / "0").read_bytes()[:3] == b"abc"
    assert disk.names("") == ["commitlogs"]
    assert disk.usage("commitlog").total_size > 0
    disk.close()


def test_remove_takes_files_and_empty_folders_only(disk: FileDisk) -> None:
    disk.replace("a/f", b"x")
    disk.remove("a")
    assert disk.read("a/f") == b"x"
    disk.remove("a/f")
    disk.remove("a")
    assert disk.names("") == []
    assert disk.read("a") is None


def test_lock_excludes_this_process_and_others(disk: FileDisk) -> None:
    disk.lock("lock")
    assert disk.read("lock") == b"lock"
    other = FileDisk(disk.root)
    with pytest.raises(StoreLocked):
        other.lock("lock")
    code = (
        "import sys\nfrom escrowmq.net.disk import FileDisk\n"
        "from escrowmq.errors import StoreLocked\n"
        "try:\n    FileDisk(sys.argv[1]).lock('lock')\n"
        "except StoreLocked:\n    sys.exit(7)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code, disk.root], env=environment, check=False)
    assert ran.returncode == 7
    disk.close()
    other.lock("lock")
    other.close()


def test_usage_is_that_of_the_file_system(disk: FileDisk) -> None:
    usage = disk.usage("commitlog")
    assert 0 < usage.free_size <= usage.total_size


def test_whole_store_on_a_real_disk(tmp_path: Path) -> None:
    disk = FileDisk(str(tmp_path), open_files_max=4)
    settings = StoreSettings(
        log_segment_size=65_536,
        queue_segment_size=2_000,
        index_slots_count=64,
        index_entries_max=500,
        reserve_size=4_096,
    )
    store = Store(disk, settings)
    store.open(1_000)
    for n in range(1_000):
        one = Message(topic="orders", body=b"body %05d" % n, properties={"KEYS": f"k{n}"})
        store.put(one, 1_000 + n)
    wanted = store.next_sync(20_000)
    assert wanted is not None
    for file in wanted.files:
        file.sync()
    store.sync_finished(wanted.log_offset, 20_000)
    disk.close()  # as if killed: nothing was closed
    disk = FileDisk(str(tmp_path))
    store = Store(disk, settings)
    report = store.open(30_000)
    assert not report.was_clean
    found: list[bytes] = []
    while len(found) < 1_000:
        got = store.get("orders", 0, len(found))
        found += [stored.body for stored in decode_records(b"".join(got.chunks))]
    assert found == [b"body %05d" % n for n in range(1_000)]
    assert store.query("orders", "k777", count_max=9, begin_ms=0, end_ms=99_999).records
    store.close(31_000)
    assert disk.size("abort") is None
    disk.close()


@pytest.mark.parametrize("is_sequential", [False, True])
def test_first_touch_of_a_file_takes_in_no_more_than_it_needs(
    tmp_path: Path, *, is_sequential: bool
) -> None:
    """A topic may have a thousand queues, each with a file: read ahead, that would be gigabytes."""
    disk = FileDisk(str(tmp_path))
    file = disk.open("consumequeue/T/0/0", size=6_000_000, is_sequential=is_sequential)
    file.write(0, b"x" * 20)
    assert file.read(0, 21) == b"x" * 20 + b"\0"
    found = Path("/proc/self/smaps").read_text(encoding="utf-8").split("consumequeue/T/0/0", 1)[1]
    resident_kb = int(found.split("Rss:", 1)[1].split()[0])
    file.close()
    assert is_sequential or resident_kb <= 64


def test_end_of_what_was_written_is_known_without_reading_all(disk: FileDisk) -> None:
    """A start looks for the ends of all queues; each file has its full length from the first
    unit on."""
    file = disk.open("queue", size=6_000_000)
    assert isinstance(file, MappedFile)
    assert file.data_end() == 0
    file.write(0, b"x" * 20)
    assert 20 <= file.data_end() <= 256 * 1024
    file.write(1_000_000, b"y")
    assert 1_000_001 <= file.data_end() <= 1_300_000
    file.sync()
    assert file.data_end() >= 1_000_001
    file.write(5_999_999, b"z")
    assert file.data_end() == 6_000_000


# -- syncs that have not failed ------------------------------------------------------------------


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within the test alone: whoever measures tests may want a file behind it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_open_and_new_and_unmapped_files_are_synced_when_no_descriptor_is_left(
    disk: FileDisk,
) -> None:
    known, new, unmapped = (disk.open(name, size=MIB) for name in ("known", "a/new", "unmapped"))
    known.sync()
    for file in (known, new, unmapped):
        file.write(0, b"abc")
    unmapped.close()
    with no_descriptor_left():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        for _ in range(3):
            for file in (known, new, unmapped):
                file.sync()


def test_sync_without_any_descriptor_has_not_begun_and_can_be_done_later(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("a/b/f", size=MIB)
    file.write(0, b"abc")
    folders: list[str] = []
    real_open, real_sync = os.open, os.fsync

    def broken(path: str, flags: int, *args: int) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_open(path, flags, *args)

    def noted(descriptor: int) -> None:
        folders.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", broken)
        for _ in range(2):
            with pytest.raises(SyncNotStarted, match="Too many open files"):
                file.sync()
    file.sync()
    assert folders == [f"{disk.root}/a/b", f"{disk.root}/a", disk.root]


def test_file_whose_folder_is_removed_during_its_sync_leaves_nothing_to_be_made_durable(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("q/T/0", size=MIB)
    file.write(0, b"abc")
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        file.close()
        disk.remove("q/T/0")
        disk.remove("q/T")
        real(descriptor)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fdatasync", slow)
    file.sync()
    assert len(os.listdir("/proc/self/fd")) == before - 2, "map and descriptor are given back"
    assert disk.names("q") == []


def test_file_that_is_closed_and_used_again_during_its_sync_stays_usable(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("f", size=MIB)
    file.write(0, b"abc")
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        file.close()
        assert file.read(0, 3) == b"abc"
        real(descriptor)

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", slow)
        file.sync()
    file.write(0, b"def")
    file.sync()
    assert len(os.listdir("/proc/self/fd")) == before


def test_file_that_was_removed_beneath_the_broker_is_not_called_durable(disk: FileDisk) -> None:
    file = disk.open("f", size=MIB)
    file.write(0, b"abc")
    os.unlink(f"{disk.root}/f")
    with pytest.raises(FileNotFoundError, match="removed by another process"):
        file.sync()


def test_small_file_whose_folder_cannot_be_synced_is_told_as_not_stored(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        disk.replace("small", b"1")
