"""Pull requests, the meaning of their answers, and the offset to read next. No socket and no
clock."""

from __future__ import annotations

import enum
from typing import Final, Generic, TypeVar

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.client.core.fetched_messages import FetchedMessages
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.reply_numbers import parse_number_field
from escrowmq.client.core.routes import MASTER, MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.errors import EscrowMQError, PermissionDenied

_COMMIT_OFFSET: Final = 1
_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4

_AT_ONCE_MS: Final = 50
_EMPTY_ANSWERS_MAX: Final = 10
"""Number of immediate empty answers after which pauses begin; a broker that is about to stop gives
a few."""

_IN_VAIN_PAUSE_S: Final = (0.2, 1.0, 3.0)
FAILED_PAUSE_S: Final = (0.2, 1.0, 3.0)
MOVES_MAX: Final = 3
"""The client pauses after this many redirections to another offset in a row."""

REFUSED_PAUSE_S: Final = 5.0
REST_S: Final = 0.02

M = TypeVar("M", bound=ReceivedMessage)

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
"""Response codes whose cause only the user or the broker's operator can remove, so that a retry is
useless."""


def is_refusal(error: EscrowMQError) -> bool:
    """Whether a retry is useless, because only the user or the broker's operator can remove the
    cause. PermissionDenied is recognised by its class: ACL 1.0 refuses with the code of a system
    error."""
    return isinstance(error, PermissionDenied) or getattr(error, "code", None) in REFUSALS


class EmptyAnswerCounter:
    """Counts empty answers that came immediately although the broker could have held the request,
    and computes the pause before the next request."""

    def __init__(self) -> None:
        self._count = 0

    def count_and_pause_s(self, *, took_ms: int, wait_ms: int) -> float:
        """Count an empty answer; return the pause before the next request."""
        if took_ms >= min(_AT_ONCE_MS, wait_ms):
            self._count = 0
            return 0.0
        self._count += 1
        if self._count <= _EMPTY_ANSWERS_MAX:
            return 0.0
        return _IN_VAIN_PAUSE_S[min(self._count - _EMPTY_ANSWERS_MAX, len(_IN_VAIN_PAUSE_S)) - 1]

    def clear(self) -> None:
        """Reset the count, because a message came or the queue continues elsewhere."""
        self._count = 0


class PullStep(enum.Enum):
    """What the client does after a pull's answer."""

    TAKE = enum.auto()
    """Take the messages of the answer."""
    ADVANCE = enum.auto()
    """Ask again at the offset in the answer: no message matched."""
    MOVE = enum.auto()
    """Go to the offset in the answer: the requested one is outside the queue, or was reset."""
    REST = enum.auto()
    """Pause shortly, as the broker requests."""
    REFUSED = enum.auto()
    """Report the broker's refusal."""
    FAILED = enum.auto()
    """Retry after a pause: the pull failed."""


_STEPS: Final = {
    Response.SUCCESS: PullStep.TAKE,
    Response.PULL_NOT_FOUND: PullStep.ADVANCE,
    Response.PULL_RETRY_IMMEDIATELY: PullStep.ADVANCE,
    Response.PULL_OFFSET_MOVED: PullStep.MOVE,
    Response.FLOW_CONTROL: PullStep.REST,
}


def step_after_pull(code: int) -> PullStep:
    """Return the step that follows an answer with this code."""
    return PullStep.REFUSED if code in REFUSALS else _STEPS.get(code, PullStep.FAILED)


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
    """Return the header of a pull. `commit_offset` 0 commits nothing, `suspend_ms` 0 makes the
    broker answer immediately."""
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
    """Add the subscription to a pull's header. A consumer that is no member of its group needs it,
    because the broker does not know its subscription."""
    flags = int(fields["sysFlag"]) | _SUBSCRIPTION
    return {**fields, "sysFlag": str(flags), "subscription": subscription.expression}


class PullCursor(Generic[M]):
    """The state of reading one queue. Pass each answer to `apply_reply`, add its messages to the
    fetched ones, then ask for the pause."""

    def __init__(self, shelf: FetchedMessages[M], *, wait_ms: int) -> None:
        self.broker_id = MASTER
        """The id of the broker to ask: the master, or the slave that it suggested."""
        self.failures_count = 0
        """Failed pulls in a row."""
        self.moves_count = 0
        """Redirections to another offset since the last message."""
        self._fetched = shelf
        self._wait_ms = wait_ms
        self._came_from = 0
        self._in_vain = EmptyAnswerCounter()

    def apply_reply(self, reply: Command) -> tuple[PullStep, int]:
        """Return the step that follows an answer, and the next offset. Reading continues there at
        once, unless the answer has messages, which the caller must first add to the fetched
        ones."""
        step, next_offset = step_after_pull(reply.code), self._fetched.next_offset
        self._came_from = next_offset
        if step in (PullStep.TAKE, PullStep.ADVANCE, PullStep.MOVE):
            self.failures_count = 0
            self.broker_id = parse_number_field(reply, "suggestWhichBrokerId", otherwise=MASTER)
            next_offset = parse_number_field(reply, "nextBeginOffset", otherwise=next_offset)
        if step is PullStep.TAKE:
            self.moves_count = 0
        elif step is PullStep.ADVANCE:
            self._fetched.add((), next_offset=next_offset)
        elif step is PullStep.MOVE:
            self._fetched.reset(next_offset)
            self.moves_count += 1
        return step, next_offset

    def pause_s(self, step: PullStep, *, took_ms: int) -> float:
        """Return the pause before the next pull, after an answer that took `took_ms`."""
        if step is PullStep.REST:
            return REST_S
        if step is PullStep.MOVE:
            # A broker that answers so repeatedly is asked less often.
            if self.moves_count <= MOVES_MAX:
                return 0.0
            return FAILED_PAUSE_S[min(self.moves_count - MOVES_MAX, len(FAILED_PAUSE_S)) - 1]
        if step in (PullStep.REFUSED, PullStep.FAILED):
            return self.count_failure(is_refused=step is PullStep.REFUSED)
        if self._fetched.next_offset > self._came_from:
            self._in_vain.clear()
            return 0.0
        return self._in_vain.count_and_pause_s(took_ms=took_ms, wait_ms=self._wait_ms)

    def ask_master_next(self) -> None:
        """Ask the master next, because no answer came."""
        self.broker_id = MASTER

    def count_failure(self, *, is_refused: bool = False) -> float:
        """Count a failed pull; return the pause before the next. A refusal lasts until someone
        changes the cause."""
        pause_s = FAILED_PAUSE_S[min(self.failures_count, len(FAILED_PAUSE_S) - 1)]
        self.failures_count += 1
        return max(REFUSED_PAUSE_S, pause_s) if is_refused else pause_s
