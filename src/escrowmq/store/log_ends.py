"""Tracks up to where the log is written, durable and replicated, and from that, up to where
consumers may see it and senders may be answered.

Every change is reported here: a sync moves `durable`, a replica's report moves `confirmed`. Other
modules use `visible_end` and `answerable_end`, and compare no offsets with settings themselves.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.own_properties import COPIES, DURABILITY
from escrowmq.base.store_settings import StoreSettings
from escrowmq.store.commit_log import CommitLog

NO_END: Final = 1 << 62
"""An offset beyond every log: nothing has to be waited for."""


class LogEnds:
    """Tracks ends of the log, as log offsets. With ASYNC_FLUSH and no replicas to wait for, all
    that is written may be seen and answered; `visible_end` and `answerable_end` are then
    `NO_END`."""

    def __init__(self, log: CommitLog, settings: StoreSettings) -> None:
        self._log = log
        self._settings = settings
        self.waits_for_disk = settings.is_sync_flush
        """Whether senders and consumers wait until a record is durable (SYNC_FLUSH)."""
        self._waits_for_copies = False
        self._hides_unconfirmed = False
        self._is_alone = False
        self._copies_timeout_ms = 0
        self.durable = 0
        self.confirmed = 0
        """The log offset up to which as many replicas as required have the log."""
        self.visible_end = 0
        """Consumers may see the records that end at or before this log offset."""
        self.answerable_end = 0
        """Senders of records that end at or before this log offset may be answered."""
        self.holds_answers = False
        """Whether answers wait for more than the write of their record."""
        self._copies = 1
        self.safety: dict[str, str] = {}
        """Fields of a send's answer that say how safe its record is. A new dictionary replaces them
        when this changes."""
        self._update_safety()
        self._update_ends()

    @property
    def written_end(self) -> int:
        """The log offset of the next record."""
        return self._log.end_offset

    @property
    def irrevocable_end(self) -> int:
        """The log offset before which nothing can be taken back, neither by a crash nor by a new
        master of a group. Data that depend on the log up to here may be saved."""
        return min(self.durable, self.confirmed) if self._hides_unconfirmed else self.durable

    def start(self, end_offset: int) -> None:
        """Set the end of the log after a recovery; all before it is durable."""
        self.durable = end_offset
        self._update_ends()

    def set_durable(self, log_offset: int) -> None:
        """Record that a sync of everything up to an offset has finished."""
        assert log_offset <= self.written_end, (log_offset, self.written_end)
        self.durable = max(self.durable, log_offset)
        if self._is_alone:
            self.confirmed = max(self.confirmed, self.durable)
        self._update_ends()

    def set_confirmed(self, log_offset: int) -> None:
        """Record that as many replicas as required have the log up to an offset. The value never
        decreases: what was confirmed is on the replicas' disks."""
        assert log_offset <= self.written_end, (log_offset, self.written_end)
        self.confirmed = max(self.confirmed, log_offset)
        self._update_ends()

    def wait_for_copies(self, *, timeout_ms: int, copies: int = 1) -> None:
        """Let senders wait for replicas too: until this many brokers, including this one, have
        their record, or until a timeout. A timeout of 0 turns this off."""
        self._waits_for_copies, self._copies_timeout_ms = timeout_ms > 0, timeout_ms
        self._copies = copies
        self._update_safety()
        self._update_ends()

    def lead_group(self, *, timeout_ms: int) -> None:
        """Let senders and consumers wait for the copies of a group (escrowmq.group). So a fail-over
        takes back nothing that was seen."""
        self._hides_unconfirmed = True
        self.wait_for_copies(timeout_ms=timeout_ms)

    @property
    def is_group_master(self) -> bool:
        """Whether this is the log of a group's master."""
        return self._hides_unconfirmed

    def set_in_sync(self, copies: int) -> None:
        """Set how many members of a group are in sync, including this one. If it is the only one,
        the durable part of the log counts as confirmed."""
        self._copies, self._is_alone = copies, copies == 1
        self.waits_for_disk = self._is_alone or self._settings.is_sync_flush
        if self._is_alone:
            self.confirmed = max(self.confirmed, self.durable)
        self._update_safety()
        self._update_ends()

    def _update_safety(self) -> None:
        self.safety = {DURABILITY: "disk" if self.waits_for_disk else "memory"}
        if self._copies > 1:
            self.safety[COPIES] = str(self._copies)

    def _update_ends(self) -> None:
        disk = self.durable if self.waits_for_disk else NO_END
        copies = self.confirmed if self._waits_for_copies else NO_END
        self.answerable_end = min(disk, copies)
        # As at RocketMQ, consumers do not wait for slaves.
        self.visible_end = self.answerable_end if self._hides_unconfirmed else disk
        self.holds_answers = self.answerable_end < NO_END

    def timeout_code(self, log_end: int, waited_ms: int) -> int | None:
        """Return the response code for a sender that has waited too long for a record that ends at
        this offset; else None. A disk timeout comes before a replica timeout, as in RocketMQ."""
        if self.durable < log_end and waited_ms >= self._disk_timeout_ms:
            return Response.FLUSH_DISK_TIMEOUT
        if self.confirmed < log_end and waited_ms >= self._replicas_timeout_ms:
            return Response.FLUSH_SLAVE_TIMEOUT
        return None

    def answer_timeout_ms(self, log_end: int) -> int:
        """Return how long the sender of a record that ends at this offset may wait."""
        disk_ms = self._disk_timeout_ms if self.durable < log_end else NO_END
        copies_ms = self._replicas_timeout_ms if self.confirmed < log_end else NO_END
        return min(disk_ms, copies_ms)

    @property
    def _disk_timeout_ms(self) -> int:
        return self._settings.sync_timeout_ms if self.waits_for_disk else NO_END

    @property
    def _replicas_timeout_ms(self) -> int:
        return self._copies_timeout_ms if self._waits_for_copies else NO_END
