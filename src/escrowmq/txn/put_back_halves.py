"""Halves that RocketMQ has stored again at each check, with TRANSACTION_CHECK_TIMES one higher.

No record says that such a copy replaces the ones before it: only the progress in
consumerOffset.json does, which RocketMQ writes after a check of all halves, and a little later. A
start after a kill finds several copies. They are one transaction, of which the newest counts.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.codec.hashes import body_crc
from escrowmq.codec.properties import parse_number
from escrowmq.store.store import Store
from escrowmq.store.walk import walk_queue
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_identity import HalfIdentity, identity_of_half

_CHECKED: Final = f"{Property.TRANSACTION_CHECK_TIMES}\x01".encode()
_CARRIED: Final = f"{CARRIED}\x01".encode()


class PutBackHalves:
    """Finds pending halves that have a newer copy of RocketMQ's."""

    def __init__(self, engine: TransactionEngine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._places: list[tuple[int, int]] = []
        """Where in the queue of halves there may be copies: from an offset, to an offset."""

    def note_read(self, first: int, count: int, data: bytes) -> None:
        """Note consecutive halves with their bytes, whether or not they have ended."""
        # Our own copies have both properties.
        if data.count(_CHECKED) > data.count(_CARRIED):
            self._places.append((first, first + count))

    def supersede_older(self) -> None:
        """Let the newest copy of each half replace the others that are pending. It may have
        ended."""
        newest: dict[tuple[HalfIdentity, int, int], int] = {}
        for first, end in self._places:
            for half in walk_queue(self._store, Topic.HALF, first, end):
                if _is_put_back(half):
                    likeness = _likeness(half)
                    newest[likeness] = max(half.queue_offset, newest.get(likeness, -1))
        self._places.clear()
        if not newest:
            return
        last = max(newest.values())
        for queue_offset in list(self._engine.halves.pending):
            older = self._engine.halves.read_half(queue_offset) if queue_offset < last else None
            copy = -1 if older is None else newest.get(_likeness(older), -1)
            if copy > queue_offset:
                self._engine.supersede(queue_offset, copy)


def _is_put_back(half: StoredMessage) -> bool:
    checks = half.properties.get(Property.TRANSACTION_CHECK_TIMES)
    return bool(parse_number(checks, most=INT_MAX))


def _likeness(half: StoredMessage) -> tuple[HalfIdentity, int, int]:
    """Return what the copies of a half have in common, and another half of its sender has not, even
    if that has the same key."""
    return identity_of_half(half.properties), half.born_ms, body_crc(half.body)
