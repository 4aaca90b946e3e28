"""What a core says to a request, as values: which protocol it came by is no matter of theirs.

A handler gives an `Answer`, or a `Refusal`, or `HELD` when it has kept the question and answers
later, or never. Whoever stands at the door puts it into the bytes of its protocol.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import Response


class Answer(msgspec.Struct, frozen=True):
    """What is said to a request that was served."""

    code: int = Response.SUCCESS
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    chunks: Sequence[bytes] = ()
    """More of the body, as it lies in the store: it goes out without being copied."""

    log_end: int = 0
    """Where the record that it tells of ends: it leaves when the sender of such a record may be
    answered. 0: at once."""

    late_code: int | None = None
    """The code to leave with when that takes too long; None: that of whatever is late."""


class Sent(Answer, frozen=True, kw_only=True):
    """A message was stored, and where. `ext` has what is said besides."""

    message_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str


class Pulled(Answer, frozen=True, kw_only=True):
    """A queue was read: what there is, if anything, and where to go on. `ext` has nothing of it."""

    next_offset: int
    min_offset: int
    max_offset: int
    flags: tuple[int, int]
    """Of the topic, and of the group."""

    size: int
    """Of all chunks."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not served. Nothing has changed."""

    code: int
    remark: str
    ext: dict[str, str] | None = None

    def saying(self, ext: dict[str, str]) -> Refusal:
        """The same with the fields that every answer to such a request has."""
        return msgspec.structs.replace(self, ext=ext)


class Denial(Refusal, frozen=True):
    """It was not let in: who asks is not proved, or has no right to it."""


class Held(enum.Enum):
    """There is no answer yet."""

    HELD = enum.auto()


HELD: Final = Held.HELD
DONE: Final = Answer()
Reply = Answer | Refusal | Held
