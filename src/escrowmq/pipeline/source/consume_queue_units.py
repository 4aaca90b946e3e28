"""The consume queues of a store, if they are in the same folder as its log. They show which
positions of the log are records; a message's body may contain bytes that look like one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from escrowmq.codec.store_entries import ENTRY, ENTRY_SIZE, is_path_safe

_FOLDER: Final = "consumequeue"


class QueueUnitFiles:
    """Looks up single entries in the files of queues."""

    def __init__(self, store: Path) -> None:
        self._folder = store / _FOLDER
        self._file_sizes: dict[Path, int] = {}

    @property
    def exist(self) -> bool:
        """Whether any queue has a file."""
        return next(self._folder.glob("*/*/*"), None) is not None

    def leads_to(self, place: tuple[str, int], queue_offset: int, record: tuple[int, int]) -> bool:
        """Whether the entry of a queue (topic, queue id) at an offset points to a record (log
        offset, size)."""
        topic, queue_id = place
        if not is_path_safe(topic) or queue_offset < 0:
            return False
        folder, position = self._folder / topic / str(queue_id), queue_offset * ENTRY_SIZE
        try:
            size = self._file_size(folder)
            start = position - position % size
            with (folder / f"{start:020}").open("rb") as file:
                file.seek(position - start)
                unit = file.read(ENTRY_SIZE)
        except OSError:
            return False
        return len(unit) == ENTRY_SIZE and ENTRY.unpack(unit)[:2] == record

    def _file_size(self, folder: Path) -> int:
        """Return the size of queue files; all have the same."""
        found = self._file_sizes.get(folder)
        if found is None:
            found = max((file.stat().st_size for file in folder.iterdir()), default=0)
            self._file_sizes[folder] = found = found or ENTRY_SIZE
        return found
