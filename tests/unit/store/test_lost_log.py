"""A log of which nothing was durable when the power failed; and one that somebody took away."""

import random
from collections.abc import Callable

import pytest

from escrowmq.errors import StorageError
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import SMALL, bodies, filled, message

LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/orders/0/00000000000000000000"


def opened_in(disk: SimDisk, boot: str) -> Store:
    store = Store(disk, SMALL, boot=boot)
    store.open(2_000)
    return store


def never_durable(*, ahead: bool = False) -> SimDisk:
    """The power has failed before the first sync. Of the folders, the disk had those of queues; and
    of the log at most the file that was made ahead, for what follows."""
    disk = SimDisk()
    store = opened_in(disk, "boot-1")
    for number in range(4):
        store.put(message(number), 1_000 + number)
    if ahead:
        store.put(message(4, body=b"x" * 3_000), 1_004)
        assert store.log.segments.last_start == SMALL.log_segment_size
    store.dispatcher.dispatch_waiting()
    assert disk.files[LOG].is_name_durable is False
    del disk.files[LOG]
    for file in disk.files.values():
        file.is_name_durable = True
    disk.crash(random.Random(1), CrashLoss.PREFIX)
    assert QUEUE in disk.files
    return disk


def stop(store: Store, disk: SimDisk) -> None:
    store.close(3_000)
    disk.restart()


def kill(store: Store, disk: SimDisk) -> None:
    del store
    disk.crash(random.Random(1), CrashLoss.NOTHING)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("end", [stop, kill])
def test_store_whose_log_was_never_durable_starts_as_often_as_one_likes(
    end: Callable[[Store, SimDisk], None], *, ahead: bool
) -> None:
    """The first start finds out that there was nothing to lose. It leaves nothing that the next one
    would take for the remains of a log."""
    disk = never_durable(ahead=ahead)
    for _ in range(3):
        end(opened_in(disk, "boot-2"), disk)
    store = opened_in(disk, "boot-2")
    put = store.put(message(7), 4_000)
    assert put.log_offset == (SMALL.log_segment_size if ahead else 0)
    assert bodies(store) == {put.queue_offset: b"body 00007"}


def test_log_that_was_taken_away_is_missed() -> None:
    disk = SimDisk()
    filled(disk, 4)
    for path in [path for path in disk.files if path.startswith("commitlog/")]:
        del disk.files[path]
    del disk.small["queues.json"]
    with pytest.raises(StorageError, match="commitlog has no file, but the checkpoint knows"):
        opened_in(disk, "boot-1")
    disk.restart()
    del disk.files["checkpoint"]
    for _ in range(2):
        with pytest.raises(StorageError, match="commitlog has no file, but consumequeue has"):
            opened_in(disk, "boot-1")
        disk.restart()
    assert QUEUE in disk.files
