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
    """The rest of the body: chunks of the store's files, sent without being copied."""

    log_end: int = 0
    """The answer is sent once the log is durable up to this offset."""

    late_code: int | None = None
    """The response code to use if the log is not durable in time."""

    tells_safety: bool = False
    """Whether the answer must say how safe the record is (on disk, copies). That is added when the
    answer is sent."""


class SendAnswer(Answer, frozen=True, kw_only=True):
    """The answer to a message that was stored, with its position. `ext` has additional fields."""

    message_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str


class PullAnswer(Answer, frozen=True, kw_only=True):
    """The answer to a pull or another read of a queue: the messages, if any, and the next offset.
    `ext` does not contain these values."""

    next_offset: int
    min_offset: int
    max_offset: int
    flags: tuple[int, int]
    """The flags of the topic, and those of the group."""

    size: int
    """The size of all chunks together, in bytes."""


class Refusal(msgspec.Struct, frozen=True):
    """The answer to a request that was not served; nothing was changed."""

    code: int
    remark: str
    ext: dict[str, str] | None = None

    def with_fields(self, ext: dict[str, str]) -> Refusal:
        """Return this refusal with the fields that every answer to such a request has."""
        return msgspec.structs.replace(self, ext=ext)


class Denial(Refusal, frozen=True):
    """Access was denied: authentication failed, or a right is missing."""


class AnswerLater(enum.Enum):
    """The sign that a handler keeps a request, and answers later or never."""

    HELD = enum.auto()


HELD: Final = AnswerLater.HELD
DONE: Final = Answer()
Reply = Answer | Refusal | AnswerLater
