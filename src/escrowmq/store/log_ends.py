"""How far the log is written, durable and copied, and the two questions that follow from it: up to
where consumers may see it, and whether the sender of a record may be answered.

Whoever moves an end says so here: a sync moves `durable`, a replica's report moves `confirmed`.
Nobody else compares offsets with a setting: `visible_end` and `answerable_end` are made for that.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.broker_settings import StoreSettings
from escrowmq.base.codes import Response
from escrowmq.store.commit_log import CommitLog

NO_END: Final = 1 << 62
"""An end beyond every log: nothing is waited for."""


class LogEnds:
    """All ends are log offsets. With ASYNC_FLUSH and no replicas to wait for, what is written may
    be seen and answered at once; then both ends are `NO_END`."""

    def __init__(self, log: CommitLog, settings: StoreSettings) -> None:
        self._log = log
        self._settings = settings
        self.waits_for_disk: Final = settings.is_sync_flush
        """SYNC_FLUSH: senders and consumers wait until a record is durable."""
        self._waits_for_copies = False
        self._copies_timeout_ms = 0
        self.durable = 0
        self.confirmed = 0
        """As many replicas as are needed have the log up to here."""
        self.visible_end = 0
        """Consumers may see records that end here or before."""
        self.answerable_end = 0
        """Senders of records that end here or before may be answered."""
        self.holds_answers = False
        """Whether any answer waits for more than that its record is written."""
        self._draw()

    @property
    def written(self) -> int:
        """Where the next record begins."""
        return self._log.end_offset

    @property
    def level(self) -> str:
        """What a record has reached when its sender is answered."""
        return "disk" if self.waits_for_disk else "memory"

    def start(self, end_offset: int) -> None:
        """After a recovery: the log ends there and is durable."""
        self.durable = end_offset
        self._draw()

    def made_durable(self, log_offset: int) -> None:
        """A sync of everything up to an offset is done."""
        assert log_offset <= self.written, (log_offset, self.written)
        self.durable = max(self.durable, log_offset)
        self._draw()

    def made_confirmed(self, log_offset: int) -> None:
        """So many replicas as are needed have the log up to an offset. It never runs back: what
        was confirmed once is on their disks, whoever is connected now."""
        assert log_offset <= self.written, (log_offset, self.written)
        self.confirmed = max(self.confirmed, log_offset)
        self._draw()

    def wait_for_copies(self, *, timeout_ms: int) -> None:
        """From now on senders wait for replicas as well, each at most so long; 0: no longer."""
        self._waits_for_copies, self._copies_timeout_ms = timeout_ms > 0, timeout_ms
        self._draw()

    def _draw(self) -> None:
        disk = self.durable if self.waits_for_disk else NO_END
        copies = self.confirmed if self._waits_for_copies else NO_END
        # As at RocketMQ, consumers do not wait for replicas.
        self.visible_end, self.answerable_end = disk, min(disk, copies)
        self.holds_answers = self.answerable_end < NO_END

    def late_code(self, log_end: int, waited_ms: int) -> int | None:
        """What to answer about a record that ends there, as its sender has waited so long; None
        while there is hope. The disk comes first, as at RocketMQ."""
        if self.durable < log_end and waited_ms >= self._disk_timeout_ms:
            return Response.FLUSH_DISK_TIMEOUT
        if self.confirmed < log_end and waited_ms >= self._replicas_timeout_ms:
            return Response.FLUSH_SLAVE_TIMEOUT
        return None

    def late_after_ms(self, log_end: int) -> int:
        """How long the sender of a record that ends there waits at most."""
        disk_ms = self._disk_timeout_ms if self.durable < log_end else NO_END
        copies_ms = self._replicas_timeout_ms if self.confirmed < log_end else NO_END
        return min(disk_ms, copies_ms)

    @property
    def _disk_timeout_ms(self) -> int:
        return self._settings.sync_timeout_ms if self.waits_for_disk else NO_END

    @property
    def _replicas_timeout_ms(self) -> int:
        return self._copies_timeout_ms if self._waits_for_copies else NO_END
