"""The table of requests that operators and other brokers send: one row each."""

from __future__ import annotations

from typing import Final

from escrowmq.acl.acl1_accounts import SUB
from escrowmq.acl.acl2_accesses import (
    CREATE,
    DELETE,
    GET,
    LOOK,
    OPERATE,
    UPDATE,
    Fields,
    Rule,
    fields,
    new_group,
    new_groups,
    new_topics,
)
from escrowmq.acl.request_needs import (
    ANY_TOPIC,
    GROUP,
    OF_GROUP,
    all_of,
    field,
    given,
    group,
    nothing,
)
from escrowmq.base.codes import Request
from escrowmq.broker.access.door import Door
from escrowmq.broker.access.on_acl1 import AclHandlers
from escrowmq.broker.access.on_acl2 import AuthHandlers
from escrowmq.broker.asked import Family, RequestRow, family
from escrowmq.broker.requests.on_broker_group import MemberHandlers
from escrowmq.broker.requests.on_config import ConfigHandlers
from escrowmq.broker.requests.on_connections import ConnectionHandlers
from escrowmq.broker.requests.on_dead_letters import DeadLetterHandlers
from escrowmq.broker.requests.on_groups import GroupHandlers
from escrowmq.broker.requests.on_members import GroupEndHandlers
from escrowmq.broker.requests.on_operator_offsets import ResetHandlers
from escrowmq.broker.requests.on_pending import PendingHandlers
from escrowmq.broker.requests.on_statistics import StatisticsHandlers
from escrowmq.broker.requests.on_sync_state import SyncStateHandlers
from escrowmq.broker.requests.on_topics import TopicHandlers
from escrowmq.codec.headers import (
    CloneOffsetHeader,
    ConsumerGroupHeader,
    ConsumeStatsHeader,
    CorrectionHeader,
    CreateTopicHeader,
    DeleteGroupHeader,
    GroupHeader,
    GroupTopicHeader,
    ProducerGroupHeader,
    QueryQueueHeader,
    ResetOffsetHeader,
    StatsHeader,
    TopicHeader,
)

_R: Final = Request

OPERATOR_REQUESTS: Final[tuple[Family, ...]] = (
    family(
        PendingHandlers,
        RequestRow(_R.ESCROW_PENDING_LIST, None, PendingHandlers.list_pending, LOOK),
        RequestRow(_R.ESCROW_PENDING_COUNT, None, PendingHandlers.count_pending, LOOK),
        RequestRow(_R.ESCROW_SHOW, None, PendingHandlers.show, LOOK),
        RequestRow(_R.ESCROW_SETTLE, None, PendingHandlers.settle, OPERATE),
        RequestRow(_R.ESCROW_CHECK, None, PendingHandlers.check, OPERATE),
        RequestRow(_R.ESCROW_DISCARDED_LIST, None, PendingHandlers.list_discarded, LOOK),
        RequestRow(_R.ESCROW_DISCARDED_RESUME, None, PendingHandlers.resume_discarded, OPERATE),
        RequestRow(_R.ESCROW_KEY_ROTATE, None, PendingHandlers.rotate_key, OPERATE),
    ),
    family(
        DeadLetterHandlers,
        RequestRow(
            _R.ESCROW_REDELIVER_DEAD, None, DeadLetterHandlers.redeliver, OPERATE, is_audited=True
        ),
    ),
    family(
        TopicHandlers,
        RequestRow(
            _R.UPDATE_AND_CREATE_TOPIC,
            CreateTopicHeader,
            TopicHandlers.put_topic,
            Rule(accesses=fields(CREATE, topics="topic")),
            is_audited=True,
        ),
        RequestRow(
            _R.UPDATE_AND_CREATE_TOPIC_LIST,
            None,
            TopicHandlers.put_topics,
            Rule(accesses=new_topics),
            is_audited=True,
        ),
        RequestRow(_R.GET_ALL_TOPIC_CONFIG, None, TopicHandlers.all_topics, LOOK),
        RequestRow(
            _R.DELETE_TOPIC_IN_BROKER,
            TopicHeader,
            TopicHandlers.delete_topic,
            Rule(accesses=fields(DELETE, topics="topic")),
            is_audited=True,
        ),
        RequestRow(
            _R.GET_TOPIC_CONFIG,
            TopicHeader,
            TopicHandlers.get_topic,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
        RequestRow(_R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, TopicHandlers.system_topics, LOOK),
    ),
    family(
        GroupHandlers,
        RequestRow(
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            GroupHandlers.put_group,
            Rule(accesses=new_group),
            is_audited=True,
        ),
        RequestRow(
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            None,
            GroupHandlers.put_groups,
            Rule(accesses=new_groups),
            is_audited=True,
        ),
        RequestRow(_R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, GroupHandlers.all_groups, LOOK),
        RequestRow(
            _R.DELETE_SUBSCRIPTIONGROUP,
            DeleteGroupHeader,
            GroupHandlers.delete_group,
            Rule(accesses=fields(DELETE, groups="groupName")),
            is_audited=True,
        ),
        RequestRow(
            _R.GET_SUBSCRIPTIONGROUP_CONFIG,
            GroupHeader,
            GroupHandlers.get_group,
            Rule(group("group"), accesses=fields(GET, groups="group")),
        ),
        RequestRow(
            _R.UPDATE_AND_GET_GROUP_FORBIDDEN,
            GroupTopicHeader,
            GroupHandlers.forbid,
            Rule(accesses=fields(UPDATE, groups="group", topics="topic")),
            is_audited=True,
        ),
    ),
    family(
        ResetHandlers,
        RequestRow(_R.GET_ALL_CONSUMER_OFFSET, None, ResetHandlers.all_offsets, LOOK),
        RequestRow(_R.GET_ALL_DELAY_OFFSET, None, ResetHandlers.delay_offsets, LOOK),
        RequestRow(
            _R.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetHeader,
            ResetHandlers.reset,
            Rule(accesses=fields(UPDATE, groups="group", topics="topic")),
            is_audited=True,
        ),
        RequestRow(
            _R.QUERY_CORRECTION_OFFSET,
            CorrectionHeader,
            ResetHandlers.correction,
            Rule(
                accesses=Fields(
                    GET, ("topic",), ("filterGroups", "compareGroup"), lists={"filterGroups": ","}
                )
            ),
        ),
        RequestRow(
            _R.CLONE_GROUP_OFFSET,
            CloneOffsetHeader,
            ResetHandlers.clone,
            Rule(accesses=fields(UPDATE, groups="destGroup", topics="topic")),
            is_audited=True,
        ),
    ),
    family(
        StatisticsHandlers,
        RequestRow(
            _R.GET_TOPIC_STATS_INFO,
            TopicHeader,
            StatisticsHandlers.topic_stats,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_CONSUME_STATS,
            ConsumeStatsHeader,
            StatisticsHandlers.consume_stats,
            Rule(
                all_of(GROUP, given(field("topic", SUB), "topic")),
                accesses=Fields(
                    GET, ("topic", "topicList"), ("consumerGroup",), lists={"topicList": ";"}
                ),
            ),
        ),
        RequestRow(
            _R.QUERY_TOPIC_CONSUME_BY_WHO,
            TopicHeader,
            StatisticsHandlers.who_consumes,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
        RequestRow(
            _R.QUERY_CONSUME_TIME_SPAN,
            GroupTopicHeader,
            StatisticsHandlers.time_span,
            Rule(
                OF_GROUP, accesses=fields(GET, groups="group", topics="topic", groups_first=False)
            ),
        ),
        RequestRow(_R.VIEW_BROKER_STATS_DATA, StatsHeader, StatisticsHandlers.stats, LOOK),
        RequestRow(_R.GET_BROKER_CONSUME_STATS, None, StatisticsHandlers.all_consume_stats, LOOK),
        RequestRow(
            _R.QUERY_CONSUME_QUEUE,
            QueryQueueHeader,
            StatisticsHandlers.queue_units,
            Rule(accesses=fields(GET, groups="consumerGroup", topics="topic", groups_first=False)),
        ),
        RequestRow(
            _R.QUERY_TOPICS_BY_CONSUMER,
            GroupHeader,
            StatisticsHandlers.topics_of_group,
            Rule(group("group"), accesses=fields(GET, groups="group")),
        ),
    ),
    family(
        ConnectionHandlers,
        RequestRow(
            _R.GET_CONSUMER_CONNECTION_LIST,
            ConsumerGroupHeader,
            ConnectionHandlers.consumer_connections,
            Rule(GROUP, accesses=fields(GET, groups="consumerGroup")),
        ),
        RequestRow(
            _R.GET_PRODUCER_CONNECTION_LIST,
            ProducerGroupHeader,
            ConnectionHandlers.producer_connections,
            LOOK,
        ),
        RequestRow(_R.GET_ALL_PRODUCER_INFO, None, ConnectionHandlers.all_producers, LOOK),
        RequestRow(
            _R.QUERY_SUBSCRIPTION_BY_CONSUMER,
            GroupTopicHeader,
            ConnectionHandlers.subscription,
            Rule(OF_GROUP, accesses=fields(GET, groups="group", topics="topic")),
        ),
    ),
    family(
        ConfigHandlers,
        RequestRow(_R.UPDATE_BROKER_CONFIG, None, ConfigHandlers.update, OPERATE, is_audited=True),
        RequestRow(_R.GET_BROKER_CONFIG, None, ConfigHandlers.show, LOOK),
        RequestRow(_R.GET_BROKER_RUNTIME_INFO, None, ConfigHandlers.runtime, LOOK),
        RequestRow(
            _R.CLEAN_EXPIRED_CONSUMEQUEUE,
            None,
            ConfigHandlers.clean_queues,
            OPERATE,
            is_audited=True,
        ),
        RequestRow(
            _R.CLEAN_UNUSED_TOPIC, None, ConfigHandlers.clean_queues, OPERATE, is_audited=True
        ),
        RequestRow(
            _R.DELETE_EXPIRED_COMMITLOG, None, ConfigHandlers.delete_old, OPERATE, is_audited=True
        ),
        RequestRow(_R.GET_COLD_DATA_FLOW_CTR_INFO, None, ConfigHandlers.cold_info, LOOK),
        RequestRow(
            _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            None,
            ConfigHandlers.accept,
            OPERATE,
            is_audited=True,
        ),
        RequestRow(
            _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            None,
            ConfigHandlers.accept,
            OPERATE,
            is_audited=True,
        ),
        RequestRow(
            _R.SET_COMMITLOG_READ_MODE, None, ConfigHandlers.accept, OPERATE, is_audited=True
        ),
        RequestRow(
            _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            None,
            ConfigHandlers.rocksdb,
            Rule(accesses=fields(GET, topics="topic")),
        ),
        RequestRow(
            _R.EXPORT_ROCKSDB_CONFIG_TO_JSON, None, ConfigHandlers.export, LOOK, is_audited=True
        ),
    ),
    family(
        MemberHandlers,
        RequestRow(_R.ESCROW_REPLICA_STATE, None, MemberHandlers.state, LOOK),
        RequestRow(_R.ESCROW_FOLLOW, None, MemberHandlers.follow, OPERATE),
        RequestRow(_R.GET_BROKER_HA_STATUS, None, MemberHandlers.ha_status, LOOK),
        RequestRow(_R.GET_TIMER_CHECK_POINT, None, MemberHandlers.timer_check_point, LOOK),
        RequestRow(_R.GET_TIMER_METRICS, None, MemberHandlers.timer_counts, LOOK),
        RequestRow(_R.NOTIFY_MIN_BROKER_ID_CHANGE, None, MemberHandlers.hear, OPERATE),
        RequestRow(_R.RESET_MASTER_FLUSH_OFFSET, None, MemberHandlers.hear, OPERATE),
        RequestRow(_R.NOTIFY_BROKER_ROLE_CHANGED, None, MemberHandlers.hear, OPERATE),
    ),
    family(
        GroupEndHandlers,
        RequestRow(_R.ESCROW_GROUP_STATUS, None, GroupEndHandlers.status, LOOK),
        RequestRow(_R.ESCROW_GROUP_SWITCH, None, GroupEndHandlers.switch, OPERATE, is_audited=True),
        RequestRow(
            _R.ESCROW_GROUP_REBUILD, None, GroupEndHandlers.rebuild, OPERATE, is_audited=True
        ),
        RequestRow(_R.ESCROW_GROUP_DRILL, None, GroupEndHandlers.drill, OPERATE, is_audited=True),
    ),
    family(
        SyncStateHandlers,
        RequestRow(_R.CONTROLLER_GET_METADATA_INFO, None, SyncStateHandlers.metadata, LOOK),
        RequestRow(_R.CONTROLLER_GET_SYNC_STATE_DATA, None, SyncStateHandlers.sync_state, LOOK),
        RequestRow(_R.GET_BROKER_EPOCH_CACHE, None, SyncStateHandlers.epochs, LOOK),
    ),
    family(
        AclHandlers,
        RequestRow(
            _R.UPDATE_AND_CREATE_ACL_CONFIG,
            None,
            AclHandlers.update,
            Rule(gives_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.DELETE_ACL_CONFIG, None, AclHandlers.delete, Rule(gives_rights=True), is_audited=True
        ),
        RequestRow(_R.GET_BROKER_CLUSTER_ACL_INFO, None, AclHandlers.version, LOOK),
        RequestRow(
            _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            None,
            AclHandlers.trust,
            Rule(gives_rights=True),
            is_audited=True,
        ),
    ),
    family(
        AuthHandlers,
        RequestRow(
            _R.AUTH_CREATE_USER,
            None,
            AuthHandlers.create_user,
            Rule(gives_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.AUTH_UPDATE_USER,
            None,
            AuthHandlers.update_user,
            Rule(gives_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.AUTH_DELETE_USER,
            None,
            AuthHandlers.delete_user,
            Rule(gives_rights=True),
            is_audited=True,
        ),
        RequestRow(_R.AUTH_GET_USER, None, AuthHandlers.show_user, LOOK),
        RequestRow(_R.AUTH_LIST_USER, None, AuthHandlers.list_users, LOOK),
        RequestRow(
            _R.AUTH_CREATE_ACL, None, AuthHandlers.put_acl, Rule(gives_rights=True), is_audited=True
        ),
        RequestRow(
            _R.AUTH_UPDATE_ACL, None, AuthHandlers.put_acl, Rule(gives_rights=True), is_audited=True
        ),
        RequestRow(
            _R.AUTH_DELETE_ACL,
            None,
            AuthHandlers.delete_acl,
            Rule(gives_rights=True),
            is_audited=True,
        ),
        RequestRow(_R.AUTH_GET_ACL, None, AuthHandlers.show_acl, LOOK),
        RequestRow(_R.AUTH_LIST_ACL, None, AuthHandlers.list_acls, LOOK),
    ),
    family(
        Door,
        RequestRow(_R.ESCROW_ACL_EXPLAIN, None, Door.explain, LOOK),
        RequestRow(_R.ESCROW_SESSION, None, Door.session, Rule(nothing)),
    ),
)
