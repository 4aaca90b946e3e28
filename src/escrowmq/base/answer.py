"""A core's answers to requests, as values, independent of the protocol.

A handler returns an `Answer`, or a `Refusal`, or `HELD` if it keeps the request and answers later,
or never. The dialogue encodes them in its protocol."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import Response


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request that was served."""

    code: int = Response.SUCCESS
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    chunks: Sequence[bytes] = ()
    """The rest of the body, as it is in the store: it is sent without being copied."""

    log_end: int = 0
    """The answer leaves when the log is durable up to here."""

    late_code: int | None = None
    """The code to answer with if that takes too long."""

    tells_safety: bool = False
    """Whether the sender is told how safe the record is: known when the answer leaves."""


class Sent(Answer, frozen=True, kw_only=True):
    """A message was stored, and where. `ext` has additional fields."""

    message_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str


class Pulled(Answer, frozen=True, kw_only=True):
    """A queue was read: the messages, if any, and the next offset. `ext` does not contain these
    values."""

    next_offset: int
    min_offset: int
    max_offset: int
    flags: tuple[int, int]
    """The flags of the topic, and those of the group."""

    size: int
    """The size of all chunks together, in bytes."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not served. Nothing has changed."""

    code: int
    remark: str
    ext: dict[str, str] | None = None

    def with_fields(self, ext: dict[str, str]) -> Refusal:
        """This refusal with the fields that every answer to such a request has."""
        return msgspec.structs.replace(self, ext=ext)


class Denial(Refusal, frozen=True):
    """Access was denied: authentication failed, or a right is missing."""


class Held(enum.Enum):
    """There is no answer yet."""

    HELD = enum.auto()


HELD: Final = Held.HELD
DONE: Final = Answer()
Reply = Answer | Refusal | Held
