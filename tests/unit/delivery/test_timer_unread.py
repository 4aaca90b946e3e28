"""Delayed messages that lie in a file of the log which the disk does not give."""

from __future__ import annotations

import pytest

from escrowmq.base.message import Topic
from escrowmq.delivery import timer_unread
from escrowmq.delivery.timer_snapshot import SnapshotSaver
from escrowmq.errors import StorageError

from .later import Later

FIRST_SEGMENT = f"commitlog/{0:020d}"


def make() -> Later:
    """One message in the first file of the log, two behind it."""
    world = Later(segment_size=1 << 15)
    world.send(b"in the first", TIMER_DELAY_SEC="3")
    while world.store.end_offset < 1 << 15:
        world.send(b"fills", topic="U")
    world.send(b"behind", TIMER_DELAY_SEC="4")
    world.send(b"last", TIMER_DELAY_SEC="60")
    return world


def test_a_message_that_cannot_be_read_keeps_no_other_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was due first: no delayed message of any topic was delivered any more."""
    world = make()
    world.run(1_000)
    world.disk.unreadable.add(FIRST_SEGMENT)
    world.run(10_000)
    assert world.bodies() == [b"behind"]
    assert caplog.text.count(FIRST_SEGMENT) == 1
    assert world.timer.pending_count == 2
    assert world.timer.late_ms(world.now_ms) == 8_000
    assert world.timer.oldest_needed_offset() == 0
    world.disk.unreadable.clear()
    world.run(timer_unread.WAIT_MAX_MS)
    assert world.bodies() == [b"behind", b"in the first"]
    world.run(60_000)
    assert world.bodies() == [b"behind", b"in the first", b"last"]
    assert world.timer.deliverer.dropped_count == 0


def test_messages_are_late_while_they_wait_for_the_timer_and_not_for_the_disk() -> None:
    world = make()
    timer = world.timer
    assert not timer.may_be_late("T", world.now_ms), "nothing is read yet, nor from before"
    world.run(1_000)
    assert not timer.may_be_late("T", world.now_ms)
    world.now_ms += 3_000
    assert timer.may_be_late("T", world.now_ms)
    assert not timer.may_be_late("U", world.now_ms)
    world.disk.unreadable.add(FIRST_SEGMENT)
    world.run(1_000)
    assert not timer.may_be_late("T", world.now_ms)
    world.now_ms += 60_000
    assert timer.may_be_late("T", world.now_ms)
    world.disk.unreadable.clear()
    world.run(timer_unread.WAIT_MAX_MS)
    assert len(world.bodies()) == 3
    assert not timer.may_be_late("T", world.now_ms)
    world.send(b"from before", TIMER_DELAY_SEC="60")
    world.restart()
    assert world.timer.may_be_late("V", world.now_ms), "it is not read yet"
    world.wake()
    assert not world.timer.may_be_late("V", world.now_ms)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_not_read_is_delivered_once_over_a_start(*, is_killed: bool) -> None:
    world = make()
    world.run(1_000)
    world.disk.unreadable.add(FIRST_SEGMENT)
    world.run(10_000)
    world.sync()
    world.save()
    world.disk.unreadable.clear()
    if is_killed:
        world.crash()
    else:
        world.restart()
    world.run(120_000)
    assert world.bodies() == [b"behind", b"in the first", b"last"]


def test_a_start_takes_in_what_it_can_read_and_the_rest_later() -> None:
    """It took in nothing behind the first message that it could not read."""
    world = make()
    world.run(1_000)
    world.sync()
    world.save()
    world.crash()
    world.disk.unreadable.add(FIRST_SEGMENT)
    world.run(10_000)
    assert world.bodies() == [b"behind"]
    assert world.timer.pending_count == 2
    world.disk.unreadable.clear()
    world.run(60_000)
    assert world.bodies() == [b"behind", b"in the first", b"last"]
    world.sync()
    world.save()
    world.crash()
    world.run(60_000)
    assert len(world.bodies()) == 3


def test_when_hardly_anything_can_be_read_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed over takes memory; and what the disk does not give at all is not looked at
    one by one."""
    world = make()
    world.send(b"another", TIMER_DELAY_SEC="5")
    world.run(1_000)
    monkeypatch.setattr(timer_unread, "COUNT_MAX", 1)
    for path in list(world.disk.files):
        if path.startswith("commitlog"):
            world.disk.unreadable.add(path)
    world.now_ms += 10_000
    with pytest.raises(StorageError):
        world.wake()
    world.disk.unreadable.clear()
    world.run(timer_unread.WAIT_MAX_MS)
    assert world.bodies() == [b"behind", b"another", b"in the first"]


@pytest.mark.parametrize("is_listed", [False, True])
def test_records_before_one_too_many_that_cannot_be_read_are_delivered_once(
    monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    """Each attempt read them again, and each was delivered as often; those that a snapshot lists
    were lost."""
    monkeypatch.setattr(timer_unread, "COUNT_MAX", 1)
    monkeypatch.setattr(SnapshotSaver, "is_due", lambda *_, **__: is_listed)
    world = make()
    while world.store.end_offset < 1 << 16:
        world.send(b"fills", topic="U")
    for body in (b"third", b"fourth"):
        world.send(body, TIMER_DELAY_SEC="50")
    world.run(1_000)
    world.sync()
    world.save()
    world.restart()
    assert bool(world.timer._listed) is is_listed
    world.disk.unreadable |= {FIRST_SEGMENT, f"commitlog/{1 << 16:020d}"}
    for _ in range(3):
        with pytest.raises(StorageError):
            world.wake()
    world.disk.unreadable.clear()
    world.run(100_000)
    expected = [b"in the first", b"behind", b"third", b"fourth", b"last"]
    assert world.bodies() == expected


def test_known_messages_are_delivered_while_the_queue_of_new_ones_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The timer delivered nothing any more until the file could be read."""
    world = Later()
    for number in range(64):  # one file of the queue
        world.send(b"old %d" % number, TIMER_DELAY_SEC="15")
    world.run(1_000)
    world.send(b"new", TIMER_DELAY_SEC="5")
    unreadable = f"consumequeue/{Topic.TIMER}/0/{20 * 64:020d}"
    assert unreadable in world.disk.files
    world.disk.unreadable.add(unreadable)
    world.run(8_000)
    assert world.bodies() == []
    assert caplog.text.count("new delayed messages cannot be read, and are delivered later") == 1
    world.run(8_000)
    assert len(world.bodies()) == 64
    world.disk.unreadable.clear()
    world.run(timer_unread.QUEUE_RETRY_MS)
    assert world.bodies()[64:] == [b"new"]
    world.sync()
    world.save()
    world.restart()
    world.run(100_000)
    assert len(world.bodies()) == 65


def test_a_start_that_cannot_read_all_of_the_queue_delivers_nothing() -> None:
    """A record that it cannot read may recall a message that it knows."""
    world = Later()
    for number in range(65):
        world.send(b"%d" % number, TIMER_DELAY_SEC="15")
    world.run(1_000)
    world.sync()
    world.save()
    world.restart()
    world.disk.unreadable.add(f"consumequeue/{Topic.TIMER}/0/{20 * 64:020d}")
    world.now_ms += 20_000
    for _ in range(2):
        with pytest.raises(StorageError):
            world.wake()
    assert world.bodies() == []
    world.disk.unreadable.clear()
    world.run(1_000)
    assert len(world.bodies()) == 65
