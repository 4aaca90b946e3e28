"""The transactions of one broker: pending halves, checks, signed ids, discards, and their
persistence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.ports import RandomSource
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.signed_id import SignedId
from escrowmq.errors import StorageError
from escrowmq.store.durable_progress import ProgressMark, ProgressMarks
from escrowmq.store.optional_file import read_optional_file
from escrowmq.store.store import PutResult, Store
from escrowmq.txn import keyring, pending_snapshot
from escrowmq.txn.carry_forward import Carrier
from escrowmq.txn.check_schedule import CheckScheduler, LiveProducer
from escrowmq.txn.doubled_halves import newest_position
from escrowmq.txn.end_records import AsDelivered
from escrowmq.txn.end_requests import EndRequests
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.keyring import Keyring
from escrowmq.txn.pending_recovery import HalvesRecovery
from escrowmq.txn.pending_snapshot import PendingSnapshot
from escrowmq.txn.plain_halves import PlainHalf
from escrowmq.txn.resume import TransactionResumer

_log = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000

_RENEWAL_AGAIN_MS: Final = 60_000
"""The pause after a signing key could not be saved."""

SNAPSHOT_MS: Final = 30_000
SNAPSHOT_MIN: Final = 20_000
"""A snapshot is written only if at least this many halves were stored since the oldest pending
one."""


class ProgressToSave(NamedTuple):
    """Progress to save: in the half queue, in the op queue, and a snapshot of pending halves, or
    empty bytes."""

    half_offset: int
    op_offset: int
    snapshot: bytes


class Transactions:
    """All of a broker's transactions; the interface of this room. Call `load` when the store is
    open."""

    def __init__(  # noqa: PLR0913 - what transactions depend on
        self,
        store: Store,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        *,
        host: bytes,
        chance: RandomSource,
        as_delivered: AsDelivered,
        members: Callable[[str], list[LiveProducer]],
        before: Transactions | None = None,
    ) -> None:
        """`before` is the object of the same data folder while the broker was a copy, so that
        nothing is read again."""
        self._store = store
        self._settings = settings
        self._renewal_again_ms = 0
        self._before: Transactions | None = None
        if before is not None and before.is_copy_loaded:
            self._before = before
        self.engine: TransactionEngine = TransactionEngine(
            store,
            settings,
            host=host,
            as_delivered=as_delivered,
            before=None if self._before is None else self._before.engine,
        )
        self.ends = EndRequests(self.engine, store, settings)

        def kept_ms() -> int:
            """Return how long the log keeps a record, by the current setting."""
            return store_settings.reserved_hours * HOUR_MS

        self.keyring = Keyring(
            chance,
            lasting_ms=kept_ms,
            rotation_ms=lambda: settings.key_rotation_hours * HOUR_MS,
        )
        self.checker = CheckScheduler(
            self.engine,
            settings,
            age_max_ms=kept_ms,
            members=members,
        )
        self.carrier = Carrier(self.engine, self.checker, store)
        self.resumption = TransactionResumer(self.engine, store)
        self.recovery = HalvesRecovery(self.engine, store)
        self._marks: ProgressMarks[ProgressToSave] = ProgressMarks()
        self._snapshot_at_ms = 0
        self.is_copy_loaded: bool = False
        """On a copy: whether the pending halves were loaded from the log."""
        self.snapshot_ms, self.snapshot_min = SNAPSHOT_MS, SNAPSHOT_MIN

    # -- life --------------------------------------------------------------------------------

    def load(self, now_ms: int, *, half_offset: int, op_offset: int, is_sound: bool) -> None:
        """Load the keys and the pending halves, from the saved progress of both queues on, and
        complete interrupted ends."""
        disk = self._store.disk
        self.keyring.load(disk.read(keyring.PATH))
        before, self._before = self._before, None
        if before is not None:
            found = self.recovery.continue_from(before.recovery, now_ms, is_sound=is_sound)
        else:
            found = self.recovery.run(
                now_ms,
                half_offset=half_offset,
                op_offset=op_offset,
                is_sound=is_sound,
                snapshot=self._read_snapshot(),
            )
        if found.pending_count or found.derived_count:
            _log.info(
                "%d transactions are pending; %d more were ended without an op record",
                found.pending_count,
                found.derived_count,
            )

    def _read_snapshot(self) -> PendingSnapshot | None:
        """Return the snapshot of pending halves. It is removed if the log has lost its end: once
        that has grown again, it would hide other halves from later starts."""
        store = self._store
        snapshot = pending_snapshot.decode(read_optional_file(store.disk, pending_snapshot.PATH))
        if snapshot is not None and (
            snapshot.half_end > store.bounds(Topic.HALF, 0)[1]
            or snapshot.op_end > store.bounds(Topic.OP, 0)[1]
        ):
            store.disk.remove(pending_snapshot.PATH)
            return None
        return snapshot

    def load_copy(self, now_ms: int, *, half_offset: int, op_offset: int, is_sound: bool) -> None:
        """Load the pending halves on a copy, so that it can take over fast. Store nothing."""
        self.recovery.read_only(
            now_ms,
            half_offset=half_offset,
            op_offset=op_offset,
            is_sound=is_sound,
            snapshot=self._read_snapshot(),
        )
        self.is_copy_loaded = True

    def read_appended(self, now_ms: int) -> None:
        """Read the records that arrived on a copy since the last call."""
        self.recovery.read_appended(now_ms)

    def progress_to_save(self, now_ms: int) -> ProgressToSave | None:
        """Return the newest durable progress to save; None if it has not advanced."""
        store, halves = self._store, self.engine.halves
        oldest = halves.pending.oldest_offset()
        # The queue's own end is too low while a full disk holds units back.
        half = max(store.bounds(Topic.HALF, 0)[1], halves.pending.end_offset)
        if oldest is not None:
            half = oldest
        # Only its op record tells that a half was discarded, so unsealed ones must be read again.
        unsealed = self.engine.unsealed.lowest_offset
        if unsealed is not None:
            half = min(half, unsealed)
        halves.tally.drop_before(half)
        now = ProgressToSave(
            half, self.engine.progress.first_needed_op(half), self._encode_snapshot(half, now_ms)
        )
        # Save the progress only when the log up to here is durable, or it would outlive lost ends.
        self._marks.add(ProgressMark(store.end_offset, store.end_offset, now))
        mark = self._marks.take_durable(store.irrevocable_offset)
        return None if mark is None else mark.state

    def _encode_snapshot(self, oldest: int, now_ms: int) -> bytes:
        """Return a snapshot of pending halves, or empty bytes. It is made only if it would make the
        next start faster, every end has its op record, and every half its queue entry."""
        pending = self.engine.halves.pending
        behind = pending.end_offset - oldest
        if (
            now_ms < self._snapshot_at_ms + self.snapshot_ms
            or behind < self.snapshot_min
            or len(pending) > behind // 2
            or self.engine.unsealed
            or not self._store.is_complete(Topic.HALF, 0)
        ):
            return b""
        half_end = self._store.bounds(Topic.HALF, 0)[1]
        self._snapshot_at_ms = now_ms
        op_end = self._store.bounds(Topic.OP, 0)[1]
        return pending_snapshot.encode(half_end, op_end, pending.offsets_after(-1))

    # -- ids ---------------------------------------------------------------------------------

    def renew_key(self, now_ms: int) -> int:
        """Create a new signing key, save it, and return its number. If saving raises StorageError,
        the old key stays in use."""
        before = self.keyring.content_to_save()
        number = self.keyring.rotate(now_ms)
        try:
            self._store.disk.replace(keyring.PATH, self.keyring.content_to_save(), is_private=True)
        except (StorageError, OSError):
            self.keyring.load(before)
            raise
        return number

    def renew_due_key(self, now_ms: int) -> None:
        """Create a new signing key if one is due. If it cannot be saved, the old key signs until
        that succeeds. Raises StorageError if there is no old key."""
        keyring = self.keyring
        if not keyring.is_rotation_due(now_ms):
            return
        if now_ms < self._renewal_again_ms:
            return
        try:
            self.renew_key(now_ms)
        except (StorageError, OSError) as error:
            if not keyring.has_key:
                raise
            self._renewal_again_ms = now_ms + _RENEWAL_AGAIN_MS
            _log.warning("the old signing key stays in use, because no new one is saved: %s", error)

    def rotate_and_sign(
        self, place: PutResult | StoredMessage, unique_key: str, now_ms: int
    ) -> str:
        """Return the signed id of a half's transaction, after creating a new key if one is due.
        Raises StorageError if there is no key, and none can be saved."""
        self.renew_due_key(now_ms)
        return self.sign(place, unique_key, now_ms)

    def sign(
        self, place: PutResult | StoredMessage | PlainHalf, unique_key: str, now_ms: int
    ) -> str:
        """Return the signed id of a half's transaction."""
        return self.keyring.sign(
            queue_offset=place.queue_offset,
            log_offset=place.log_offset,
            unique_key=unique_key,
            broker_name=self._settings.name,
            now_ms=now_ms,
        )

    def find_signed_half(self, text: str, now_ms: int) -> tuple[SignedId, StoredMessage | None]:
        """Return the content of a signed id, and its half if the log still has it. Raises
        UsageError if this broker has not signed the id, or it has expired."""
        found = self.keyring.verify_id(text, broker_name=self._settings.name, now_ms=now_ms)
        half = self.half_at(found.queue_offset, found.log_offset)
        if half is None or not found.is_id_of(half.properties.get(Property.UNIQ_KEY, "")):
            return found, None
        return found, half

    def half_at(self, queue_offset: int, log_offset: int) -> StoredMessage | None:
        """Return the half at a position, or its newest copy if it was carried forward; None if it
        is not in the log."""
        place = newest_position(queue_offset, log_offset, self.engine.halves, self._store)
        half = self.engine.halves.find_half(*place)
        return None if half is None else half.message
