"""Says whether messages are accepted, and why not. Others decide that: store/disk_watch,
store/failed_syncs, and the broker."""

from __future__ import annotations

import logging
import struct

from escrowmq.errors import DiskFull
from escrowmq.store.results import PutResult, PutStatus

_log = logging.getLogger(__name__)


class WriteGate:
    """Accepts or refuses puts. A lasting refusal, as after a failed sync, applies to all puts; any
    other does not apply to ENDs and other settling puts."""

    def __init__(self) -> None:
        self.refusal: str | None = "the store is not open"
        self.is_lasting = True
        self.is_short_of_disk = False
        """Whether messages are refused until the disk has space again."""
        self._closed = self._paused = ""
        self._has_failed = False
        """Whether a sync of the disk has failed."""

    @property
    def disk_fault(self) -> str:
        """Why the disk takes no messages; empty if it does."""
        return self.refusal or "" if self.is_short_of_disk or self._has_failed else ""

    def refuse_after_disk_failure(self, reason: str) -> None:
        """Refuse all puts from now on, because a sync has failed."""
        self._has_failed = True
        self.refuse(reason, is_lasting=True)

    def close_to_all(self, reason: str) -> None:
        """Refuse all puts in this process, because the log is another broker's."""
        self._closed = reason
        self.refuse(reason, is_lasting=True)

    def refuse(self, reason: str, *, is_lasting: bool) -> None:
        """Refuse puts for this reason. A passing reason does not replace a lasting one."""
        if is_lasting or not self.is_lasting:
            if self.refusal is None and not is_lasting:
                _log.error("no new messages are accepted: %s", reason)
            self.refusal, self.is_lasting = reason, is_lasting
            self.is_short_of_disk = not is_lasting

    def lift_refusal(self) -> None:
        """Accept puts again, unless there is another reason not to."""
        self.refusal, self.is_lasting = self._closed or self._paused or None, bool(self._closed)
        self.is_short_of_disk = self._has_failed = False

    def pause(self, reason: str) -> None:
        """Refuse puts until `resume`, for a reason that has nothing to do with the disk."""
        self._paused = reason
        if self.refusal is None:
            _log.warning("no new messages are accepted: %s", reason)
        if not self.is_lasting and not self.is_short_of_disk:
            self.refusal = reason

    def resume(self) -> None:
        """Accept puts again after `pause`, unless there is another reason not to."""
        self._paused = ""
        if not self.is_lasting and not self.is_short_of_disk:
            self.refusal = None

    def failed_put(self, error: Exception) -> PutResult:
        """Return the result for a message that could not be written. If the disk is full, refuse
        further ones."""
        if isinstance(error, DiskFull):
            self.refuse(f"the disk is full: {error}", is_lasting=False)
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if isinstance(error, struct.error):  # a retry would not fit either
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a field fits no record: {error}")
        return PutResult(PutStatus.CREATE_FILE_FAILED, reason=str(error))
