"""Settings, in tables: each with RocketMQ's key, its default, bounds and effect.

RocketMQ's keys are the encoded names of the fields, so `broker.conf` can be used unchanged. Times
are in RocketMQ's units (ms unless the text says otherwise)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from escrowmq.base.message import Topic
from escrowmq.base.setting_facts import FIXED, LIVE, RESTART, SECRET

_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class StoreSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How messages are kept (RocketMQ's MessageStoreConfig)."""

    is_sync_flush: Annotated[bool, Meta(extra=FIXED)] = False
    """flushDiskType=SYNC_FLUSH: answer after the record is durable; read by node/config."""

    log_segment_size: Annotated[
        int,
        Meta(
            ge=4096,
            description="bytes of a commit-log file; never change it on a store",
            extra=FIXED,
        ),
    ] = field(default=1_073_741_824, name="mappedFileSizeCommitLog")
    queue_segment_size: Annotated[
        int, Meta(ge=20, description="bytes of a consume-queue file, rounded up to 20", extra=FIXED)
    ] = field(default=6_000_000, name="mappedFileSizeConsumeQueue")
    index_slots_count: Annotated[
        int, Meta(ge=1, description="hash slots of an index file", extra=FIXED)
    ] = field(default=5_000_000, name="maxHashSlotNum")
    index_entries_max: Annotated[
        int, Meta(ge=2, description="entries of an index file", extra=FIXED)
    ] = field(default=20_000_000, name="maxIndexNum")
    has_index: Annotated[bool, Meta(description="keep an index of message keys", extra=FIXED)] = (
        field(default=True, name="messageIndexEnable")
    )
    query_messages_max: Annotated[
        int, Meta(ge=1, description="messages of one query", extra=LIVE)
    ] = field(default=64, name="maxMsgsNumBatch")
    body_size_max: Annotated[
        int, Meta(ge=1, description="bytes of a message body", extra=RESTART)
    ] = field(default=4_194_304, name="maxMessageSize")
    flush_interval_ms: Annotated[
        int, Meta(ge=1, description="between background flushes", extra=RESTART)
    ] = field(default=500, name="flushIntervalCommitLog")
    flush_thorough_ms: Annotated[
        int, Meta(ge=1, description="everything is flushed this often", extra=RESTART)
    ] = field(default=10_000, name="flushCommitLogThoroughInterval")
    flush_pages_min: Annotated[
        int, Meta(ge=0, description="4 KiB pages worth a flush", extra=RESTART)
    ] = field(default=4, name="flushCommitLogLeastPages")
    queue_flush_interval_ms: Annotated[
        int,
        Meta(ge=1, description="between flushes of consume queues and checkpoint", extra=RESTART),
    ] = field(default=1_000, name="flushIntervalConsumeQueue")
    sync_timeout_ms: Annotated[
        int,
        Meta(ge=1, description="SYNC_FLUSH: answered FLUSH_DISK_TIMEOUT after this", extra=LIVE),
    ] = field(default=5_000, name="syncFlushTimeout")
    checks_crc_on_recovery: Annotated[
        bool, Meta(description="check body CRCs when a store is opened", extra=RESTART)
    ] = field(default=True, name="checkCRCOnRecover")
    appends_crc: Annotated[
        bool,
        Meta(description="append the record CRC property (__CRC32#) to each message", extra=FIXED),
    ] = field(default=False, name="enabledAppendPropCRC")
    delete_when: Annotated[
        str, Meta(description="hours of clean-up, two digits, `;` between", extra=LIVE)
    ] = field(default="04", name="deleteWhen")
    reserved_hours: Annotated[
        int, Meta(ge=1, description="hours that a file is kept", extra=LIVE)
    ] = field(default=72, name="fileReservedTime")
    disk_used_max_percent: Annotated[
        int, Meta(ge=10, le=95, description="files are deleted above this disk usage", extra=LIVE)
    ] = field(default=75, name="diskMaxUsedSpaceRatio")
    disk_warning_percent: Annotated[
        int, Meta(ge=35, le=99, description="writes are refused above this disk usage", extra=LIVE)
    ] = field(default=90, name="diskSpaceWarningLevelRatio")
    disk_forcible_percent: Annotated[
        int,
        Meta(
            ge=30, le=99, description="files are deleted regardless of age above this", extra=LIVE
        ),
    ] = field(default=85, name="diskSpaceCleanForciblyRatio")
    deletes_forcibly: Annotated[
        bool, Meta(description="delete young files when the disk is nearly full", extra=LIVE)
    ] = field(default=True, name="cleanFileForciblyEnable")
    delete_files_max: Annotated[
        int, Meta(ge=1, description="files deleted in one round", extra=LIVE)
    ] = field(default=10, name="deleteFileBatchMax")
    clean_interval_ms: Annotated[
        int, Meta(ge=10, description="between rounds of clean-up", extra=LIVE)
    ] = field(default=10_000, name="cleanResourceInterval")
    read_count_max: Annotated[
        int, Meta(ge=1, description="messages of one pull from recent data", extra=LIVE)
    ] = field(default=32, name="maxTransferCountOnMessageInMemory")
    read_size_max: Annotated[
        int, Meta(ge=1, description="bytes of one pull from recent data", extra=LIVE)
    ] = field(default=262_144, name="maxTransferBytesOnMessageInMemory")
    read_old_count_max: Annotated[
        int, Meta(ge=1, description="messages of one pull from old data", extra=LIVE)
    ] = field(default=8, name="maxTransferCountOnMessageInDisk")
    read_old_size_max: Annotated[
        int, Meta(ge=1, description="bytes of one pull from old data", extra=LIVE)
    ] = field(default=65_536, name="maxTransferBytesOnMessageInDisk")
    memory_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="share of RAM whose worth of log counts as recent",
            extra=RESTART,
        ),
    ] = field(default=40, name="accessMessageInMemoryMaxRatio")
    filter_scan_size: Annotated[
        int,
        Meta(ge=20, description="bytes of consume queue scanned by one filtering pull", extra=LIVE),
    ] = field(default=16_000, name="maxFilterMessageSize")
    delay_levels: Annotated[
        str, Meta(description="spans of the delay levels, s m h d", extra=FIXED)
    ] = field(default=_DELAY_LEVELS, name="messageDelayLevel")
    reserve_size: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes of log kept for settling transactions on a full disk",
            extra=RESTART,
        ),
    ] = field(default=16_777_216, name="escrowReserveBytes")
    memory_size: Annotated[int, Meta(extra=FIXED)] = 8 * 1024**3
    """RAM of the machine in bytes; read by node/config."""


class BrokerSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How the broker behaves (RocketMQ's BrokerConfig)."""

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
    name_servers: Annotated[str, Meta(description="name servers, `;` between", extra=FIXED)] = (
        field(default="", name="namesrvAddr")
    )
    register_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=60_000,
            description="ms between registrations at the name servers",
            extra=LIVE,
        ),
    ] = field(default=30_000, name="registerNameServerPeriod")
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
            description="a topic of the cluster's name, from which others can be made",
            extra=RESTART,
        ),
    ] = field(default=True, name="clusterTopicEnable")
    has_broker_topic: Annotated[
        bool,
        Meta(
            description="a topic of the broker's name, from which others can be made", extra=RESTART
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
        bool, Meta(description="topics of message.type=MIXED may be made", extra=LIVE)
    ] = field(default=False, name="enableMixedMessageType")
    protects_system_topics: Annotated[
        bool, Meta(description="topics of the broker's own cannot be changed", extra=LIVE)
    ] = field(default=True, name="validateSystemTopicWhenUpdateTopic")
    rejects_unknown_pulls: Annotated[
        bool, Meta(description="only members of a group pull", extra=LIVE)
    ] = field(default=False, name="rejectPullConsumerEnable")
    channel_idle_ms: Annotated[
        int, Meta(ge=1_000, description="clients silent for this go", extra=LIVE)
    ] = field(default=120_000, name="channelExpiredTimeout")
    offsets_flush_ms: Annotated[
        int, Meta(ge=10, description="between saves of offsets", extra=LIVE)
    ] = field(default=5_000, name="flushConsumerOffsetInterval")
    resets_offsets_here: Annotated[
        bool,
        Meta(description="reset offsets at the broker instead of asking the clients", extra=LIVE),
    ] = field(default=True, name="useServerSideResetOffset")
    stores_replies: Annotated[
        bool, Meta(description="replies are kept as messages, too", extra=LIVE)
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
        int, Meta(ge=1, description="messages of a query by unique key", extra=LIVE)
    ] = field(default=32, name="defaultQueryMaxNum")
    accepts_sends_from_ms: Annotated[
        int, Meta(ge=0, description="no messages are accepted before this time", extra=LIVE)
    ] = field(default=0, name="startAcceptSendRequestTimeStamp")
    rejects_transactions: Annotated[bool, Meta(description="take no halves", extra=LIVE)] = field(
        default=False, name="rejectTransactionMessage"
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
        int, Meta(ge=1, description="a check without an answer for this long is over", extra=LIVE)
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
            ge=0, description="checks without answer that make a client rest; 0: never", extra=LIVE
        ),
    ] = field(default=3, name="escrowMuteAfter")
    mute_ms: Annotated[
        int,
        Meta(ge=1, description="how long a client that does not answer is not asked", extra=LIVE),
    ] = field(default=60_000, name="escrowMuteMillis")
    pending_max: Annotated[
        int, Meta(ge=1, description="pending halves; beyond, new ones are refused", extra=LIVE)
    ] = field(default=2_000_000, name="escrowPendingMax")
    epoch_ms: Annotated[
        int,
        Meta(ge=1, description="how long a half of an epoch waits for the decision", extra=LIVE),
    ] = field(default=900_000, name="escrowEpochTimeout")
    half_wait_max_ms: Annotated[
        int, Meta(ge=1, description="halves that waited longer to be read are refused", extra=LIVE)
    ] = field(default=50, name="escrowHalfWaitMillis")
    send_wait_max_ms: Annotated[
        int, Meta(ge=1, description="sends that waited longer to be read are refused", extra=LIVE)
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
        Meta(description="with ACL 1.0 and 2.0, leave open what RocketMQ leaves open", extra=FIXED),
    ] = field(default=False, name="escrowAclAsRocketMQ")
    authenticates: Annotated[
        bool,
        Meta(description="require a user of ACL 2.0 and signed requests", extra=FIXED),
    ] = field(default=False, name="authenticationEnabled")
    authorizes: Annotated[
        bool,
        Meta(
            description="let users do what their policies of ACL 2.0 allow, nothing else",
            extra=FIXED,
        ),
    ] = field(default=False, name="authorizationEnabled")
    first_user: Annotated[
        str,
        Meta(
            description='super user made when absent, {"username":"...","password":"..."}',
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
        Meta(
            description="make users of the accounts in plain_acl.yml that are none yet", extra=FIXED
        ),
    ] = field(default=False, name="migrateAuthFromV1Enabled")
    unauthenticated: Annotated[
        str,
        Meta(description="codes of requests of which no user is asked, `,` between", extra=FIXED),
    ] = field(default="", name="authenticationWhitelist")
    unauthorized: Annotated[
        str,
        Meta(
            description="codes of requests of which no rights are asked, `,` between", extra=FIXED
        ),
    ] = field(default="", name="authorizationWhitelist")
    requests_per_s: Annotated[
        int, Meta(ge=0, description="requests a second of one address; 0: any number", extra=LIVE)
    ] = field(default=0, name="escrowRequestsPerSecond")
    bytes_per_s: Annotated[
        int, Meta(ge=0, description="bytes of bodies a second of one address; 0: any", extra=LIVE)
    ] = field(default=0, name="escrowBytesPerSecond")
    account_requests_per_s: Annotated[
        int, Meta(ge=0, description="requests a second of one account; 0: any number", extra=LIVE)
    ] = field(default=50_000, name="escrowAccountRequestsPerSecond")
    account_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0, description="bytes of bodies a second of one account; 0: any number", extra=LIVE
        ),
    ] = field(default=134_217_728, name="escrowAccountBytesPerSecond")
    account_free_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0, description="of these, of traces and of replies to requests; 0: any", extra=LIVE
        ),
    ] = field(default=1_048_576, name="escrowAccountFreeBytesPerSecond")
    account_pending_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="one account's share of escrowPendingMax; 0: no bound",
            extra=LIVE,
        ),
    ] = field(default=25, name="escrowAccountPendingPercent")
    account_polls_max: Annotated[
        int, Meta(ge=0, description="long polls of one account; 0: no bound of its own", extra=LIVE)
    ] = field(default=25_000, name="escrowAccountPolls")
    own_signatures: Annotated[
        str,
        Meta(
            description="accounts that sign as EscrowMQ's own clients do: administrators, all, or "
            "names, `;` between",
            extra=FIXED,
        ),
    ] = field(default="", name="escrowOwnSignatures")
    signature_window_s: Annotated[
        int, Meta(ge=0, description="seconds that a signed time may be off; 0: any", extra=LIVE)
    ] = field(default=0, name="escrowSignatureWindowSeconds")
    account_topics_max: Annotated[
        int,
        Meta(
            ge=0,
            description="topics that one account makes by sending to them; 0: no bound",
            extra=RESTART,
        ),
    ] = field(default=1_000, name="escrowAccountTopics")
    account_groups_max: Annotated[
        int,
        Meta(
            ge=0,
            description="groups that one account makes by using them; 0: no bound",
            extra=RESTART,
        ),
    ] = field(default=1_000, name="escrowAccountGroups")
    account_memberships_max: Annotated[
        int,
        Meta(
            ge=0,
            description="producer and consumer groups of one account's clients, each counted once "
            "a connection; 0: no bound of its own",
            extra=RESTART,
        ),
    ] = field(default=100_000, name="escrowAccountMemberships")
    account_connections_max: Annotated[
        int,
        Meta(ge=0, description="connections of one account; 0: no bound of its own", extra=LIVE),
    ] = field(default=10_000, name="escrowAccountConnections")
    places_as_rocketmq: Annotated[
        bool,
        Meta(
            description="keep offsets and bans of queues, topics and groups that are not there",
            extra=LIVE,
        ),
    ] = field(default=False, name="escrowPlacesAsRocketMQ")
    preset: Annotated[
        Literal["EscrowMQ", "RocketMQ"],
        Meta(description="RocketMQ: checks are counted, sent and given up as there", extra=FIXED),
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
        int, Meta(ge=100, le=1_000, description="delivery times are rounded to this", extra=FIXED)
    ] = field(default=1_000, name="timerPrecisionMs")
    allows_recall: Annotated[
        bool, Meta(description="delayed messages can be recalled", extra=LIVE)
    ] = field(default=False, name="recallMessageEnable")
    revive_queues_count: Annotated[
        int, Meta(ge=1, le=998, description="queues of what pops are to see again", extra=FIXED)
    ] = field(default=8, name="reviveQueueNum")
    pop_polls_per_key_max: Annotated[
        int, Meta(ge=1, description="pops that wait for one queue", extra=RESTART)
    ] = field(default=1024, name="popPollingSize")
    pop_polls_max: Annotated[
        int, Meta(ge=1, description="pops that wait at all", extra=RESTART)
    ] = field(default=100_000, name="maxPopPollingSize")
    pop_init_in_memory: Annotated[
        bool,
        Meta(
            description="a new group pops from the start of a queue that is all in memory",
            extra=LIVE,
        ),
    ] = field(default=True, name="initPopOffsetByCheckMsgInMem")
    has_retry_topic_v2: Annotated[
        bool,
        Meta(
            description="names of retry topics of pops with a +, which no group's name has",
            extra=LIVE,
        ),
    ] = field(default=False, name="enableRetryTopicV2")
    pop_retry_first_percent: Annotated[
        int,
        Meta(ge=0, le=100, description="percentage of pops that read retries first", extra=LIVE),
    ] = field(default=20, name="popFromRetryProbability")
    request_mode: Annotated[
        str, Meta(description="PULL or POP, where an operator has set none", extra=RESTART)
    ] = field(default="PULL", name="defaultMessageRequestMode")
    balances_load: Annotated[
        bool, Meta(description="the broker shares out queues to clients that ask it to", extra=LIVE)
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
