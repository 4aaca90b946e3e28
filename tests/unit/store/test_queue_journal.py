"""The journal's own file; tests of what a start makes of the notes are in test_lost_queues.py."""

from __future__ import annotations

from escrowmq.store.queue_journal import PATH, SIZE, QueueFileStart, QueueJournal
from escrowmq.testing.disk import SimDisk


def test_a_snapshot_leaves_no_note_of_an_earlier_process() -> None:
    disk = SimDisk()
    before = QueueJournal(disk)
    before.clear()
    for number in range(3):
        before.note_file("T", number, position=20, log_offset=number)
    after = QueueJournal(disk)
    assert len(after.load()) == 3
    after.clear()
    after.note_file("T", 7, position=20, log_offset=9)
    assert QueueJournal(disk).load() == [QueueFileStart("T", 7, 20, 9)]


def test_a_file_of_another_size_is_made_anew() -> None:
    disk = SimDisk()
    disk.replace(PATH, b"[" * (SIZE // 2))
    journal = QueueJournal(disk)
    journal.clear()
    journal.note_file("T", 0, position=0, log_offset=0)
    assert journal.load() == [QueueFileStart("T", 0, 0, 0)]
