"""How full the disk is: above the warning level no messages are accepted until there is space
again."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.ports import Usage
from escrowmq.store.commit_log import FOLDER
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

_WATCH_FULL_MS: Final = 1_000


class DiskWatch:
    """Watches the disk of the log."""

    def __init__(self, held: StoreState) -> None:
        self._held = held
        self.percent = 0
        """How full the disk was at the last check."""

    def look(self, now_ms: int) -> int:
        """Check how full the disk is, and refuse or accept messages. Returns when to check
        again."""
        settings = self._held.settings
        self.percent = percent(self._held.disk.usage(FOLDER))
        warning = settings.disk_warning_percent
        full = None
        if self.percent > warning:
            full = (
                f"the disk is full: {self.percent} % are used, {warning} % allowed; make room "
                "or raise diskSpaceWarningLevelRatio"
            )
        self.note_room(full)
        interval_ms = settings.clean_interval_ms
        if self._held.standing.refusal is not None:
            interval_ms = min(interval_ms, _WATCH_FULL_MS)
        return now_ms + interval_ms

    def note_room(self, full: str | None) -> None:
        """Note that the disk is full, or has space again."""
        standing = self._held.standing
        if full is not None:
            standing.refuse(full, is_lasting=False)
        # Not before the reserve is full again: ends of transactions have lived on it meanwhile.
        elif standing.is_short_of_disk and self._held.log.extend():
            standing.lift()
            _log.warning("the disk has space: messages are accepted again")


def percent(usage: Usage) -> int:
    """How full a disk is."""
    return 100 * (usage.total_size - usage.free_size) // max(usage.total_size, 1)
