"""Tables of settings. Each setting has RocketMQ's key, its default, its bounds and its effect. The
keys are the encoded names of the fields, so `broker.conf` can be used unchanged. Times are in
RocketMQ's units (ms unless the text says otherwise)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from escrowmq.base.fixed_limits import TIMER_PRECISION_MAX_MS
from escrowmq.base.message import Topic
from escrowmq.base.setting_facts import FIXED, LIVE, RESTART, SECRET


class BrokerSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings of a broker (RocketMQ's BrokerConfig)."""

    name: Annotated[
        str, Meta(description="name of the broker; the host's name by default", extra=FIXED)
    ] = field(default="broker-a", name="brokerName")
    cluster: Annotated[str, Meta(description="cluster that the broker belongs to", extra=FIXED)] = (
        field(default="DefaultCluster", name="brokerClusterName")
    )
    broker_id: Annotated[int, Meta(ge=0, description="0 is the master", extra=FIXED)] = field(
        default=0, name="brokerId"
    )
    advertised_host: Annotated[
        str, Meta(description="address registered for clients", extra=FIXED)
    ] = field(default="127.0.0.1", name="brokerIP1")
    name_servers: Annotated[
        str, Meta(description="name servers, separated by `;`", extra=FIXED)
    ] = field(default="", name="namesrvAddr")
    register_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=60_000,
            description="ms between registrations at the name servers",
            extra=LIVE,
        ),
    ] = field(default=30_000, name="registerNameServerPeriod")
    registers_single_topics: Annotated[
        bool,
        Meta(
            description="register a changed topic by a request of its own; for RocketMQ's name "
            "servers with deleteTopicWithBrokerRegistration=true, which delete all topics that a "
            "registration does not name",
            extra=LIVE,
        ),
    ] = field(default=False, name="enableSingleTopicRegister")
    permission: Annotated[int, Meta(ge=0, le=15, description="4 read, 2 write", extra=LIVE)] = (
        field(default=6, name="brokerPermission")
    )
    creates_topics: Annotated[
        bool, Meta(description="create topics on the first send", extra=LIVE)
    ] = field(default=True, name="autoCreateTopicEnable")
    topic_queues_count: Annotated[
        int, Meta(ge=1, description="queues of created topics", extra=RESTART)
    ] = field(default=8, name="defaultTopicQueueNums")
    creates_groups: Annotated[
        bool, Meta(description="create consumer groups on first use", extra=LIVE)
    ] = field(default=True, name="autoCreateSubscriptionGroup")
    has_cluster_topic: Annotated[
        bool,
        Meta(
            description="create a topic with the cluster's name, as a template for others",
            extra=RESTART,
        ),
    ] = field(default=True, name="clusterTopicEnable")
    has_broker_topic: Annotated[
        bool,
        Meta(
            description="create a topic with the broker's name, as a template for others",
            extra=RESTART,
        ),
    ] = field(default=True, name="brokerTopicEnable")
    has_trace_topic: Annotated[
        bool, Meta(description="create the topic of message traces", extra=RESTART)
    ] = field(default=False, name="traceTopicEnable")
    trace_topic: Annotated[str, Meta(description="its name", extra=RESTART)] = field(
        default=Topic.TRACE, name="msgTraceTopicName"
    )
    is_traced: Annotated[bool, Meta(description="tell clients to trace messages", extra=LIVE)] = (
        field(default=True, name="traceOn")
    )
    region: Annotated[
        str, Meta(description="region reported to senders of messages", extra=FIXED)
    ] = field(default="DefaultRegion", name="regionId")
    has_property_filter: Annotated[bool, Meta(description="SQL92 filters", extra=LIVE)] = field(
        default=False, name="enablePropertyFilter"
    )
    allows_mixed_type: Annotated[
        bool, Meta(description="topics of message.type=MIXED may be created", extra=LIVE)
    ] = field(default=False, name="enableMixedMessageType")
    protects_system_topics: Annotated[
        bool, Meta(description="requests cannot change the broker's own topics", extra=LIVE)
    ] = field(default=True, name="validateSystemTopicWhenUpdateTopic")
    rejects_unknown_pulls: Annotated[
        bool, Meta(description="only members of a group may pull", extra=LIVE)
    ] = field(default=False, name="rejectPullConsumerEnable")
    channel_idle_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            description="clients that are silent for this long are disconnected",
            extra=LIVE,
        ),
    ] = field(default=120_000, name="channelExpiredTimeout")
    offsets_flush_ms: Annotated[
        int, Meta(ge=10, description="between saves of offsets", extra=LIVE)
    ] = field(default=5_000, name="flushConsumerOffsetInterval")
    resets_offsets_here: Annotated[
        bool,
        Meta(description="reset offsets at the broker instead of asking the clients", extra=LIVE),
    ] = field(default=True, name="useServerSideResetOffset")
    stores_replies: Annotated[
        bool, Meta(description="replies are also stored as messages", extra=LIVE)
    ] = field(default=True, name="storeReplyMessageEnable")
    holds_pulls: Annotated[bool, Meta(description="long polling", extra=LIVE)] = field(
        default=True, name="longPollingEnable"
    )
    short_poll_ms: Annotated[
        int, Meta(ge=1, description="how long a pull waits if long polls are off", extra=LIVE)
    ] = field(default=1_000, name="shortPollingTimeMills")
    allows_lite_pull: Annotated[bool, Meta(description="serve request 361", extra=LIVE)] = field(
        default=True, name="litePullMessageEnable"
    )
    query_unique_max: Annotated[
        int, Meta(ge=1, description="maximum messages of a query by unique key", extra=LIVE)
    ] = field(default=32, name="defaultQueryMaxNum")
    accepts_sends_from_ms: Annotated[
        int, Meta(ge=0, description="no messages are accepted before this time", extra=LIVE)
    ] = field(default=0, name="startAcceptSendRequestTimeStamp")
    rejects_transactions: Annotated[bool, Meta(description="refuse half messages", extra=LIVE)] = (
        field(default=False, name="rejectTransactionMessage")
    )
    transaction_timeout_ms: Annotated[
        int, Meta(ge=0, description="age before the first check of a half message", extra=LIVE)
    ] = field(default=6_000, name="transactionTimeOut")
    transaction_checks_max: Annotated[
        int, Meta(ge=1, description="checks before a half message is given up", extra=LIVE)
    ] = field(default=15, name="transactionCheckMax")
    transaction_check_interval_ms: Annotated[
        int, Meta(ge=1, description="between checks of one half message", extra=LIVE)
    ] = field(default=30_000, name="transactionCheckInterval")
    checks_in_flight_max: Annotated[
        int, Meta(ge=1, description="checks of one group that wait for their answers", extra=LIVE)
    ] = field(default=256, name="escrowChecksInFlight")
    check_answer_ms: Annotated[
        int, Meta(ge=1, description="how long to wait for the answer to a check", extra=LIVE)
    ] = field(default=5_000, name="escrowCheckAnswerMillis")
    asks_origin_first: Annotated[
        bool,
        Meta(
            description="ask the client that sent the half before others of its group", extra=LIVE
        ),
    ] = field(default=True, name="escrowAskOriginFirst")
    mute_after: Annotated[
        int,
        Meta(
            ge=0,
            description="unanswered checks after which a client is not asked for a while; 0: never",
            extra=LIVE,
        ),
    ] = field(default=3, name="escrowMuteAfter")
    mute_ms: Annotated[
        int,
        Meta(ge=1, description="how long such a client is not asked", extra=LIVE),
    ] = field(default=60_000, name="escrowMuteMillis")
    pending_max: Annotated[
        int,
        Meta(
            ge=1,
            description="maximum number of pending halves; further ones are refused",
            extra=LIVE,
        ),
    ] = field(default=2_000_000, name="escrowPendingMax")
    epoch_ms: Annotated[
        int,
        Meta(ge=1, description="how long a half of an epoch waits for the decision", extra=LIVE),
    ] = field(default=900_000, name="escrowEpochTimeout")
    half_wait_max_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="halves are refused if they waited longer than this to be read",
            extra=LIVE,
        ),
    ] = field(default=50, name="escrowHalfWaitMillis")
    send_wait_max_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="sends are refused if they waited longer than this to be read",
            extra=LIVE,
        ),
    ] = field(default=200, name="waitTimeMillsInSendQueue")
    sheds_load: Annotated[
        bool, Meta(description="refuse halves and sends that waited too long", extra=LIVE)
    ] = field(default=True, name="brokerFastFailureEnable")
    key_rotation_hours: Annotated[
        int, Meta(ge=1, description="how long a key signs transaction ids", extra=LIVE)
    ] = field(default=720, name="escrowKeyRotationHours")
    admin_from: Annotated[
        Literal["loopback", "everybody", "nobody"],
        Meta(description="who may see and settle pending transactions", extra=FIXED),
    ] = field(default="loopback", name="escrowAdmin")
    acl_enabled: Annotated[
        bool,
        Meta(description="require an account in plain_acl.yml, ACL 1.0", extra=FIXED),
    ] = field(default=False, name="aclEnable")
    acl_as_rocketmq: Annotated[
        bool,
        Meta(
            description="require no more rights than RocketMQ does, with ACL 1.0 and 2.0",
            extra=FIXED,
        ),
    ] = field(default=False, name="escrowAclAsRocketMQ")
    authenticates: Annotated[
        bool,
        Meta(description="require a user of ACL 2.0 and signed requests", extra=FIXED),
    ] = field(default=False, name="authenticationEnabled")
    authorizes: Annotated[
        bool,
        Meta(
            description="let users do only what their policies of ACL 2.0 allow",
            extra=FIXED,
        ),
    ] = field(default=False, name="authorizationEnabled")
    first_user: Annotated[
        str,
        Meta(
            description="super user that is created if missing, "
            '{"username":"...","password":"..."}',
            extra=FIXED | SECRET,
        ),
    ] = field(default="", name="initAuthenticationUser")
    inner_user: Annotated[
        str,
        Meta(
            description='the same for brokers, {"accessKey":"...","secretKey":"..."}',
            extra=FIXED | SECRET,
        ),
    ] = field(default="", name="innerClientAuthenticationCredentials")
    takes_over_accounts: Annotated[
        bool,
        Meta(description="migrate accounts in plain_acl.yml that are not users yet", extra=FIXED),
    ] = field(default=False, name="migrateAuthFromV1Enabled")
    unauthenticated: Annotated[
        str,
        Meta(
            description="request codes that need no authentication, separated by `,`", extra=FIXED
        ),
    ] = field(default="", name="authenticationWhitelist")
    unauthorized: Annotated[
        str,
        Meta(description="request codes that need no rights, separated by `,`", extra=FIXED),
    ] = field(default="", name="authorizationWhitelist")
    requests_per_s: Annotated[
        int, Meta(ge=0, description="requests a second from one address; 0: no limit", extra=LIVE)
    ] = field(default=0, name="escrowRequestsPerSecond")
    bytes_per_s: Annotated[
        int, Meta(ge=0, description="body bytes a second from one address; 0: no limit", extra=LIVE)
    ] = field(default=0, name="escrowBytesPerSecond")
    account_requests_per_s: Annotated[
        int, Meta(ge=0, description="requests a second from one account; 0: no limit", extra=LIVE)
    ] = field(default=50_000, name="escrowAccountRequestsPerSecond")
    account_bytes_per_s: Annotated[
        int,
        Meta(ge=0, description="body bytes a second from one account; 0: no limit", extra=LIVE),
    ] = field(default=134_217_728, name="escrowAccountBytesPerSecond")
    account_free_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0,
            description="body bytes a second of traces and replies from one account; 0: no limit",
            extra=LIVE,
        ),
    ] = field(default=1_048_576, name="escrowAccountFreeBytesPerSecond")
    account_pending_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="one account's share of escrowPendingMax; 0: no limit",
            extra=LIVE,
        ),
    ] = field(default=25, name="escrowAccountPendingPercent")
    account_polls_max: Annotated[
        int, Meta(ge=0, description="long polls of one account; 0: no separate limit", extra=LIVE)
    ] = field(default=25_000, name="escrowAccountPolls")
    own_signatures: Annotated[
        str,
        Meta(
            description="accounts that sign as EscrowMQ's own clients do: administrators, all, "
            "or names separated by `;`",
            extra=FIXED,
        ),
    ] = field(default="", name="escrowOwnSignatures")
    signature_window_s: Annotated[
        int,
        Meta(ge=0, description="seconds that a signed time may be off; 0: no limit", extra=LIVE),
    ] = field(default=0, name="escrowSignatureWindowSeconds")
    account_topics_max: Annotated[
        int,
        Meta(
            ge=0,
            description="topics that one account may create by sending to them; 0: no limit",
            extra=RESTART,
        ),
    ] = field(default=1_000, name="escrowAccountTopics")
    account_groups_max: Annotated[
        int,
        Meta(
            ge=0,
            description="groups that one account may create by using them; 0: no limit",
            extra=RESTART,
        ),
    ] = field(default=1_000, name="escrowAccountGroups")
    account_memberships_max: Annotated[
        int,
        Meta(
            ge=0,
            description="producer and consumer groups of one account's clients, counted once "
            "per connection; 0: no separate limit",
            extra=RESTART,
        ),
    ] = field(default=100_000, name="escrowAccountMemberships")
    account_connections_max: Annotated[
        int,
        Meta(ge=0, description="connections of one account; 0: no separate limit", extra=LIVE),
    ] = field(default=10_000, name="escrowAccountConnections")
    places_as_rocketmq: Annotated[
        bool,
        Meta(
            description="keep offsets, locks and bans of queues, topics, groups that do not exist",
            extra=LIVE,
        ),
    ] = field(default=False, name="escrowPlacesAsRocketMQ")
    preset: Annotated[
        Literal["EscrowMQ", "RocketMQ"],
        Meta(description="RocketMQ: count, send and give up checks as RocketMQ does", extra=FIXED),
    ] = field(default="EscrowMQ", name="escrowPreset")
    transaction_metrics_flush_ms: Annotated[
        int, Meta(ge=10, description="between saves of config/transactionMetrics", extra=LIVE)
    ] = field(default=3_000, name="transactionMetricFlushInterval")
    counts_all_checks: Annotated[
        bool,
        Meta(
            description="count checks that reached no client towards the limit, as RocketMQ does",
            extra=LIVE,
        ),
    ] = field(default=False, name="escrowCountUndelivered")
    has_timer: Annotated[
        bool, Meta(description="messages delivered at arbitrary times", extra=FIXED)
    ] = field(default=True, name="timerWheelEnable")
    timer_delay_max_s: Annotated[
        int, Meta(ge=1, description="the longest allowed delay", extra=LIVE)
    ] = field(default=259_200, name="timerMaxDelaySec")
    timer_precision_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=TIMER_PRECISION_MAX_MS,
            description="delivery times are rounded to a multiple of this",
            extra=FIXED,
        ),
    ] = field(default=1_000, name="timerPrecisionMs")
    allows_recall: Annotated[
        bool, Meta(description="delayed messages can be recalled", extra=LIVE)
    ] = field(default=False, name="recallMessageEnable")
    revive_queues_count: Annotated[
        int,
        Meta(
            ge=1,
            le=998,
            description="queues of the revive topic, for redelivery of popped messages",
            extra=FIXED,
        ),
    ] = field(default=8, name="reviveQueueNum")
    pop_polls_per_key_max: Annotated[
        int, Meta(ge=1, description="maximum number of pops that wait for one queue", extra=RESTART)
    ] = field(default=1024, name="popPollingSize")
    pop_polls_max: Annotated[
        int, Meta(ge=1, description="maximum number of pops that wait in total", extra=RESTART)
    ] = field(default=100_000, name="maxPopPollingSize")
    pop_init_in_memory: Annotated[
        bool,
        Meta(
            description="a new group pops from the start of a queue whose messages are all recent",
            extra=LIVE,
        ),
    ] = field(default=True, name="initPopOffsetByCheckMsgInMem")
    has_retry_topic_v2: Annotated[
        bool,
        Meta(
            description="separate group and topic in retry topics' names by +, which no group's "
            "name contains",
            extra=LIVE,
        ),
    ] = field(default=False, name="enableRetryTopicV2")
    pop_retry_first_percent: Annotated[
        int,
        Meta(ge=0, le=100, description="percentage of pops that read retries first", extra=LIVE),
    ] = field(default=20, name="popFromRetryProbability")
    request_mode: Annotated[
        str,
        Meta(description="PULL or POP, for groups for which no operator has set it", extra=RESTART),
    ] = field(default="PULL", name="defaultMessageRequestMode")
    balances_load: Annotated[
        bool, Meta(description="the broker assigns queues to clients that request it", extra=LIVE)
    ] = field(default=True, name="serverLoadBalancerEnable")
    clears_retry_topics: Annotated[
        bool,
        Meta(
            description="deleting a topic also deletes the retry topics of its popped messages",
            extra=LIVE,
        ),
    ] = field(default=True, name="clearRetryTopicWhenDeleteTopic")

    def __repr__(self) -> str:
        return f"BrokerSettings({self.name!r})"  # no password in any log
