"""Serves requests of other brokers of the same name, of name servers, and of RocketMQ's
controllers."""

from __future__ import annotations

import re
from typing import Final, Protocol

import msgspec

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.broker.answers.ha_status import master_ha_status
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec import fastjson
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.timer import TimerQueue
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store

QUEUE_ENDS: Final = "queueEnds"
"""The field of a slave's query that asks for the ends of queues without records."""

_NUMBER: Final = re.compile(r"-1|[0-9]{1,19}")
_IDENTITY_SIZE_MAX: Final = 256
_DELETED_TOLD_MAX: Final = 1_000
"""The most deleted topics that one answer lists: the newest ones."""


class ReplicationRole(Protocol):
    """The part of this broker that replicates, as master or as slave."""

    def issue_ticket(self, start: int, identity: str, now_ms: int) -> dict[str, str]:
        """Return a ticket for a slave that wants to copy the log. Raises UsageError with the reason
        if it may not."""
        ...

    def ha_status(self) -> dict[str, object]:
        """The replication state in the form of mqadmin's haStatus (HARuntimeInfo)."""
        ...


class ReplicaHandlers:
    """Serves ESCROW_REPLICA_STATE (7724), ESCROW_FOLLOW (7725), GET_BROKER_HA_STATUS (907),
    GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61), NOTIFY_MIN_BROKER_ID_CHANGE (905),
    RESET_MASTER_FLUSH_OFFSET (908) and NOTIFY_BROKER_ROLE_CHANGED (1008)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        timer: TimerQueue,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self._timer = timer
        self._copies: ReplicationRole | None = None
        """The replication part; None for a broker without copies."""

    def set_replication(self, copies: ReplicationRole) -> None:
        """Set the part that replicates the log."""
        self._copies = copies

    # -- copies of the log -------------------------------------------------------------------

    def replica_state(self, request: IncomingRequest[None]) -> Reply:
        """Answer a slave's periodic query: the ends of the log, and versions of the tables."""
        is_asked = QUEUE_ENDS in request.ext
        ended = self._store.retention.ends_of_emptied_queues() if is_asked else {}
        deleted = [*self._store.deleted.of_topic.items()][-_DELETED_TOLD_MAX:]
        return Answer(
            body=msgspec.json.encode(
                {
                    "deleted": {topic: (each.log_end, each.stored_ms) for topic, each in deleted},
                    "ended": ended,
                    "topics": self._topics.requested_changes_count,
                    "groups": self._groups.requested_changes_count,
                    "offsets": self._offsets.changes_count,
                    "log_begin": self._store.min_log_offset,
                    "log_end": self._store.end_offset,
                }
            )
        )

    def issue_ticket(self, request: IncomingRequest[None]) -> Reply:
        """Answer a slave of ours with a ticket to copy the log from an offset."""
        if self._copies is None:
            remark = (
                "this broker opens no port for slaves: set brokerRole to ASYNC_MASTER or "
                "SYNC_MASTER, or haListenPort"
            )
            return Refusal(Response.SERVICE_NOT_AVAILABLE, remark)
        start = request.ext.get("start", "")
        if not _NUMBER.fullmatch(start):
            return Refusal(Response.INVALID_PARAMETER, "start: a log offset, or -1, is expected")
        identity = request.ext.get("identity", "")[:_IDENTITY_SIZE_MAX]
        return Answer(ext=self._copies.issue_ticket(int(start), identity, request.now_ms))

    def ha_status(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the state of replication: the brokers that copy from this one, or this
        broker's own copying."""
        if self._copies is not None:
            return Answer(body=fastjson.encode(self._copies.ha_status()))
        return Answer(body=fastjson.encode(master_ha_status(self._store.end_offset)))

    # -- Java's own --------------------------------------------------------------------------

    def timer_check_point(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the timer's progress."""
        if not self._settings.has_timer:
            return Refusal(Response.SYSTEM_ERROR, "The checkpoint is null")
        body = self._timer.progress_for_slave(request.now_ms)
        return Answer(body=body)

    def timer_counts(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the number of messages that wait for their time, by topic."""
        if not self._settings.has_timer:
            remark = "The timer message store is null"
            return Refusal(Response.SYSTEM_ERROR, remark)
        body = self._timer.counts.encode()
        return Answer(body=body)

    def ignore_notification(self, request: IncomingRequest[None]) -> Reply:
        """Ignore notifications that RocketMQ sends to slaves and to brokers under a controller, and
        answer as its brokers do (AdminBrokerProcessor)."""
        return DONE
