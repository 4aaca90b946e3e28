"""What to do after an attempt to send, as RocketMQ's client decides (DefaultMQProducerImpl)."""

from __future__ import annotations

import enum
from typing import Final

from escrowmq.base.codes import Response
from escrowmq.errors import PermissionDenied, ResponseError, TransportError

STORED: Final = frozenset(
    {
        Response.SUCCESS,
        Response.FLUSH_DISK_TIMEOUT,
        Response.SLAVE_NOT_AVAILABLE,
        Response.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Codes of a message that is stored: safely, or less safely than asked for."""

_NO_BUYER_ID: Final = 204
_NOT_IN_UNIT: Final = 205
RETRIED: Final = frozenset(
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
"""Refusals after which another attempt is made."""


class Step(enum.Enum):
    """What follows an attempt."""

    DONE = enum.auto()
    AGAIN = enum.auto()
    GIVE_UP = enum.auto()


def after_reply(code: int, *, retries_unsafe: bool) -> Step:
    """After an answer. `retries_unsafe` sends again what was stored less safely than asked for."""
    if code == Response.SUCCESS or (code in STORED and not retries_unsafe):
        return Step.DONE
    return Step.AGAIN if code in STORED or code in RETRIED else Step.GIVE_UP


def after_failure(error: Exception, *, may_repeat: bool) -> Step:
    """After an attempt that brought no answer, or a refusal as an exception. `may_repeat` says
    whether the message may be sent again although it may be stored already."""
    if isinstance(error, TransportError):
        return Step.AGAIN if may_repeat else Step.GIVE_UP
    if isinstance(error, PermissionDenied) and error.code == Response.SYSTEM_ERROR:
        return Step.GIVE_UP  # ACL 1.0 refuses with code 1; three attempts would not change it
    if isinstance(error, ResponseError):
        return Step.AGAIN if error.code in RETRIED else Step.GIVE_UP
    return Step.GIVE_UP
