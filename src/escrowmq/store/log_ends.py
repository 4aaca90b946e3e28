"""How far the log is written, durable and replicated, and what follows: up to where consumers may
see it, and whether the sender of a record may be answered.

Every change of an end is reported here: a sync moves `durable`, a replica's report moves
`confirmed`. No other module compares offsets with settings: it asks `visible_end` and
`answerable_end`."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.own_properties import COPIES, DURABILITY
from escrowmq.base.store_settings import StoreSettings
from escrowmq.store.commit_log import CommitLog

NO_END: Final = 1 << 62
"""An end beyond every log: nothing has to be waited for."""


class LogEnds:
    """All ends are log offsets. With ASYNC_FLUSH and no replicas to wait for, everything written
    may be seen and answered at once; both ends are then `NO_END`."""

    def __init__(self, log: CommitLog, settings: StoreSettings) -> None:
        self._log = log
        self._settings = settings
        self.waits_for_disk = settings.is_sync_flush
        """SYNC_FLUSH: senders and consumers wait until a record is durable."""
        self._waits_for_copies = False
        self._hides_unconfirmed = False
        self._is_alone = False
        self._copies_timeout_ms = 0
        self.durable = 0
        self.confirmed = 0
        """As many replicas as required have the log up to here."""
        self.visible_end = 0
        """Consumers may see records that end here or before."""
        self.answerable_end = 0
        """Senders of records that end here or before may be answered."""
        self.holds_answers = False
        """Whether answers wait for more than the write of their record."""
        self._copies = 1
        self.safety: dict[str, str] = {}
        """How safe a record is when its sender is answered, as fields of the answer. Another one
        when this changes."""
        self._promise()
        self._draw()

    @property
    def written(self) -> int:
        """Where the next record begins."""
        return self._log.end_offset

    @property
    def lasting_end(self) -> int:
        """What follows from records that end here or before may be saved: no crash takes them back,
        and no other master of a group."""
        return min(self.durable, self.confirmed) if self._hides_unconfirmed else self.durable

    def start(self, end_offset: int) -> None:
        """After a recovery: the log ends at this offset and is durable."""
        self.durable = end_offset
        self._draw()

    def made_durable(self, log_offset: int) -> None:
        """A sync of everything up to an offset has finished."""
        assert log_offset <= self.written, (log_offset, self.written)
        self.durable = max(self.durable, log_offset)
        if self._is_alone:
            self.confirmed = max(self.confirmed, self.durable)
        self._draw()

    def made_confirmed(self, log_offset: int) -> None:
        """As many replicas as required have the log up to an offset. It never decreases: what was
        confirmed once is on their disks, whichever replicas are connected now."""
        assert log_offset <= self.written, (log_offset, self.written)
        self.confirmed = max(self.confirmed, log_offset)
        self._draw()

    def wait_for_copies(self, *, timeout_ms: int, copies: int = 1) -> None:
        """From now on, let senders wait for replicas as well, up to a timeout (0: no longer), until
        this many brokers have their record, including this one."""
        self._waits_for_copies, self._copies_timeout_ms = timeout_ms > 0, timeout_ms
        self._copies = copies
        self._promise()
        self._draw()

    def lead_group(self, *, timeout_ms: int) -> None:
        """From now on senders and consumers wait for the copies of a group (escrowmq.group): what
        is seen is not taken back by a fail-over."""
        self._hides_unconfirmed = True
        self.wait_for_copies(timeout_ms=timeout_ms)

    @property
    def leads_group(self) -> bool:
        """Whether this is the log of a group's master."""
        return self._hides_unconfirmed

    def are_in_sync(self, copies: int) -> None:
        """Note how many members of a group have what is confirmed, including this one. If it is the
        only one, what is durable here is confirmed."""
        self._copies, self._is_alone = copies, copies == 1
        self.waits_for_disk = self._is_alone or self._settings.is_sync_flush
        if self._is_alone:
            self.confirmed = max(self.confirmed, self.durable)
        self._promise()
        self._draw()

    def _promise(self) -> None:
        self.safety = {DURABILITY: "disk" if self.waits_for_disk else "memory"}
        if self._copies > 1:
            self.safety[COPIES] = str(self._copies)

    def _draw(self) -> None:
        disk = self.durable if self.waits_for_disk else NO_END
        copies = self.confirmed if self._waits_for_copies else NO_END
        self.answerable_end = min(disk, copies)
        # As at RocketMQ, consumers do not wait for slaves.
        self.visible_end = self.answerable_end if self._hides_unconfirmed else disk
        self.holds_answers = self.answerable_end < NO_END

    def late_code(self, log_end: int, waited_ms: int) -> int | None:
        """The response code for a record that ends there, after its sender has waited this long;
        None while it may still succeed. The disk is considered first, as in RocketMQ."""
        if self.durable < log_end and waited_ms >= self._disk_timeout_ms:
            return Response.FLUSH_DISK_TIMEOUT
        if self.confirmed < log_end and waited_ms >= self._replicas_timeout_ms:
            return Response.FLUSH_SLAVE_TIMEOUT
        return None

    def late_after_ms(self, log_end: int) -> int:
        """The longest time that the sender of a record that ends there waits."""
        disk_ms = self._disk_timeout_ms if self.durable < log_end else NO_END
        copies_ms = self._replicas_timeout_ms if self.confirmed < log_end else NO_END
        return min(disk_ms, copies_ms)

    @property
    def _disk_timeout_ms(self) -> int:
        return self._settings.sync_timeout_ms if self.waits_for_disk else NO_END

    @property
    def _replicas_timeout_ms(self) -> int:
        return self._copies_timeout_ms if self._waits_for_copies else NO_END
