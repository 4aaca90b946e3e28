"""The step after each attempt to send, as RocketMQ's client decides it (DefaultMQProducerImpl)."""

from __future__ import annotations

import enum
from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.errors import (
    NotMaster,
    PermissionDenied,
    ResponseError,
    TransportError,
    response_error,
)

STORED_CODES: Final = frozenset(
    {
        Response.SUCCESS,
        Response.FLUSH_DISK_TIMEOUT,
        Response.SLAVE_NOT_AVAILABLE,
        Response.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Response codes that mean that the message is stored: safely, or less safely than required."""

_PAUSE_FIRST_S: Final = 0.02
_NO_BUYER_ID: Final = 204
_NOT_IN_UNIT: Final = 205
RETRIED_CODES: Final = frozenset(
    {
        Response.TOPIC_NOT_EXIST,
        Response.SERVICE_NOT_AVAILABLE,
        Response.SYSTEM_ERROR,
        Response.SYSTEM_BUSY,
        Response.NO_PERMISSION,
        _NO_BUYER_ID,
        _NOT_IN_UNIT,
        Response.GO_AWAY,
    }
)
"""Response codes of refusals after which another attempt is made."""


def may_have_new_master(reply: Command) -> bool:
    """Whether another broker may be the master now: this one reports so, or has stored a message
    that no replica confirms."""
    if reply.code == Response.FLUSH_SLAVE_TIMEOUT:
        return True
    error = response_error(reply.code, reply.remark, address="")
    return isinstance(error, NotMaster)


class RetryStep(enum.Enum):
    """What the producer does after an attempt."""

    DONE = enum.auto()
    AGAIN = enum.auto()
    GIVE_UP = enum.auto()


def step_after_reply(code: int, *, retries_unsafe: bool) -> RetryStep:
    """Return the step after an answer. `retries_unsafe` sends again if the message was stored less
    safely than required."""
    if code == Response.SUCCESS or (code in STORED_CODES and not retries_unsafe):
        return RetryStep.DONE
    return RetryStep.AGAIN if code in STORED_CODES or code in RETRIED_CODES else RetryStep.GIVE_UP


def step_after_failure(error: Exception, *, may_repeat: bool) -> RetryStep:
    """Return the step after an attempt without an answer, or after a refusal raised as an
    exception. `may_repeat` says whether the message may be sent again although it may already be
    stored."""
    if isinstance(error, TransportError):
        return RetryStep.AGAIN if may_repeat else RetryStep.GIVE_UP
    if isinstance(error, PermissionDenied) and error.code == Response.SYSTEM_ERROR:
        return RetryStep.GIVE_UP  # ACL 1.0 refuses with code 1; three attempts would not change it
    if isinstance(error, ResponseError):
        return RetryStep.AGAIN if error.code in RETRIED_CODES else RetryStep.GIVE_UP
    return RetryStep.GIVE_UP


class BackOff:
    """Exponential back-off: each pause is twice as long as the one before, up to a bound."""

    __slots__ = ("_most_s", "_next_s")

    def __init__(self, *, most_s: float) -> None:
        self._most_s = most_s
        self._next_s = _PAUSE_FIRST_S

    def next_s(self, left_s: float) -> float | None:
        """Return the next pause; None if there is not enough time left."""
        pause_s = self._next_s
        if left_s <= pause_s:
            return None
        self._next_s = min(2 * pause_s, self._most_s)
        return pause_s
