"""Watches how full the disk is. Above the warning level no messages are accepted until there is
space again."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.ports import DiskUsage
from escrowmq.store.commit_log import FOLDER
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

_WATCH_FULL_MS: Final = 1_000


class DiskWatch:
    """Checks the disk of the log, and refuses or accepts messages accordingly."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self.percent = 0
        """How full the disk was at the last check."""
        self.full = ""
        """The reason if the disk was too full; else empty."""
        self._looked_ms = 0

    def check_disk(self, now_ms: int) -> int:
        """Check how full the disk is, and refuse or accept messages. Return when to check again,
        unless `next_check_ms` is earlier."""
        self._looked_ms = now_ms
        settings = self._state.settings
        self.percent = used_percent(self._state.disk.usage(FOLDER))
        warning = settings.disk_warning_percent
        self.full = ""
        if self.percent > warning:
            self.full = (
                f"the disk is full: {self.percent} % are used, {warning} % allowed; make room "
                "or raise diskSpaceWarningLevelRatio"
            )
        self.set_full(self.full or None)
        return now_ms + settings.clean_interval_ms

    def next_check_ms(self, planned_ms: int) -> int:
        """Return when to check the disk again: soon if it is or was found to be full."""
        if self.full or self._state.write_gate.is_short_of_disk:
            return min(planned_ms, self._looked_ms + _WATCH_FULL_MS)
        return planned_ms

    def set_full(self, full: str | None) -> None:
        """Refuse messages because the disk is full (the reason), or accept them again (None)."""
        write_gate = self._state.write_gate
        if full is not None:
            write_gate.refuse(full, is_lasting=False)
        # Only when the reserve is filled up again: ENDs have used it meanwhile.
        elif write_gate.is_short_of_disk and self._state.log.refill_reserve():
            write_gate.lift_refusal()
            _log.warning("the disk has space: messages are accepted again")


def used_percent(usage: DiskUsage) -> int:
    """Return how full a disk is, in percent."""
    return 100 * (usage.total_size - usage.free_size) // max(usage.total_size, 1)
