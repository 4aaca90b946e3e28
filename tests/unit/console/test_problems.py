from __future__ import annotations

import pytest

from escrowmq.console.problems import to_problem
from escrowmq.errors import (
    AlreadyRolledBack,
    BrokerFault,
    EscrowMQError,
    GroupNotFound,
    NoNameServer,
    NotSupported,
    PermissionDenied,
    RequestTimeout,
    RouteMissing,
    TopicNotFound,
    UsageError,
)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PermissionDenied("no"), 403, "denied"),
        (NotSupported("no"), 501, "not_supported"),
        (TopicNotFound("no"), 404, "no_topic"),
        (GroupNotFound("no"), 404, "no_group"),
        (RouteMissing("no"), 404, "no_route"),
        (AlreadyRolledBack("no"), 409, "already_rolled_back"),
        (BrokerFault("no"), 502, "refused"),
        (NoNameServer("no"), 503, "unreachable"),
        (RequestTimeout("no"), 503, "unreachable"),
        (UsageError("no"), 400, "bad_request"),
        (EscrowMQError("no"), 500, "failed"),
    ],
)
def test_each_error_has_a_status_and_a_word(error: EscrowMQError, status: int, code: str) -> None:
    found = to_problem(error)
    assert (found.status, found.refused.code) == (status, code)
    assert found.refused.message.startswith("no")


def test_a_message_is_one_line() -> None:
    assert to_problem(UsageError("one\n  two")).refused.message == "one two"
