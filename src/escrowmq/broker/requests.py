"""Every request that the broker serves, a row each: its code, its header, who serves it, and how it
counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.broker.asked import Row
from escrowmq.broker.door import Door
from escrowmq.broker.on_ack import AckHandlers
from escrowmq.broker.on_acl import AclHandlers
from escrowmq.broker.on_assignment import AssignmentHandlers
from escrowmq.broker.on_auth import AuthHandlers
from escrowmq.broker.on_back import BackHandlers
from escrowmq.broker.on_clients import ClientHandlers
from escrowmq.broker.on_config import ConfigHandlers
from escrowmq.broker.on_end import EndHandlers
from escrowmq.broker.on_epoch import EpochHandlers
from escrowmq.broker.on_members import MemberHandlers
from escrowmq.broker.on_offsets import OffsetHandlers
from escrowmq.broker.on_peek import PeekHandlers
from escrowmq.broker.on_pending import PendingHandlers
from escrowmq.broker.on_pop import PopHandlers
from escrowmq.broker.on_pull import PullHandlers
from escrowmq.broker.on_query import QueryHandlers
from escrowmq.broker.on_recall import RecallHandlers
from escrowmq.broker.on_relay import RelayHandlers
from escrowmq.broker.on_resets import ResetHandlers
from escrowmq.broker.on_send import SendHandlers
from escrowmq.broker.on_topics import TopicHandlers
from escrowmq.broker.on_views import ViewHandlers
from escrowmq.codec.headers import (
    AckHeader,
    CloneOffsetHeader,
    CommitHeader,
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    ConsumeStatsHeader,
    CorrectionHeader,
    CreateTopicHeader,
    DeleteGroupHeader,
    GroupHeader,
    GroupTopicHeader,
    OffsetHeader,
    PopHeader,
    ProducerGroupHeader,
    PullHeader,
    QueryHeader,
    QueryQueueHeader,
    QueueHeader,
    RecallHeader,
    ResetOffsetHeader,
    ResumeCheckHeader,
    RunningInfoHeader,
    SearchOffsetHeader,
    SendBackHeader,
    SendHeader,
    SendHeaderV2,
    StatsHeader,
    TopicHeader,
    UnregisterClientHeader,
    ViewHeader,
)

_R: Final = Request


Family = tuple[type, tuple[Row, ...]]


def _of(family: type, *rows: Row) -> Family:
    return family, rows


FAMILIES: Final[tuple[Family, ...]] = (
    _of(
        SendHandlers,
        Row(_R.SEND_MESSAGE, SendHeader, SendHandlers.send),
        Row(_R.SEND_MESSAGE_V2, SendHeaderV2, SendHandlers.send),
        Row(_R.SEND_BATCH_MESSAGE, SendHeaderV2, SendHandlers.send),
    ),
    _of(
        EndHandlers,
        Row(_R.END_TRANSACTION, None, EndHandlers.end, is_free=True),
        Row(_R.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHeader, EndHandlers.resume, is_audited=True),
    ),
    _of(
        EpochHandlers,
        Row(_R.ESCROW_DECIDE, None, EpochHandlers.decide),
        Row(_R.ESCROW_ABANDON, None, EpochHandlers.abandon),
        Row(_R.ESCROW_DECISION, None, EpochHandlers.tell),
    ),
    _of(
        PullHandlers,
        Row(_R.PULL_MESSAGE, PullHeader, PullHandlers.pull, is_read=True),
        Row(_R.LITE_PULL_MESSAGE, PullHeader, PullHandlers.pull, is_read=True),
    ),
    _of(
        OffsetHandlers,
        Row(_R.QUERY_CONSUMER_OFFSET, OffsetHeader, OffsetHandlers.query),
        Row(_R.UPDATE_CONSUMER_OFFSET, CommitHeader, OffsetHandlers.commit, is_free=True),
        Row(_R.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetHeader, OffsetHandlers.search),
        Row(_R.GET_MAX_OFFSET, QueueHeader, OffsetHandlers.newest),
        Row(_R.GET_MIN_OFFSET, QueueHeader, OffsetHandlers.oldest),
        Row(_R.GET_EARLIEST_MSG_STORETIME, QueueHeader, OffsetHandlers.earliest_time),
    ),
    _of(
        PopHandlers,
        Row(_R.POP_MESSAGE, PopHeader, PopHandlers.pop, is_read=True),
        Row(_R.POP_ROLLBACK, None, PopHandlers.roll_back),
    ),
    _of(
        PeekHandlers,
        Row(_R.PEEK_MESSAGE, PopHeader, PeekHandlers.peek, is_read=True),
        Row(_R.NOTIFICATION, PopHeader, PeekHandlers.notify, is_read=True),
        Row(_R.POLLING_INFO, PopHeader, PeekHandlers.count_polls),
    ),
    _of(
        AckHandlers,
        Row(_R.ACK_MESSAGE, AckHeader, AckHandlers.ack, is_free=True),
        Row(_R.BATCH_ACK_MESSAGE, None, AckHandlers.ack_batch, is_free=True),
        Row(_R.CHANGE_MESSAGE_INVISIBLETIME, AckHeader, AckHandlers.change),
    ),
    _of(
        AssignmentHandlers,
        Row(_R.QUERY_ASSIGNMENT, None, AssignmentHandlers.query),
        Row(_R.SET_MESSAGE_REQUEST_MODE, None, AssignmentHandlers.set_mode, is_audited=True),
        Row(_R.GET_ALL_MESSAGE_REQUEST_MODE, None, AssignmentHandlers.list_modes),
    ),
    _of(
        BackHandlers,
        Row(_R.CONSUMER_SEND_MSG_BACK, SendBackHeader, BackHandlers.send_back),
    ),
    _of(
        QueryHandlers,
        Row(_R.QUERY_MESSAGE, QueryHeader, QueryHandlers.query),
        Row(_R.VIEW_MESSAGE_BY_ID, ViewHeader, QueryHandlers.view),
    ),
    _of(
        RecallHandlers,
        Row(_R.RECALL_MESSAGE, RecallHeader, RecallHandlers.recall),
    ),
    _of(
        RelayHandlers,
        Row(_R.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader, RelayHandlers.running_info),
        Row(
            _R.CONSUME_MESSAGE_DIRECTLY,
            ConsumeDirectlyHeader,
            RelayHandlers.consume_directly,
            is_audited=True,
        ),
        Row(
            _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GroupTopicHeader, RelayHandlers.consumer_status
        ),
        Row(_R.SEND_REPLY_MESSAGE, SendHeader, RelayHandlers.reply_message),
        Row(_R.SEND_REPLY_MESSAGE_V2, SendHeaderV2, RelayHandlers.reply_message),
    ),
    _of(
        ClientHandlers,
        Row(_R.HEART_BEAT, None, ClientHandlers.heartbeat, is_free=True),
        Row(_R.UNREGISTER_CLIENT, UnregisterClientHeader, ClientHandlers.unregister, is_free=True),
        Row(_R.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader, ClientHandlers.list_consumers),
        Row(_R.LOCK_BATCH_MQ, None, ClientHandlers.lock),
        Row(_R.UNLOCK_BATCH_MQ, None, ClientHandlers.unlock, is_free=True),
        Row(_R.CHECK_CLIENT_CONFIG, None, ClientHandlers.check_config),
    ),
    _of(
        PendingHandlers,
        Row(_R.ESCROW_PENDING_LIST, None, PendingHandlers.list_pending),
        Row(_R.ESCROW_PENDING_COUNT, None, PendingHandlers.count_pending),
        Row(_R.ESCROW_SHOW, None, PendingHandlers.show),
        Row(_R.ESCROW_SETTLE, None, PendingHandlers.settle),
        Row(_R.ESCROW_CHECK, None, PendingHandlers.check),
        Row(_R.ESCROW_DISCARDED_LIST, None, PendingHandlers.list_discarded),
        Row(_R.ESCROW_DISCARDED_RESUME, None, PendingHandlers.resume_discarded),
        Row(_R.ESCROW_KEY_ROTATE, None, PendingHandlers.rotate_key),
    ),
    _of(
        TopicHandlers,
        Row(
            _R.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader, TopicHandlers.put_topic, is_audited=True
        ),
        Row(_R.UPDATE_AND_CREATE_TOPIC_LIST, None, TopicHandlers.put_topics, is_audited=True),
        Row(_R.GET_ALL_TOPIC_CONFIG, None, TopicHandlers.all_topics),
        Row(_R.DELETE_TOPIC_IN_BROKER, TopicHeader, TopicHandlers.delete_topic, is_audited=True),
        Row(_R.GET_TOPIC_CONFIG, TopicHeader, TopicHandlers.get_topic),
        Row(_R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, TopicHandlers.system_topics),
        Row(_R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, TopicHandlers.put_group, is_audited=True),
        Row(
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            None,
            TopicHandlers.put_groups,
            is_audited=True,
        ),
        Row(_R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, TopicHandlers.all_groups),
        Row(
            _R.DELETE_SUBSCRIPTIONGROUP,
            DeleteGroupHeader,
            TopicHandlers.delete_group,
            is_audited=True,
        ),
        Row(_R.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader, TopicHandlers.get_group),
        Row(
            _R.UPDATE_AND_GET_GROUP_FORBIDDEN,
            GroupTopicHeader,
            TopicHandlers.forbid,
            is_audited=True,
        ),
    ),
    _of(
        ResetHandlers,
        Row(_R.GET_ALL_CONSUMER_OFFSET, None, ResetHandlers.all_offsets),
        Row(_R.GET_ALL_DELAY_OFFSET, None, ResetHandlers.delay_offsets),
        Row(
            _R.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetHeader,
            ResetHandlers.reset,
            is_audited=True,
        ),
        Row(_R.QUERY_CORRECTION_OFFSET, CorrectionHeader, ResetHandlers.correction),
        Row(_R.CLONE_GROUP_OFFSET, CloneOffsetHeader, ResetHandlers.clone, is_audited=True),
    ),
    _of(
        ViewHandlers,
        Row(_R.GET_TOPIC_STATS_INFO, TopicHeader, ViewHandlers.topic_stats),
        Row(
            _R.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader, ViewHandlers.consumer_connections
        ),
        Row(
            _R.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader, ViewHandlers.producer_connections
        ),
        Row(_R.GET_CONSUME_STATS, ConsumeStatsHeader, ViewHandlers.consume_stats),
        Row(_R.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader, ViewHandlers.who_consumes),
        Row(_R.QUERY_CONSUME_TIME_SPAN, GroupTopicHeader, ViewHandlers.time_span),
        Row(_R.VIEW_BROKER_STATS_DATA, StatsHeader, ViewHandlers.stats),
        Row(_R.GET_BROKER_CONSUME_STATS, None, ViewHandlers.all_consume_stats),
        Row(_R.QUERY_CONSUME_QUEUE, QueryQueueHeader, ViewHandlers.queue_units),
        Row(_R.GET_ALL_PRODUCER_INFO, None, ViewHandlers.all_producers),
        Row(_R.QUERY_TOPICS_BY_CONSUMER, GroupHeader, ViewHandlers.topics_of_group),
        Row(_R.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupTopicHeader, ViewHandlers.subscription),
    ),
    _of(
        ConfigHandlers,
        Row(_R.UPDATE_BROKER_CONFIG, None, ConfigHandlers.update, is_audited=True),
        Row(_R.GET_BROKER_CONFIG, None, ConfigHandlers.show),
        Row(_R.GET_BROKER_RUNTIME_INFO, None, ConfigHandlers.runtime),
        Row(_R.CLEAN_EXPIRED_CONSUMEQUEUE, None, ConfigHandlers.clean_queues, is_audited=True),
        Row(_R.CLEAN_UNUSED_TOPIC, None, ConfigHandlers.clean_queues, is_audited=True),
        Row(_R.DELETE_EXPIRED_COMMITLOG, None, ConfigHandlers.delete_old, is_audited=True),
        Row(_R.GET_BROKER_HA_STATUS, None, ConfigHandlers.ha_status),
        Row(_R.GET_COLD_DATA_FLOW_CTR_INFO, None, ConfigHandlers.cold_info),
        Row(_R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, ConfigHandlers.accept, is_audited=True),
        Row(_R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, ConfigHandlers.accept, is_audited=True),
        Row(_R.SET_COMMITLOG_READ_MODE, None, ConfigHandlers.accept, is_audited=True),
        Row(_R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, None, ConfigHandlers.rocksdb),
        Row(_R.EXPORT_ROCKSDB_CONFIG_TO_JSON, None, ConfigHandlers.export, is_audited=True),
    ),
    _of(
        MemberHandlers,
        Row(_R.GET_TIMER_CHECK_POINT, None, MemberHandlers.timer_check_point),
        Row(_R.GET_TIMER_METRICS, None, MemberHandlers.timer_counts),
        Row(_R.NOTIFY_MIN_BROKER_ID_CHANGE, None, MemberHandlers.hear),
        Row(_R.RESET_MASTER_FLUSH_OFFSET, None, MemberHandlers.hear),
        Row(_R.GET_BROKER_EPOCH_CACHE, None, MemberHandlers.epochs),
        Row(_R.NOTIFY_BROKER_ROLE_CHANGED, None, MemberHandlers.hear),
    ),
    _of(
        AclHandlers,
        Row(_R.UPDATE_AND_CREATE_ACL_CONFIG, None, AclHandlers.update, is_audited=True),
        Row(_R.DELETE_ACL_CONFIG, None, AclHandlers.delete, is_audited=True),
        Row(_R.GET_BROKER_CLUSTER_ACL_INFO, None, AclHandlers.version),
        Row(_R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, None, AclHandlers.trust, is_audited=True),
    ),
    _of(
        AuthHandlers,
        Row(_R.AUTH_CREATE_USER, None, AuthHandlers.create_user, is_audited=True),
        Row(_R.AUTH_UPDATE_USER, None, AuthHandlers.update_user, is_audited=True),
        Row(_R.AUTH_DELETE_USER, None, AuthHandlers.delete_user, is_audited=True),
        Row(_R.AUTH_GET_USER, None, AuthHandlers.show_user),
        Row(_R.AUTH_LIST_USER, None, AuthHandlers.list_users),
        Row(_R.AUTH_CREATE_ACL, None, AuthHandlers.put_acl, is_audited=True),
        Row(_R.AUTH_UPDATE_ACL, None, AuthHandlers.put_acl, is_audited=True),
        Row(_R.AUTH_DELETE_ACL, None, AuthHandlers.delete_acl, is_audited=True),
        Row(_R.AUTH_GET_ACL, None, AuthHandlers.show_acl),
        Row(_R.AUTH_LIST_ACL, None, AuthHandlers.list_acls),
    ),
    _of(
        Door,
        Row(_R.ESCROW_ACL_EXPLAIN, None, Door.explain),
    ),
)


def rows() -> Iterator[Row]:
    """All of them."""
    return (row for _, family in FAMILIES for row in family)


def bound(handlers: Iterable[object]) -> dict[int, Row]:
    """The rows whose family is there, each with the method of its own handler."""
    by_family = {type(handler): handler for handler in handlers}
    found: dict[int, Row] = {}
    for family, rows_of in FAMILIES:
        handler = by_family.get(family)
        if handler is None:
            continue
        for row in rows_of:
            assert row.code not in found, row.code
            serve = row.serve.__get__(handler)
            found[row.code] = msgspec.structs.replace(row, serve=serve)
    return found
