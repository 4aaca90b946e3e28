"""Pull requests, and what their answers mean."""

from __future__ import annotations

import enum
from typing import Final

from escrowmq.base.codes import Response
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.errors import EscrowMQError, PermissionDenied

_COMMIT_OFFSET: Final = 1
_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4
_FLOW_CONTROL: Final = 215

_AT_ONCE_MS: Final = 50
_IN_VAIN_MAX: Final = 10
"""Answers at once that say nothing is there; a broker that is about to stop gives a few."""

_IN_VAIN_PAUSE_S: Final = (0.2, 1.0, 3.0)

REFUSALS: Final = frozenset(
    {
        Response.NO_PERMISSION,
        Response.TOPIC_NOT_EXIST,
        Response.SUBSCRIPTION_PARSE_FAILED,
        Response.SUBSCRIPTION_GROUP_NOT_EXIST,
        Response.INVALID_PARAMETER,
        Response.FILTER_DATA_NOT_EXIST,
    }
)
"""Answers that only the user, or whoever runs the broker, can change."""


def is_refusal(error: EscrowMQError) -> bool:
    """Whether only the user, or whoever runs the broker, can change it. ACL 1.0 refuses with the
    code of a fault."""
    return isinstance(error, PermissionDenied) or getattr(error, "code", None) in REFUSALS


class InVain:
    """Counts answers that brought nothing, and came at once although the request might have waited
    at the broker: how long to wait before one is asked again."""

    def __init__(self) -> None:
        self._count = 0

    def pause_s(self, *, took_ms: int, wait_ms: int) -> float:
        """After one more answer that brought nothing."""
        if took_ms >= min(_AT_ONCE_MS, wait_ms):
            self._count = 0
            return 0.0
        self._count += 1
        if self._count <= _IN_VAIN_MAX:
            return 0.0
        return _IN_VAIN_PAUSE_S[min(self._count - _IN_VAIN_MAX, len(_IN_VAIN_PAUSE_S)) - 1]

    def clear(self) -> None:
        """There was something, or the queue goes on elsewhere."""
        self._count = 0


class Step(enum.Enum):
    """What follows a pull's answer."""

    TAKE = enum.auto()
    """There are messages."""
    GO_ON = enum.auto()
    """Nothing there, or nothing wanted: ask again at the offset told."""
    MOVE = enum.auto()
    """The offset is not in the queue, or was reset: go where the broker says."""
    REST = enum.auto()
    """The broker asks for a moment."""
    REFUSED = enum.auto()
    """The broker will not."""
    FAILED = enum.auto()
    """It did not work this time."""


_STEPS: Final = {
    Response.SUCCESS: Step.TAKE,
    Response.PULL_NOT_FOUND: Step.GO_ON,
    Response.PULL_RETRY_IMMEDIATELY: Step.GO_ON,
    Response.PULL_OFFSET_MOVED: Step.MOVE,
    _FLOW_CONTROL: Step.REST,
}


def after_pull(code: int) -> Step:
    """What an answer means."""
    return Step.REFUSED if code in REFUSALS else _STEPS.get(code, Step.FAILED)


def pull_fields(
    queue: MessageQueue,
    subscription: Subscription,
    *,
    group: str,
    queue_offset: int,
    commit_offset: int,
    count_max: int,
    suspend_ms: int,
) -> dict[str, str]:
    """A pull request. `commit_offset` 0 commits nothing, `suspend_ms` 0 does not wait."""
    flags = _SUSPEND if suspend_ms else 0
    if commit_offset > 0:
        flags |= _COMMIT_OFFSET
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(count_max),
        "sysFlag": str(flags),
        "commitOffset": str(commit_offset),
        "suspendTimeoutMillis": str(suspend_ms),
        "subVersion": str(subscription.version),
        "expressionType": subscription.kind,
        "bname": queue.broker_name,
    }


def with_subscription(fields: dict[str, str], subscription: Subscription) -> dict[str, str]:
    """The same for a consumer that its group does not know: what it wants stands in the request."""
    flags = int(fields["sysFlag"]) | _SUBSCRIPTION
    return {**fields, "sysFlag": str(flags), "subscription": subscription.expression}
