"""What an end request says, and what is answered to it."""

from __future__ import annotations

import enum

import msgspec

from escrowmq.base.message import Property, StoredMessage
from escrowmq.store.store import Put
from escrowmq.txn.state import State, Verdict


class EndResult(enum.Enum):
    """How an end request went."""

    DONE = enum.auto()
    REPEATED = enum.auto()
    CONTRADICTED = enum.auto()
    UNKNOWN = enum.auto()
    NOT_FOUND = enum.auto()
    GROUP_WRONG = enum.auto()
    QUEUE_OFFSET_WRONG = enum.auto()
    COUNT_WRONG = enum.auto()
    TOO_LATE = enum.auto()
    NOT_STORED = enum.auto()
    UNREADABLE = enum.auto()
    OF_EPOCH = enum.auto()


class Claim(msgspec.Struct, kw_only=True):
    """What an end request says: which half, whose, and what became of it."""

    log_offset: int
    queue_offset: int
    group: str
    verdict: Verdict
    is_from_check: bool = False
    ids: tuple[str, str] = ("", "")
    """Of the transaction and of the message, as the producer knows them; either is the half's
    unique key."""
    count: int | None = None
    """Messages that the producer sent in this transaction, if it says so."""
    who: str = ""
    """The administrator that decides, and why; empty for a producer."""

    def means(self, half: StoredMessage) -> bool:
        """Whether this half can be the one: after a loss of power another may stand where the one
        that is meant was lost."""
        unique_key = half.properties.get(Property.UNIQ_KEY, "")
        return not (self.ids[0] and unique_key) or unique_key in self.ids


class Ended(msgspec.Struct):
    """The answer to an end request, and where the transaction stands after it."""

    answer: EndResult
    state: State = State.PENDING
    queue_offset: int = -1
    topic: str = ""
    put: Put | None = None
    count: int = 1
    """Halves of the transaction."""
