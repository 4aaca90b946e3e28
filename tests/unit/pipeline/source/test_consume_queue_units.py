"""Units of queues on a disk."""

from __future__ import annotations

from pathlib import Path

from escrowmq.codec.store_entries import ENTRY
from escrowmq.pipeline.source.consume_queue_units import QueueUnitFiles

FILE_SIZE = 4 * ENTRY.size


def queue(store: Path, units: list[tuple[int, int]], topic: str = "t") -> None:
    """Queue 3 of a topic, in files of four units."""
    folder = store / "consumequeue" / topic / "3"
    folder.mkdir(parents=True)
    data = b"".join(ENTRY.pack(log_offset, size, 0) for log_offset, size in units)
    for at in range(0, len(data), FILE_SIZE):
        (folder / f"{at:020}").write_bytes(data[at : at + FILE_SIZE].ljust(FILE_SIZE, b"\0"))


def test_a_unit_leads_to_one_record(tmp_path: Path) -> None:
    assert not QueueUnitFiles(tmp_path).exist
    queue(tmp_path, [(100 * number, 100) for number in range(7)])
    units = QueueUnitFiles(tmp_path)
    assert units.exist
    for number in range(7):
        assert units.leads_to(("t", 3), number, (100 * number, 100))
        assert not units.leads_to(("t", 3), number, (100 * number + 1, 100))
        assert not units.leads_to(("t", 3), number, (100 * number, 101))
    assert not units.leads_to(("t", 3), 7, (700, 100))
    assert not units.leads_to(("t", 3), 8, (800, 100))
    assert not units.leads_to(("t", 3), -1, (0, 100))
    assert not units.leads_to(("t", 4), 0, (0, 100))


def test_a_name_in_a_record_leads_nowhere_else(tmp_path: Path) -> None:
    queue(tmp_path, [(0, 100)])
    queue(tmp_path / "consumequeue" / "t", [(0, 100)], "u")
    units = QueueUnitFiles(tmp_path)
    assert units.leads_to(("t", 3), 0, (0, 100))
    for name in ("", ".", "..", "../consumequeue/t", "t/consumequeue/u", "t\0", "x" * 300):
        assert not units.leads_to((name, 3), 0, (0, 100))
