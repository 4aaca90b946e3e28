"""Whether messages are accepted, and why not. Others decide, and tell it here: store/disk_watch,
store/failed_syncs, and the broker."""

from __future__ import annotations

import logging
import struct

from escrowmq.errors import DiskFull
from escrowmq.store.results import Put, PutStatus

_log = logging.getLogger(__name__)


class WriteGate:
    """Whether a store accepts puts. A lasting refusal, as after a failed sync, applies to all of
    them; any other still lets ends of transactions through."""

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

    def disk_failed(self, reason: str) -> None:
        """Accept nothing from now on: a sync has failed."""
        self._has_failed = True
        self.refuse(reason, is_lasting=True)

    def close_to_all(self, reason: str) -> None:
        """Accept no messages in this process any more: the log is another broker's."""
        self._closed = reason
        self.refuse(reason, is_lasting=True)

    def refuse(self, reason: str, *, is_lasting: bool) -> None:
        """Accept no messages from now on. A passing reason does not replace a lasting one."""
        if is_lasting or not self.is_lasting:
            if self.refusal is None and not is_lasting:
                _log.error("no new messages are accepted: %s", reason)
            self.refusal, self.is_lasting = reason, is_lasting
            self.is_short_of_disk = not is_lasting

    def lift(self) -> None:
        """Accept messages again, unless there is another reason not to."""
        self.refusal, self.is_lasting = self._closed or self._paused or None, bool(self._closed)
        self.is_short_of_disk = self._has_failed = False

    def pause(self, reason: str) -> None:
        """Accept no messages until `resume`, for a reason that has nothing to do with the disk."""
        self._paused = reason
        if self.refusal is None:
            _log.warning("no new messages are accepted: %s", reason)
        if not self.is_lasting and not self.is_short_of_disk:
            self.refusal = reason

    def resume(self) -> None:
        """End `pause`."""
        self._paused = ""
        if not self.is_lasting and not self.is_short_of_disk:
            self.refusal = None

    def failed(self, error: Exception) -> Put:
        """The result for a message that could not be written."""
        if isinstance(error, DiskFull):
            self.refuse(f"the disk is full: {error}", is_lasting=False)
            return Put(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if isinstance(error, struct.error):  # sent again, it would not fit either
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=f"a field fits no record: {error}")
        return Put(PutStatus.CREATE_FILE_FAILED, reason=str(error))
