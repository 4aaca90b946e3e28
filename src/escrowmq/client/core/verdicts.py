"""A producer's knowledge of its own transactions, so that it need not call the user's check."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from escrowmq.base.message import Property
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import OutcomeContradicted

KNOWN_MAX: Final = 10_000
"""Limit of remembered outcomes of transactions that ended here without the broker's confirmation.
Beyond it the oldest is forgotten, and the user's check answers."""


class TransactionBlock(Protocol):
    """The members of `client.transaction.Transaction` that this module needs."""

    @property
    def verdict(self) -> Outcome | None:
        """The known outcome: UNKNOWN while the block is open, None if the user's check must
        answer."""


class KnownOutcomes:
    """Known outcomes of transactions by their key: the bundle's id, or the message's.

    While a block is open, checks are answered with UNKNOWN: the database has no row yet, so the
    user's check would roll back a transaction that commits a moment later. Open blocks are held by
    weak references. If a block was dropped without an end, the user's check answers."""

    def __init__(self) -> None:
        self._open: weakref.WeakValueDictionary[str, TransactionBlock] = (
            weakref.WeakValueDictionary()
        )
        self._known: dict[str, Outcome] = {}

    def add_open(self, key: str, block: TransactionBlock) -> None:
        """Remember an open block, which is about to store its first message."""
        self._open[key] = block

    def remember_outcome(self, key: str, outcome: Outcome) -> None:
        """Remember the outcome of a transaction that ended, because its broker may not know it."""
        self._known.pop(key, None)
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = outcome

    def outcome_of(self, properties: Mapping[str, str]) -> Outcome | None:
        """Return the outcome of a half's transaction; None if the user's check must answer."""
        key = properties.get(TRANSACTION) or properties.get(Property.UNIQ_KEY, "")
        block = self._open.get(key)
        if block is not None:
            return block.verdict
        return self._known.get(key)


class TransactionCourse:
    """The state of one transaction in its producer; it determines the answer to a check.
    `KnownOutcomes` treats it as an open block from the moment when its first message is about to be
    sent."""

    def __init__(self, verdicts: KnownOutcomes) -> None:
        self.key = ""
        """The bundle's id, or the message's; empty before the first message is about to be sent."""
        self.verdict: Outcome | None = Outcome.UNKNOWN
        self._verdicts = verdicts

    def begin(self, key: str) -> None:
        """Set the key, because the first message is about to be sent."""
        self.key = key
        self._verdicts.add_open(key, self)

    def mark_abandoned(self) -> None:
        """Note that the block never starts, so none of its work was done. A message of it may
        nevertheless be stored, if the broker's answer was lost."""
        self.verdict = Outcome.ROLLBACK
        if self.key:
            self._verdicts.remember_outcome(self.key, Outcome.ROLLBACK)

    @property
    def is_abandoned(self) -> bool:
        """Whether the block never started."""
        return self.verdict is Outcome.ROLLBACK

    def set_outcome(self, outcome: Outcome) -> None:
        """Set the outcome: checks get it from now on, whether or not the broker received the
        END."""
        self.verdict = None if outcome is Outcome.UNKNOWN else outcome

    def record_unconfirmed(self, error: BaseException) -> None:
        """Note that the broker did not confirm the END. The broker will check back, unless the
        error says that it had another outcome before."""
        if self.verdict is not None and not isinstance(error, OutcomeContradicted):
            self._verdicts.remember_outcome(self.key, self.verdict)

    def leave_to_check(self) -> None:
        """Leave checks to the user's check from now on, because another process will end the
        transaction."""
        self.verdict = None
