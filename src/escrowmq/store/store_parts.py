"""The parts of a store: its files, and what is known about them."""

from __future__ import annotations

from datetime import tzinfo

from escrowmq.base.delay_levels import parse_delay_levels
from escrowmq.base.ports import Disk
from escrowmq.base.store_settings import StoreSettings
from escrowmq.store.checkpoint import CheckpointFile
from escrowmq.store.commit_log import CommitLog
from escrowmq.store.deletions import DeletedTopics
from escrowmq.store.dispatch import Dispatcher
from escrowmq.store.durable_ends import DurableEnds
from escrowmq.store.index import Index
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.queues import Queues
from escrowmq.store.write_gate import WriteGate


class StoreState:
    """The shared state of a store's parts. Recovery, flushes, clean-up and searches work on it."""

    def __init__(self, disk: Disk, settings: StoreSettings, *, boot: str, zone: tzinfo) -> None:
        self.disk = disk
        self.settings = settings
        self.boot = boot
        """Identifies the machine's present boot; empty when unknown."""
        self.is_boot_saved = True
        """Whether the snapshot file names the present boot."""
        self.log = CommitLog(
            disk, segment_size=settings.log_segment_size, reserve_size=settings.reserve_size
        )
        self.ends = LogEnds(self.log, settings)
        self.queues = Queues(disk, segment_size=settings.queue_segment_size)
        self.index: Index | None = None
        if settings.has_index:
            self.index = Index(
                disk,
                slots_count=settings.index_slots_count,
                entries_max=settings.index_entries_max,
                zone=zone,
            )
        self.deleted = DeletedTopics()
        self.checkpoint = CheckpointFile(disk)
        self.durability = DurableEnds(self.ends, self.checkpoint, has_index=settings.has_index)
        self.dispatcher = Dispatcher(
            self.log, self.ends, self.index, parse_delay_levels(settings.delay_levels)
        )
        self.write_gate = WriteGate()

    def set_boot_saved(self, *, is_noted: bool) -> None:
        """Set whether the snapshot file names the present boot. A full disk may prevent that."""
        self.is_boot_saved = is_noted
