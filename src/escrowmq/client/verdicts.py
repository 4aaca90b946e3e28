"""What a producer knows about its own transactions, so that no check has to guess."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from escrowmq.base.extensions import TRANSACTION
from escrowmq.base.message import Property
from escrowmq.client.core.sending import Outcome

KNOWN_MAX: Final = 10_000
"""Outcomes of transactions that ended here and whose broker could not be told. Of more, the oldest
is forgotten; the user's check answers for it then."""


class Block(Protocol):
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
        self._open: weakref.WeakValueDictionary[str, Block] = weakref.WeakValueDictionary()
        self._known: dict[str, Outcome] = {}

    def open(self, key: str, block: Block) -> None:
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
