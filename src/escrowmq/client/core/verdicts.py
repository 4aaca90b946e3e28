"""What a producer knows about its own transactions, so that no check has to guess."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from escrowmq.base.message import Property
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import OutcomeContradicted

KNOWN_MAX: Final = 10_000
"""Outcomes of transactions that ended here and whose broker could not be told. Of more, the oldest
is forgotten; the user's check answers for it then."""


class TransactionBlock(Protocol):
    """A transaction as this module sees it."""

    @property
    def verdict(self) -> Outcome | None:
        """What is known of its outcome: UNKNOWN while it is open, None when the user's check is to
        say."""


class Verdicts:
    """Transactions by their key: the bundle's id, or the message's.

    A block that is open has no outcome yet, however long it takes: the database does not show one
    either, and a check that found no row would roll back what is committed a moment later. Open
    blocks are held weakly: of one that was dropped without an end, the user's check knows more.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakValueDictionary[str, TransactionBlock] = (
            weakref.WeakValueDictionary()
        )
        self._known: dict[str, Outcome] = {}

    def open(self, key: str, block: TransactionBlock) -> None:
        """A transaction is about to store its first message."""
        self._open[key] = block

    def remember(self, key: str, outcome: Outcome) -> None:
        """It ended, and its broker may not have heard of it."""
        self._known.pop(key, None)
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = outcome

    def of(self, properties: Mapping[str, str]) -> Outcome | None:
        """The outcome of the transaction that a half message belongs to; None when its check is to
        be asked."""
        key = properties.get(TRANSACTION) or properties.get(Property.UNIQ_KEY, "")
        block = self._open.get(key)
        if block is not None:
            return block.verdict
        return self._known.get(key)


class Course:
    """What is known here of one transaction: it decides what a check is answered. It is a block of
    `Verdicts` from the moment in which its first message is about to leave."""

    def __init__(self, verdicts: Verdicts) -> None:
        self.key = ""
        """The bundle's id, or the message's; empty before the first message is about to leave."""
        self.verdict: Outcome | None = Outcome.UNKNOWN
        self._verdicts = verdicts

    def open(self, key: str) -> None:
        """The first message is about to leave."""
        self.key = key
        self._verdicts.open(key, self)

    def abandon(self) -> None:
        """Its block never begins, so that nothing of it was done. A message of it may be stored all
        the same, which nobody here heard of."""
        self.verdict = Outcome.ROLLBACK
        if self.key:
            self._verdicts.remember(self.key, Outcome.ROLLBACK)

    @property
    def is_abandoned(self) -> bool:
        """Whether its block never begins."""
        return self.verdict is Outcome.ROLLBACK

    def decide(self, outcome: Outcome) -> None:
        """It ends so: a check hears it from here on, whether or not the broker heard it before."""
        self.verdict = None if outcome is Outcome.UNKNOWN else outcome

    def unheard(self, error: BaseException) -> None:
        """The broker did not confirm the end; it will ask, unless it had another one before."""
        if self.verdict is not None and not isinstance(error, OutcomeContradicted):
            self._verdicts.remember(self.key, self.verdict)

    def hand_over(self) -> None:
        """Somebody else ends it: the user's check knows more from now on."""
        self.verdict = None
