"""The table of requests that operators and other brokers send: one row each."""

from __future__ import annotations

from typing import Final

from escrowmq.acl.acl1_accounts import SUB
from escrowmq.acl.acl2_accesses import (
    CREATE,
    DELETE,
    GET,
    OPERATOR_CHANGE,
    OPERATOR_READ,
    UPDATE,
    FieldAccesses,
    RightsRule,
    field_accesses,
    new_group_access,
    new_groups_accesses,
    new_topics_accesses,
)
from escrowmq.acl.request_needs import (
    ANY_TOPIC,
    GROUP,
    OF_GROUP,
    combined_needs,
    group_field_needs,
    needs_if_present,
    no_needs,
    topic_field_needs,
)
from escrowmq.base.codes import Request
from escrowmq.broker.access.access_check import AccessCheck
from escrowmq.broker.access.on_acl1 import Acl1Handlers
from escrowmq.broker.access.on_acl2 import Acl2Handlers
from escrowmq.broker.incoming_request import HandlerRows, RequestRow, handler_rows
from escrowmq.broker.requests.on_config import ConfigHandlers
from escrowmq.broker.requests.on_connections import ConnectionHandlers
from escrowmq.broker.requests.on_controller import ControllerHandlers
from escrowmq.broker.requests.on_dead_letters import DeadLetterHandlers
from escrowmq.broker.requests.on_group_members import GroupMemberHandlers
from escrowmq.broker.requests.on_groups import GroupHandlers
from escrowmq.broker.requests.on_operator_offsets import OperatorOffsetHandlers
from escrowmq.broker.requests.on_pending import PendingHandlers
from escrowmq.broker.requests.on_replicas import ReplicaHandlers
from escrowmq.broker.requests.on_statistics import StatisticsHandlers
from escrowmq.broker.requests.on_topics import TopicHandlers
from escrowmq.codec.headers import (
    CloneOffsetHeader,
    ConsumerGroupHeader,
    ConsumeStatsHeader,
    CorrectionOffsetHeader,
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

OPERATOR_REQUESTS: Final[tuple[HandlerRows, ...]] = (
    handler_rows(
        PendingHandlers,
        RequestRow(_R.ESCROW_PENDING_LIST, None, PendingHandlers.list_pending, OPERATOR_READ),
        RequestRow(_R.ESCROW_PENDING_COUNT, None, PendingHandlers.count_pending, OPERATOR_READ),
        RequestRow(_R.ESCROW_SHOW, None, PendingHandlers.show_transaction, OPERATOR_READ),
        RequestRow(_R.ESCROW_SETTLE, None, PendingHandlers.settle_transaction, OPERATOR_CHANGE),
        RequestRow(_R.ESCROW_CHECK, None, PendingHandlers.send_checks, OPERATOR_CHANGE),
        RequestRow(_R.ESCROW_DISCARDED_LIST, None, PendingHandlers.list_discarded, OPERATOR_READ),
        RequestRow(
            _R.ESCROW_DISCARDED_RESUME, None, PendingHandlers.resume_discarded, OPERATOR_CHANGE
        ),
        RequestRow(_R.ESCROW_KEY_ROTATE, None, PendingHandlers.rotate_key, OPERATOR_CHANGE),
    ),
    handler_rows(
        DeadLetterHandlers,
        RequestRow(
            _R.ESCROW_REDELIVER_DEAD,
            None,
            DeadLetterHandlers.redeliver,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
    ),
    handler_rows(
        TopicHandlers,
        RequestRow(
            _R.UPDATE_AND_CREATE_TOPIC,
            CreateTopicHeader,
            TopicHandlers.put_topic,
            RightsRule(accesses=field_accesses(CREATE, topics="topic")),
            is_audited=True,
        ),
        RequestRow(
            _R.UPDATE_AND_CREATE_TOPIC_LIST,
            None,
            TopicHandlers.put_topics,
            RightsRule(accesses=new_topics_accesses),
            is_audited=True,
        ),
        RequestRow(_R.GET_ALL_TOPIC_CONFIG, None, TopicHandlers.all_topics, OPERATOR_READ),
        RequestRow(
            _R.DELETE_TOPIC_IN_BROKER,
            TopicHeader,
            TopicHandlers.delete_topic,
            RightsRule(accesses=field_accesses(DELETE, topics="topic")),
            is_audited=True,
        ),
        RequestRow(
            _R.GET_TOPIC_CONFIG,
            TopicHeader,
            TopicHandlers.get_topic,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, TopicHandlers.system_topics, OPERATOR_READ
        ),
    ),
    handler_rows(
        GroupHandlers,
        RequestRow(
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            GroupHandlers.put_group,
            RightsRule(accesses=new_group_access),
            is_audited=True,
        ),
        RequestRow(
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            None,
            GroupHandlers.put_groups,
            RightsRule(accesses=new_groups_accesses),
            is_audited=True,
        ),
        RequestRow(
            _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, GroupHandlers.all_groups, OPERATOR_READ
        ),
        RequestRow(
            _R.DELETE_SUBSCRIPTIONGROUP,
            DeleteGroupHeader,
            GroupHandlers.delete_group,
            RightsRule(accesses=field_accesses(DELETE, groups="groupName")),
            is_audited=True,
        ),
        RequestRow(
            _R.GET_SUBSCRIPTIONGROUP_CONFIG,
            GroupHeader,
            GroupHandlers.get_group,
            RightsRule(group_field_needs("group"), accesses=field_accesses(GET, groups="group")),
        ),
        RequestRow(
            _R.UPDATE_AND_GET_GROUP_FORBIDDEN,
            GroupTopicHeader,
            GroupHandlers.forbid_reading,
            RightsRule(accesses=field_accesses(UPDATE, groups="group", topics="topic")),
            is_audited=True,
        ),
    ),
    handler_rows(
        OperatorOffsetHandlers,
        RequestRow(
            _R.GET_ALL_CONSUMER_OFFSET, None, OperatorOffsetHandlers.all_offsets, OPERATOR_READ
        ),
        RequestRow(
            _R.GET_ALL_DELAY_OFFSET, None, OperatorOffsetHandlers.delay_offsets, OPERATOR_READ
        ),
        RequestRow(
            _R.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetHeader,
            OperatorOffsetHandlers.reset_offsets,
            RightsRule(accesses=field_accesses(UPDATE, groups="group", topics="topic")),
            is_audited=True,
        ),
        RequestRow(
            _R.QUERY_CORRECTION_OFFSET,
            CorrectionOffsetHeader,
            OperatorOffsetHandlers.correction_offsets,
            RightsRule(
                accesses=FieldAccesses(
                    GET, ("topic",), ("filterGroups", "compareGroup"), lists={"filterGroups": ","}
                )
            ),
        ),
        RequestRow(
            _R.CLONE_GROUP_OFFSET,
            CloneOffsetHeader,
            OperatorOffsetHandlers.clone_offsets,
            RightsRule(accesses=field_accesses(UPDATE, groups="destGroup", topics="topic")),
            is_audited=True,
        ),
    ),
    handler_rows(
        StatisticsHandlers,
        RequestRow(
            _R.GET_TOPIC_STATS_INFO,
            TopicHeader,
            StatisticsHandlers.topic_stats,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_CONSUME_STATS,
            ConsumeStatsHeader,
            StatisticsHandlers.consume_stats,
            RightsRule(
                combined_needs(GROUP, needs_if_present(topic_field_needs("topic", SUB), "topic")),
                accesses=FieldAccesses(
                    GET, ("topic", "topicList"), ("consumerGroup",), lists={"topicList": ";"}
                ),
            ),
        ),
        RequestRow(
            _R.QUERY_TOPIC_CONSUME_BY_WHO,
            TopicHeader,
            StatisticsHandlers.consuming_groups,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.QUERY_CONSUME_TIME_SPAN,
            GroupTopicHeader,
            StatisticsHandlers.consume_time_span,
            RightsRule(
                OF_GROUP,
                accesses=field_accesses(GET, groups="group", topics="topic", groups_first=False),
            ),
        ),
        RequestRow(
            _R.VIEW_BROKER_STATS_DATA, StatsHeader, StatisticsHandlers.counter_stats, OPERATOR_READ
        ),
        RequestRow(
            _R.GET_BROKER_CONSUME_STATS, None, StatisticsHandlers.all_consume_stats, OPERATOR_READ
        ),
        RequestRow(
            _R.QUERY_CONSUME_QUEUE,
            QueryQueueHeader,
            StatisticsHandlers.queue_units,
            RightsRule(
                accesses=field_accesses(
                    GET, groups="consumerGroup", topics="topic", groups_first=False
                )
            ),
        ),
        RequestRow(
            _R.QUERY_TOPICS_BY_CONSUMER,
            GroupHeader,
            StatisticsHandlers.topics_of_group,
            RightsRule(group_field_needs("group"), accesses=field_accesses(GET, groups="group")),
        ),
    ),
    handler_rows(
        ConnectionHandlers,
        RequestRow(
            _R.GET_CONSUMER_CONNECTION_LIST,
            ConsumerGroupHeader,
            ConnectionHandlers.consumer_connections,
            RightsRule(GROUP, accesses=field_accesses(GET, groups="consumerGroup")),
        ),
        RequestRow(
            _R.GET_PRODUCER_CONNECTION_LIST,
            ProducerGroupHeader,
            ConnectionHandlers.producer_connections,
            OPERATOR_READ,
        ),
        RequestRow(_R.GET_ALL_PRODUCER_INFO, None, ConnectionHandlers.all_producers, OPERATOR_READ),
        RequestRow(
            _R.QUERY_SUBSCRIPTION_BY_CONSUMER,
            GroupTopicHeader,
            ConnectionHandlers.subscription,
            RightsRule(OF_GROUP, accesses=field_accesses(GET, groups="group", topics="topic")),
        ),
    ),
    handler_rows(
        ConfigHandlers,
        RequestRow(
            _R.UPDATE_BROKER_CONFIG,
            None,
            ConfigHandlers.update_settings,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(_R.GET_BROKER_CONFIG, None, ConfigHandlers.show_settings, OPERATOR_READ),
        RequestRow(_R.GET_BROKER_RUNTIME_INFO, None, ConfigHandlers.runtime_info, OPERATOR_READ),
        RequestRow(
            _R.CLEAN_EXPIRED_CONSUMEQUEUE,
            None,
            ConfigHandlers.remove_unused_queues,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.CLEAN_UNUSED_TOPIC,
            None,
            ConfigHandlers.remove_unused_queues,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.DELETE_EXPIRED_COMMITLOG,
            None,
            ConfigHandlers.delete_expired_files,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.GET_COLD_DATA_FLOW_CTR_INFO, None, ConfigHandlers.cold_data_info, OPERATOR_READ
        ),
        RequestRow(
            _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            None,
            ConfigHandlers.ignore_cold_data_hint,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            None,
            ConfigHandlers.ignore_cold_data_hint,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.SET_COMMITLOG_READ_MODE,
            None,
            ConfigHandlers.ignore_cold_data_hint,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            None,
            ConfigHandlers.answer_no_rocksdb,
            RightsRule(accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.EXPORT_ROCKSDB_CONFIG_TO_JSON,
            None,
            ConfigHandlers.export_tables,
            OPERATOR_READ,
            is_audited=True,
        ),
    ),
    handler_rows(
        ReplicaHandlers,
        RequestRow(_R.ESCROW_REPLICA_STATE, None, ReplicaHandlers.replica_state, OPERATOR_READ),
        RequestRow(_R.ESCROW_FOLLOW, None, ReplicaHandlers.issue_ticket, OPERATOR_CHANGE),
        RequestRow(_R.GET_BROKER_HA_STATUS, None, ReplicaHandlers.ha_status, OPERATOR_READ),
        RequestRow(
            _R.GET_TIMER_CHECK_POINT, None, ReplicaHandlers.timer_check_point, OPERATOR_READ
        ),
        RequestRow(_R.GET_TIMER_METRICS, None, ReplicaHandlers.timer_counts, OPERATOR_READ),
        RequestRow(
            _R.NOTIFY_MIN_BROKER_ID_CHANGE,
            None,
            ReplicaHandlers.ignore_notification,
            OPERATOR_CHANGE,
        ),
        RequestRow(
            _R.RESET_MASTER_FLUSH_OFFSET, None, ReplicaHandlers.ignore_notification, OPERATOR_CHANGE
        ),
        RequestRow(
            _R.NOTIFY_BROKER_ROLE_CHANGED,
            None,
            ReplicaHandlers.ignore_notification,
            OPERATOR_CHANGE,
        ),
    ),
    handler_rows(
        GroupMemberHandlers,
        RequestRow(_R.ESCROW_GROUP_STATUS, None, GroupMemberHandlers.group_status, OPERATOR_READ),
        RequestRow(
            _R.ESCROW_GROUP_SWITCH,
            None,
            GroupMemberHandlers.switch_master,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.ESCROW_GROUP_REBUILD,
            None,
            GroupMemberHandlers.become_master_by_force,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.ESCROW_GROUP_DRILL,
            None,
            GroupMemberHandlers.inject_fault,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
    ),
    handler_rows(
        ControllerHandlers,
        RequestRow(
            _R.CONTROLLER_GET_METADATA_INFO,
            None,
            ControllerHandlers.controller_metadata,
            OPERATOR_READ,
        ),
        RequestRow(
            _R.CONTROLLER_GET_SYNC_STATE_DATA, None, ControllerHandlers.sync_state, OPERATOR_READ
        ),
        RequestRow(_R.GET_BROKER_EPOCH_CACHE, None, ControllerHandlers.log_epochs, OPERATOR_READ),
    ),
    handler_rows(
        Acl1Handlers,
        RequestRow(
            _R.UPDATE_AND_CREATE_ACL_CONFIG,
            None,
            Acl1Handlers.update_account,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.DELETE_ACL_CONFIG,
            None,
            Acl1Handlers.delete_account,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.GET_BROKER_CLUSTER_ACL_INFO, None, Acl1Handlers.answer_version, OPERATOR_READ
        ),
        RequestRow(
            _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            None,
            Acl1Handlers.set_trusted_addresses,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
    ),
    handler_rows(
        Acl2Handlers,
        RequestRow(
            _R.AUTH_CREATE_USER,
            None,
            Acl2Handlers.create_user,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.AUTH_UPDATE_USER,
            None,
            Acl2Handlers.update_user,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.AUTH_DELETE_USER,
            None,
            Acl2Handlers.delete_user,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(_R.AUTH_GET_USER, None, Acl2Handlers.show_user, OPERATOR_READ),
        RequestRow(_R.AUTH_LIST_USER, None, Acl2Handlers.list_users, OPERATOR_READ),
        RequestRow(
            _R.AUTH_CREATE_ACL,
            None,
            Acl2Handlers.put_acl,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.AUTH_UPDATE_ACL,
            None,
            Acl2Handlers.put_acl,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(
            _R.AUTH_DELETE_ACL,
            None,
            Acl2Handlers.delete_acl,
            RightsRule(changes_rights=True),
            is_audited=True,
        ),
        RequestRow(_R.AUTH_GET_ACL, None, Acl2Handlers.show_acl, OPERATOR_READ),
        RequestRow(_R.AUTH_LIST_ACL, None, Acl2Handlers.list_acls, OPERATOR_READ),
    ),
    handler_rows(
        AccessCheck,
        RequestRow(_R.ESCROW_ACL_EXPLAIN, None, AccessCheck.explain, OPERATOR_READ),
        RequestRow(_R.ESCROW_SESSION, None, AccessCheck.answer_session, RightsRule(no_needs)),
    ),
)
