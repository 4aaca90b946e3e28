"""The content of an END, and its result."""

from __future__ import annotations

import enum

import msgspec

from escrowmq.base.message import Property, StoredMessage
from escrowmq.store.store import PutResult
from escrowmq.txn.state import State, Verdict


class EndResult(enum.Enum):
    """What happened to an END."""

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
    """The content of an END: which half, which producer group, which outcome."""

    log_offset: int
    queue_offset: int
    group: str
    verdict: Verdict
    is_from_check: bool = False
    ids: tuple[str, str] = ("", "")
    """The producer's ids of the transaction and of the message. One of them should be the half's
    unique key."""
    count: int | None = None
    """The number of messages that the producer sent in this transaction, if the END says so."""
    who: str = ""
    """The administrator that decided, and the reason; empty for an END of a producer."""

    def matches(self, half: StoredMessage) -> bool:
        """Whether this half can be the one that the END names. After a power failure, another half
        may have the offsets of a lost one."""
        unique_key = half.properties.get(Property.UNIQ_KEY, "")
        return not (self.ids[0] and unique_key) or unique_key in self.ids


class EndReply(msgspec.Struct):
    """The result of an END, and the state of the transaction after it."""

    answer: EndResult
    state: State = State.PENDING
    queue_offset: int = -1
    topic: str = ""
    put: PutResult | None = None
    count: int = 1
    """The number of halves of the transaction."""
