"""Errors as pages and the API report them: a status, a code, a sentence, and advice."""

from __future__ import annotations

from typing import Final

from escrowmq.console.answers import Answer
from escrowmq.errors import (
    AlreadyCommitted,
    AlreadyRolledBack,
    AlreadySettled,
    BrokerBusy,
    ConsumerOffline,
    DataLost,
    EscrowMQError,
    FlowControlled,
    GroupNotFound,
    NoMessage,
    NotFound,
    NotSupported,
    PermissionDenied,
    ResponseError,
    RouteMissing,
    ServiceNotAvailable,
    TopicNotFound,
    TransportError,
    UsageError,
)


class Refused(Answer, kw_only=True):
    """The body of an error answer."""

    code: str
    """A stable identifier of the error, for programs."""
    message: str
    hint: str = ""


class Problem(Exception):
    """Raised to end a request with an error answer."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.refused = Refused(code=code, message=message, hint=hint)


_KINDS: Final[tuple[tuple[type[EscrowMQError], int, str, str], ...]] = (
    (PermissionDenied, 403, "denied",
     "`escrowmq acl explain`, or the page of accounts, tells which rule decides"),
    (NotSupported, 501, "not_supported",
     "Apache RocketMQ's brokers do not know such requests; EscrowMQ's do"),
    (TopicNotFound, 404, "no_topic", "GET /api/v1/topics lists those that there are"),
    (GroupNotFound, 404, "no_group", "GET /api/v1/groups lists those that there are"),
    (NotFound, 404, "not_found", ""),
    (NoMessage, 404, "not_found", ""),
    (RouteMissing, 404, "no_route", "is the name right, and do its brokers run?"),
    (DataLost, 410, "gone", ""),
    (AlreadyCommitted, 409, "already_committed", "its outcome is final"),
    (AlreadyRolledBack, 409, "already_rolled_back", "its outcome is final"),
    (AlreadySettled, 409, "already_settled", "its outcome is final"),
    (ConsumerOffline, 409, "consumer_offline", "no member of the group is connected"),
    (BrokerBusy, 503, "busy", "try again a little later"),
    (FlowControlled, 503, "busy", "try again a little later"),
    (ServiceNotAvailable, 503, "unavailable", ""),
    (ResponseError, 502, "refused", ""),
    (TransportError, 503, "unreachable",
     "does the broker run, and can this console reach the address that it tells?"),
    (UsageError, 400, "bad_request", ""),
)  # fmt: skip
"""Status, code and advice by class of error; the first class that fits is used."""


def to_problem(error: EscrowMQError) -> Problem:
    """Convert an error of the SDK to a Problem."""
    text = " ".join(str(error).split())
    for kind, status, code, hint in _KINDS:
        if isinstance(error, kind):
            return Problem(status, code, text, hint)
    return Problem(500, "failed", text)
