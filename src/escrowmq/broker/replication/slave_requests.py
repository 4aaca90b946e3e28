"""The requests that a slave refuses. It stores nothing of its own, and copies its tables from the
master: requests that change something are redirected to the master."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.answer import PullAnswer, Refusal, Reply
from escrowmq.base.codes import Request, Response
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.incoming_request import IncomingRequest, Question, RequestRow
from escrowmq.broker.reads.pull_rules import PullFlag
from escrowmq.broker.requests.on_pull import PullHandlers
from escrowmq.codec.headers import PullHeader
from escrowmq.errors import SLAVE_REMARK

_R: Final = Request

MASTER_ONLY: Final = frozenset(
    {
        _R.SEND_MESSAGE, _R.SEND_MESSAGE_V2, _R.SEND_BATCH_MESSAGE, _R.SEND_REPLY_MESSAGE,
        _R.SEND_REPLY_MESSAGE_V2, _R.CONSUMER_SEND_MSG_BACK, _R.RECALL_MESSAGE,
        _R.END_TRANSACTION, _R.RESUME_CHECK_HALF_MESSAGE,
        _R.ESCROW_DECIDE, _R.ESCROW_ABANDON, _R.ESCROW_DECISION,
        _R.POP_MESSAGE, _R.POP_ROLLBACK, _R.PEEK_MESSAGE, _R.NOTIFICATION, _R.POLLING_INFO,
        _R.ACK_MESSAGE, _R.BATCH_ACK_MESSAGE, _R.CHANGE_MESSAGE_INVISIBLETIME,
        _R.SET_MESSAGE_REQUEST_MODE,
        _R.ESCROW_PENDING_LIST, _R.ESCROW_PENDING_COUNT, _R.ESCROW_SHOW, _R.ESCROW_SETTLE,
        _R.ESCROW_CHECK, _R.ESCROW_DISCARDED_LIST, _R.ESCROW_DISCARDED_RESUME,
        _R.ESCROW_KEY_ROTATE, _R.ESCROW_REDELIVER_DEAD,
        _R.UPDATE_AND_CREATE_TOPIC, _R.UPDATE_AND_CREATE_TOPIC_LIST, _R.DELETE_TOPIC_IN_BROKER,
        _R.CLEAN_UNUSED_TOPIC, _R.CLEAN_EXPIRED_CONSUMEQUEUE,
        _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        _R.DELETE_SUBSCRIPTIONGROUP, _R.UPDATE_AND_GET_GROUP_FORBIDDEN,
        _R.INVOKE_BROKER_TO_RESET_OFFSET, _R.CLONE_GROUP_OFFSET, _R.QUERY_CORRECTION_OFFSET,
    }
)  # fmt: skip
"""The requests that only a master serves: those that store messages, change copied tables, or need
data that a slave does not keep (pending halves, popped messages)."""

GROUP_MASTER_ONLY: Final = MASTER_ONLY | {
    _R.QUERY_CONSUMER_OFFSET, _R.UPDATE_CONSUMER_OFFSET, _R.LOCK_BATCH_MQ, _R.UNLOCK_BATCH_MQ,
    _R.UPDATE_BROKER_CONFIG,
    _R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER, _R.AUTH_DELETE_USER,
    _R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL, _R.AUTH_DELETE_ACL,
}  # fmt: skip
"""The requests that only the master of a group that fails over serves. Its settings and users are
copied too. A copy may have been the master just now, and clients may not know yet that it is not:
an offset that it accepted would be lost, one that it lacks may be known to the master, and a lock
that it granted would be a second one. (A slave of RocketMQ's kind serves consumers while its master
is off, as RocketMQ's does.)"""

_PULLS: Final = (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE)
_BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"
"""RocketMQ's remark (NettyRemotingAbstract) that makes its consumers pull from the master
instead."""


def slave_advice() -> str:
    """Return the advice for clients of a slave: which broker to ask."""
    return "ask the master of its name, brokerId 0"


def slave_rows(
    rows: dict[int, RequestRow],
    replica: ReplicaSettings,
    pulls: PullHandlers,
    master_only: frozenset[int] = MASTER_ONLY,
    advice: Callable[[], str] = slave_advice,
) -> dict[int, RequestRow]:
    """Return the request table of a slave. It refuses the requests in `master_only`, with the
    text of `advice`, which names the broker to ask."""

    def refuse(_: Question) -> Reply:
        # RocketMQ's producers try SERVICE_NOT_AVAILABLE at another broker
        # (DefaultMQProducer.retryResponseCodes).
        return Refusal(
            Response.SERVICE_NOT_AVAILABLE,
            f"service not available now: {SLAVE_REMARK}, which stores what its master does; "
            f"{advice()}",
        )

    def pull(request: IncomingRequest[PullHeader]) -> Reply:
        if not replica.slave_reads:
            return Refusal(Response.SYSTEM_BUSY, _BUSY)
        # Pulls do not wait at a slave: messages missing here may be at the master. Nor do they
        # commit offsets: the master's replace them.
        request.header = _without_effects(request.header)
        reply = pulls.pull_messages(request)
        if isinstance(reply, PullAnswer) and reply.code != Response.SUCCESS:
            return msgspec.structs.replace(reply, code=Response.PULL_RETRY_IMMEDIATELY)
        return reply

    served = {code: row for code, row in rows.items() if code not in master_only}
    for code in master_only & rows.keys():
        served[code] = msgspec.structs.replace(rows[code], header=None, serve=refuse)
    for code in _PULLS:
        served[code] = msgspec.structs.replace(rows[code], serve=pull)
    return served


def _without_effects(header: PullHeader) -> PullHeader:
    flags = PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET
    return msgspec.structs.replace(header, sys_flag=header.sys_flag & ~flags)
