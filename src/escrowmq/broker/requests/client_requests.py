"""The table of requests that clients send, producers and consumers: one row each."""

from __future__ import annotations

from typing import Final

from escrowmq.acl.acl1_accounts import PUB, SUB
from escrowmq.acl.acl2_accesses import (
    GET,
    OPERATOR_CHANGE,
    OPERATOR_READ,
    SUB_GET,
    SUB_UPDATE,
    RightsRule,
    field_accesses,
    route_access,
)
from escrowmq.acl.request_needs import (
    ANY_TOPIC,
    GROUP,
    READ,
    StoredDataNeeds,
    ack_needs,
    assignment_needs,
    batch_ack_needs,
    check_needs,
    combined_needs,
    decision_needs,
    end_needs,
    heartbeat_needs,
    lock_needs,
    needs_if_present,
    recall_needs,
    reply_needs,
    send_back_needs,
    send_needs,
    topic_field_needs,
    view_needs,
)
from escrowmq.base.codes import Request
from escrowmq.broker.incoming_request import HandlerRows, RequestRow, handler_rows
from escrowmq.broker.requests.on_ack import AckHandlers
from escrowmq.broker.requests.on_assignment import AssignmentHandlers
from escrowmq.broker.requests.on_epoch import EpochHandlers
from escrowmq.broker.requests.on_heartbeats import HeartbeatHandlers
from escrowmq.broker.requests.on_offsets import OffsetHandlers
from escrowmq.broker.requests.on_peek import PeekHandlers
from escrowmq.broker.requests.on_pop import PopHandlers
from escrowmq.broker.requests.on_pull import PullHandlers
from escrowmq.broker.requests.on_query import QueryHandlers
from escrowmq.broker.requests.on_recall import RecallHandlers
from escrowmq.broker.requests.on_relay import RelayHandlers
from escrowmq.broker.requests.on_reply import ReplyHandlers
from escrowmq.broker.requests.on_route import RouteHandlers
from escrowmq.broker.requests.on_send import SendHandlers
from escrowmq.broker.requests.on_send_back import SendBackHandlers
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.codec.headers import (
    AckHeader,
    CommitOffsetHeader,
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    GroupTopicHeader,
    PopHeader,
    PullHeader,
    QueryMessageHeader,
    QueryOffsetHeader,
    QueueHeader,
    RecallHeader,
    ResumeCheckHeader,
    RunningInfoHeader,
    SearchOffsetHeader,
    SendBackHeader,
    SendHeader,
    SendHeaderV2,
    UnregisterClientHeader,
    ViewMessageHeader,
)

_R: Final = Request

CLIENT_REQUESTS: Final[tuple[HandlerRows, ...]] = (
    handler_rows(
        SendHandlers,
        RequestRow(
            _R.SEND_MESSAGE,
            SendHeader,
            SendHandlers.send,
            RightsRule(send_needs("topic", "properties")),
            is_brief=True,
        ),
        RequestRow(
            _R.SEND_MESSAGE_V2,
            SendHeaderV2,
            SendHandlers.send,
            RightsRule(send_needs("b", "i")),
            is_brief=True,
        ),
        RequestRow(
            _R.SEND_BATCH_MESSAGE,
            SendHeaderV2,
            SendHandlers.send,
            RightsRule(topic_field_needs("b", PUB)),
            is_brief=True,
        ),
    ),
    handler_rows(
        EndHandlers,
        RequestRow(
            _R.END_TRANSACTION,
            None,
            EndHandlers.end_transaction,
            RightsRule(StoredDataNeeds(end_needs)),
            is_free=True,
        ),
        RequestRow(
            _R.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckHeader,
            EndHandlers.resume_check,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
    ),
    handler_rows(
        EpochHandlers,
        RequestRow(_R.ESCROW_DECIDE, None, EpochHandlers.decide_epoch, RightsRule(decision_needs)),
        RequestRow(
            _R.ESCROW_ABANDON, None, EpochHandlers.abandon_tokens, RightsRule(decision_needs)
        ),
        RequestRow(
            _R.ESCROW_DECISION, None, EpochHandlers.show_decision, RightsRule(decision_needs)
        ),
    ),
    handler_rows(
        PullHandlers,
        RequestRow(
            _R.PULL_MESSAGE,
            PullHeader,
            PullHandlers.pull_messages,
            RightsRule(READ),
            is_read=True,
            is_brief=True,
        ),
        RequestRow(
            _R.LITE_PULL_MESSAGE,
            PullHeader,
            PullHandlers.pull_messages,
            RightsRule(READ),
            is_read=True,
            is_brief=True,
        ),
    ),
    handler_rows(
        OffsetHandlers,
        RequestRow(
            _R.QUERY_CONSUMER_OFFSET,
            QueryOffsetHeader,
            OffsetHandlers.query_offset,
            RightsRule(READ, actions=SUB_GET),
        ),
        RequestRow(
            _R.UPDATE_CONSUMER_OFFSET,
            CommitOffsetHeader,
            OffsetHandlers.commit_offset,
            RightsRule(READ, actions=SUB_UPDATE),
            is_brief=True,
            is_free=True,
        ),
        RequestRow(
            _R.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetHeader,
            OffsetHandlers.search_offset,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_MAX_OFFSET,
            QueueHeader,
            OffsetHandlers.max_offset,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_MIN_OFFSET,
            QueueHeader,
            OffsetHandlers.min_offset,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_EARLIEST_MSG_STORETIME,
            QueueHeader,
            OffsetHandlers.earliest_store_time,
            RightsRule(ANY_TOPIC, accesses=field_accesses(GET, topics="topic")),
        ),
    ),
    handler_rows(
        PopHandlers,
        RequestRow(
            _R.POP_MESSAGE, PopHeader, PopHandlers.pop_messages, RightsRule(READ), is_read=True
        ),
        RequestRow(_R.POP_ROLLBACK, None, PopHandlers.ignore_rollback, OPERATOR_CHANGE),
    ),
    handler_rows(
        PeekHandlers,
        RequestRow(
            _R.PEEK_MESSAGE, PopHeader, PeekHandlers.peek_messages, RightsRule(READ), is_read=True
        ),
        RequestRow(
            _R.NOTIFICATION,
            PopHeader,
            PeekHandlers.notify_of_message,
            RightsRule(READ),
            is_read=True,
        ),
        RequestRow(
            _R.POLLING_INFO,
            PopHeader,
            PeekHandlers.count_waiting_pops,
            RightsRule(READ, actions=GET),
        ),
    ),
    handler_rows(
        AckHandlers,
        RequestRow(
            _R.ACK_MESSAGE, AckHeader, AckHandlers.ack_message, RightsRule(ack_needs), is_free=True
        ),
        RequestRow(
            _R.BATCH_ACK_MESSAGE,
            None,
            AckHandlers.ack_batch,
            RightsRule(batch_ack_needs),
            is_free=True,
        ),
        RequestRow(
            _R.CHANGE_MESSAGE_INVISIBLETIME,
            AckHeader,
            AckHandlers.change_invisible_time,
            RightsRule(ack_needs),
        ),
    ),
    handler_rows(
        AssignmentHandlers,
        RequestRow(
            _R.QUERY_ASSIGNMENT,
            None,
            AssignmentHandlers.query_assignment,
            RightsRule(assignment_needs),
        ),
        RequestRow(
            _R.SET_MESSAGE_REQUEST_MODE,
            None,
            AssignmentHandlers.set_mode,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.GET_ALL_MESSAGE_REQUEST_MODE, None, AssignmentHandlers.list_modes, OPERATOR_READ
        ),
    ),
    handler_rows(
        SendBackHandlers,
        RequestRow(
            _R.CONSUMER_SEND_MSG_BACK,
            SendBackHeader,
            SendBackHandlers.send_back,
            RightsRule(StoredDataNeeds(send_back_needs)),
        ),
    ),
    handler_rows(
        QueryHandlers,
        RequestRow(
            _R.QUERY_MESSAGE,
            QueryMessageHeader,
            QueryHandlers.query_messages,
            RightsRule(topic_field_needs("topic", SUB), actions=SUB_GET),
        ),
        RequestRow(
            _R.VIEW_MESSAGE_BY_ID,
            ViewMessageHeader,
            QueryHandlers.view_message,
            RightsRule(StoredDataNeeds(view_needs), actions=GET),
        ),
    ),
    handler_rows(
        RouteHandlers,
        RequestRow(
            _R.GET_ROUTEINFO_BY_TOPIC,
            None,
            RouteHandlers.answer_route,
            RightsRule(
                combined_needs(ANY_TOPIC, needs_if_present(GROUP, "consumerGroup")),
                accesses=route_access,
            ),
        ),
    ),
    handler_rows(
        RecallHandlers,
        RequestRow(
            _R.RECALL_MESSAGE, RecallHeader, RecallHandlers.recall_message, RightsRule(recall_needs)
        ),
    ),
    handler_rows(
        RelayHandlers,
        RequestRow(
            _R.GET_CONSUMER_RUNNING_INFO,
            RunningInfoHeader,
            RelayHandlers.running_info,
            RightsRule(accesses=field_accesses(GET, groups="consumerGroup")),
        ),
        RequestRow(
            _R.CONSUME_MESSAGE_DIRECTLY,
            ConsumeDirectlyHeader,
            RelayHandlers.consume_directly,
            OPERATOR_CHANGE,
            is_audited=True,
        ),
        RequestRow(
            _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            GroupTopicHeader,
            RelayHandlers.consumer_status,
            RightsRule(
                accesses=field_accesses(GET, groups="group", topics="topic", groups_first=False)
            ),
        ),
    ),
    handler_rows(
        ReplyHandlers,
        RequestRow(
            _R.SEND_REPLY_MESSAGE,
            SendHeader,
            ReplyHandlers.push_reply,
            RightsRule(reply_needs("topic", "properties")),
        ),
        RequestRow(
            _R.SEND_REPLY_MESSAGE_V2,
            SendHeaderV2,
            ReplyHandlers.push_reply,
            RightsRule(reply_needs("b", "i")),
        ),
    ),
    handler_rows(
        HeartbeatHandlers,
        RequestRow(
            _R.HEART_BEAT,
            None,
            HeartbeatHandlers.heartbeat,
            RightsRule(heartbeat_needs),
            is_free=True,
        ),
        RequestRow(
            _R.UNREGISTER_CLIENT,
            UnregisterClientHeader,
            HeartbeatHandlers.unregister_client,
            RightsRule(needs_if_present(GROUP, "consumerGroup")),
            is_free=True,
        ),
        RequestRow(
            _R.GET_CONSUMER_LIST_BY_GROUP,
            ConsumerGroupHeader,
            HeartbeatHandlers.list_consumers,
            RightsRule(GROUP, actions=SUB_GET),
        ),
        RequestRow(_R.LOCK_BATCH_MQ, None, HeartbeatHandlers.lock_queues, RightsRule(lock_needs)),
        RequestRow(
            _R.UNLOCK_BATCH_MQ,
            None,
            HeartbeatHandlers.unlock_queues,
            RightsRule(lock_needs),
            is_free=True,
        ),
        RequestRow(
            _R.CHECK_CLIENT_CONFIG,
            None,
            HeartbeatHandlers.check_subscription,
            RightsRule(check_needs),
        ),
    ),
)
