"""Whether messages are accepted, and why not."""

from __future__ import annotations

import logging
import struct

from escrowmq.errors import DiskFull
from escrowmq.store.results import Put, PutStatus

_log = logging.getLogger(__name__)


class Writability:
    """Whether a store accepts puts. A lasting refusal, as after a failed sync, applies to all of
    them; any other still lets ends of transactions through."""

    def __init__(self) -> None:
        self.refusal: str | None = "the store is not open"
        self.is_lasting = True
        self._closed = ""

    def close_to_all(self, reason: str) -> None:
        """Take no messages as long as this process runs: the log is another broker's."""
        self._closed = reason
        self.refuse(reason, is_lasting=True)

    def refuse(self, reason: str, *, is_lasting: bool) -> None:
        """Accept no messages from now on. A passing reason does not replace a lasting one."""
        if is_lasting or not self.is_lasting:
            if self.refusal is None and not is_lasting:
                _log.error("no new messages are accepted: %s", reason)
            self.refusal, self.is_lasting = reason, is_lasting

    def lift(self) -> None:
        """Accept messages again, unless the log is another broker's."""
        self.refusal, self.is_lasting = self._closed or None, bool(self._closed)

    @property
    def is_passing(self) -> bool:
        """Whether messages are refused for a reason that may pass by itself."""
        return self.refusal is not None and not self.is_lasting

    def failed(self, error: Exception) -> Put:
        """The result for a message that could not be written."""
        if isinstance(error, DiskFull):
            self.refuse(f"the disk is full: {error}", is_lasting=False)
            return Put(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if isinstance(error, struct.error):  # sent again, it would not fit either
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=f"a field fits no record: {error}")
        return Put(PutStatus.CREATE_FILE_FAILED, reason=str(error))
