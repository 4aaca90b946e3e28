"""Cutting the end of a log off."""

from __future__ import annotations

from escrowmq.broker.figures.transaction_metrics_file import PATH as FIGURES
from escrowmq.delivery import delay_queues, timer_file, timer_snapshot
from escrowmq.store.cut import DERIVED_FILES, FOLDERS_FROM_THE_LOG, cut_log, record_before
from escrowmq.testing.disk import SimDisk
from escrowmq.txn import check_counts, epoch_decision, pending_snapshot

from .stores import SMALL, bodies, message, opened


def test_what_a_start_makes_from_the_log_does_not_survive_the_log() -> None:
    """Else it is believed once the log has grown again, with other records."""
    assert set(DERIVED_FILES) == {
        pending_snapshot.PATH, epoch_decision.PATH, delay_queues.PATH, timer_file.PATH,
        timer_snapshot.PATH,
    }  # fmt: skip
    assert set(FOLDERS_FROM_THE_LOG) == {check_counts.FOLDER}
    disk = SimDisk()
    store, _ = opened(disk)
    ends = [store.put(message(n), 20_000).log_end for n in range(4)]
    store.close(20_000)
    disk.restart()
    for path in (*DERIVED_FILES, f"{check_counts.FOLDER}/00000000000000000000", FIGURES):
        disk.replace(path, b"former")
        disk.replace(path, b"of a longer log")
    cut_log(disk, SMALL, at=ends[1], read_from=0)
    left = [path for path in disk.small if "checks" in path or path.startswith(DERIVED_FILES)]
    assert left == []
    assert FIGURES in disk.small
    disk.restart()
    store, _ = opened(disk)
    assert store.end_offset == ends[1]
    assert record_before(store, ends[1]) == ends[0]


def test_a_topic_that_the_logs_master_has_is_there_again() -> None:
    """A master that had been replaced deleted it, made it again, and is cut back."""
    disk = SimDisk()
    store, _ = opened(disk)
    store.ends.lead_group(timeout_ms=0)
    for number in range(3):
        store.put(message(number), 20_000)
        store.put(message(number, topic="other"), 20_000)
    at = store.end_offset
    store.ends.set_confirmed(at)
    store.delete_topic("orders")
    store.put(message(7), 20_000)
    store.delete_topic("other")
    store.close(20_000)
    disk.restart()
    cut_log(disk, SMALL, at=at, read_from=at)
    disk.restart()
    store, _ = opened(disk)
    assert list(bodies(store).values()) == [message(number).body for number in range(3)]
    assert len(bodies(store, "other")) == 3
    assert store.deleted.of_topic == {}
    store.close(20_000)
    disk.restart()
    again, report = opened(disk)
    assert report.was_clean
    assert len(bodies(again)) == 3


def test_a_deletion_that_was_confirmed_stays() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    store.ends.lead_group(timeout_ms=0)
    store.put(message(1), 20_000)
    store.delete_topic("orders")
    end = store.put(message(2, topic="other"), 20_000).log_end
    store.ends.set_confirmed(end)
    store.close(20_000)
    disk.restart()
    cut_log(disk, SMALL, at=end, read_from=0)
    disk.restart()
    store, _ = opened(disk)
    assert store.topics() == ["other"]
    assert "orders" in store.deleted.of_topic
