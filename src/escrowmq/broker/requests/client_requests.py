"""The table of requests that clients send, producers and consumers: one row each."""

from __future__ import annotations

from typing import Final

from escrowmq.acl.acl1_accounts import PUB, SUB
from escrowmq.acl.acl2_accesses import (
    GET,
    LOOK,
    OPERATE,
    SUB_GET,
    SUB_UPDATE,
    Rule,
    fields,
    route_access,
)
from escrowmq.acl.request_needs import (
    ANY_TOPIC,
    GROUP,
    READ,
    Stored,
    acked,
    all_of,
    assigned,
    batch_acked,
    checked,
    decided,
    ended,
    field,
    given,
    heartbeat,
    locked,
    recalled,
    replied,
    sent,
    sent_back,
    viewed,
)
from escrowmq.base.codes import Request
from escrowmq.broker.asked import Family, RequestRow, family
from escrowmq.broker.requests.on_ack import AckHandlers
from escrowmq.broker.requests.on_assignment import AssignmentHandlers
from escrowmq.broker.requests.on_epoch import EpochHandlers
from escrowmq.broker.requests.on_heartbeats import ClientHandlers
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
from escrowmq.broker.requests.on_send_back import BackHandlers
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.codec.headers import (
    AckHeader,
    CommitHeader,
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    GroupTopicHeader,
    OffsetHeader,
    PopHeader,
    PullHeader,
    QueryHeader,
    QueueHeader,
    RecallHeader,
    ResumeCheckHeader,
    RunningInfoHeader,
    SearchOffsetHeader,
    SendBackHeader,
    SendHeader,
    SendHeaderV2,
    UnregisterClientHeader,
    ViewHeader,
)

_R: Final = Request

CLIENT_REQUESTS: Final[tuple[Family, ...]] = (
    family(
        SendHandlers,
        RequestRow(
            _R.SEND_MESSAGE,
            SendHeader,
            SendHandlers.send,
            Rule(sent("topic", "properties")),
            is_brief=True,
        ),
        RequestRow(
            _R.SEND_MESSAGE_V2, SendHeaderV2, SendHandlers.send, Rule(sent("b", "i")), is_brief=True
        ),
        RequestRow(
            _R.SEND_BATCH_MESSAGE,
            SendHeaderV2,
            SendHandlers.send,
            Rule(field("b", PUB)),
            is_brief=True,
        ),
    ),
    family(
        EndHandlers,
        RequestRow(_R.END_TRANSACTION, None, EndHandlers.end, Rule(Stored(ended)), is_free=True),
        RequestRow(
            _R.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckHeader,
            EndHandlers.resume,
            OPERATE,
            is_audited=True,
        ),
    ),
    family(
        EpochHandlers,
        RequestRow(_R.ESCROW_DECIDE, None, EpochHandlers.decide, Rule(decided)),
        RequestRow(_R.ESCROW_ABANDON, None, EpochHandlers.abandon, Rule(decided)),
        RequestRow(_R.ESCROW_DECISION, None, EpochHandlers.show_decision, Rule(decided)),
    ),
    family(
        PullHandlers,
        RequestRow(
            _R.PULL_MESSAGE, PullHeader, PullHandlers.pull, Rule(READ), is_read=True, is_brief=True
        ),
        RequestRow(
            _R.LITE_PULL_MESSAGE,
            PullHeader,
            PullHandlers.pull,
            Rule(READ),
            is_read=True,
            is_brief=True,
        ),
    ),
    family(
        OffsetHandlers,
        RequestRow(
            _R.QUERY_CONSUMER_OFFSET,
            OffsetHeader,
            OffsetHandlers.query,
            Rule(READ, actions=SUB_GET),
        ),
        RequestRow(
            _R.UPDATE_CONSUMER_OFFSET,
            CommitHeader,
            OffsetHandlers.commit,
            Rule(READ, actions=SUB_UPDATE),
            is_brief=True,
            is_free=True,
        ),
        RequestRow(
            _R.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetHeader,
            OffsetHandlers.search,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_MAX_OFFSET,
            QueueHeader,
            OffsetHandlers.newest,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_MIN_OFFSET,
            QueueHeader,
            OffsetHandlers.oldest_time,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
        RequestRow(
            _R.GET_EARLIEST_MSG_STORETIME,
            QueueHeader,
            OffsetHandlers.earliest_time,
            Rule(ANY_TOPIC, accesses=fields(GET, topics="topic")),
        ),
    ),
    family(
        PopHandlers,
        RequestRow(_R.POP_MESSAGE, PopHeader, PopHandlers.pop, Rule(READ), is_read=True),
        RequestRow(_R.POP_ROLLBACK, None, PopHandlers.roll_back, OPERATE),
    ),
    family(
        PeekHandlers,
        RequestRow(_R.PEEK_MESSAGE, PopHeader, PeekHandlers.peek, Rule(READ), is_read=True),
        RequestRow(_R.NOTIFICATION, PopHeader, PeekHandlers.notify, Rule(READ), is_read=True),
        RequestRow(_R.POLLING_INFO, PopHeader, PeekHandlers.count_polls, Rule(READ, actions=GET)),
    ),
    family(
        AckHandlers,
        RequestRow(_R.ACK_MESSAGE, AckHeader, AckHandlers.ack, Rule(acked), is_free=True),
        RequestRow(
            _R.BATCH_ACK_MESSAGE, None, AckHandlers.ack_batch, Rule(batch_acked), is_free=True
        ),
        RequestRow(_R.CHANGE_MESSAGE_INVISIBLETIME, AckHeader, AckHandlers.change, Rule(acked)),
    ),
    family(
        AssignmentHandlers,
        RequestRow(_R.QUERY_ASSIGNMENT, None, AssignmentHandlers.query, Rule(assigned)),
        RequestRow(
            _R.SET_MESSAGE_REQUEST_MODE, None, AssignmentHandlers.set_mode, OPERATE, is_audited=True
        ),
        RequestRow(_R.GET_ALL_MESSAGE_REQUEST_MODE, None, AssignmentHandlers.list_modes, LOOK),
    ),
    family(
        BackHandlers,
        RequestRow(
            _R.CONSUMER_SEND_MSG_BACK,
            SendBackHeader,
            BackHandlers.send_back,
            Rule(Stored(sent_back)),
        ),
    ),
    family(
        QueryHandlers,
        RequestRow(
            _R.QUERY_MESSAGE,
            QueryHeader,
            QueryHandlers.query,
            Rule(field("topic", SUB), actions=SUB_GET),
        ),
        RequestRow(
            _R.VIEW_MESSAGE_BY_ID, ViewHeader, QueryHandlers.view, Rule(Stored(viewed), actions=GET)
        ),
    ),
    family(
        RouteHandlers,
        RequestRow(
            _R.GET_ROUTEINFO_BY_TOPIC,
            None,
            RouteHandlers.route,
            Rule(all_of(ANY_TOPIC, given(GROUP, "consumerGroup")), accesses=route_access),
        ),
    ),
    family(
        RecallHandlers,
        RequestRow(_R.RECALL_MESSAGE, RecallHeader, RecallHandlers.recall, Rule(recalled)),
    ),
    family(
        RelayHandlers,
        RequestRow(
            _R.GET_CONSUMER_RUNNING_INFO,
            RunningInfoHeader,
            RelayHandlers.running_info,
            Rule(accesses=fields(GET, groups="consumerGroup")),
        ),
        RequestRow(
            _R.CONSUME_MESSAGE_DIRECTLY,
            ConsumeDirectlyHeader,
            RelayHandlers.consume_directly,
            OPERATE,
            is_audited=True,
        ),
        RequestRow(
            _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            GroupTopicHeader,
            RelayHandlers.consumer_status,
            Rule(accesses=fields(GET, groups="group", topics="topic", groups_first=False)),
        ),
    ),
    family(
        ReplyHandlers,
        RequestRow(
            _R.SEND_REPLY_MESSAGE,
            SendHeader,
            ReplyHandlers.reply,
            Rule(replied("topic", "properties")),
        ),
        RequestRow(
            _R.SEND_REPLY_MESSAGE_V2,
            SendHeaderV2,
            ReplyHandlers.reply,
            Rule(replied("b", "i")),
        ),
    ),
    family(
        ClientHandlers,
        RequestRow(_R.HEART_BEAT, None, ClientHandlers.heartbeat, Rule(heartbeat), is_free=True),
        RequestRow(
            _R.UNREGISTER_CLIENT,
            UnregisterClientHeader,
            ClientHandlers.unregister,
            Rule(given(GROUP, "consumerGroup")),
            is_free=True,
        ),
        RequestRow(
            _R.GET_CONSUMER_LIST_BY_GROUP,
            ConsumerGroupHeader,
            ClientHandlers.list_consumers,
            Rule(GROUP, actions=SUB_GET),
        ),
        RequestRow(_R.LOCK_BATCH_MQ, None, ClientHandlers.lock, Rule(locked)),
        RequestRow(_R.UNLOCK_BATCH_MQ, None, ClientHandlers.unlock, Rule(locked), is_free=True),
        RequestRow(_R.CHECK_CLIENT_CONFIG, None, ClientHandlers.check_config, Rule(checked)),
    ),
)
