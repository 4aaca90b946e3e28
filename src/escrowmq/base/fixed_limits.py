"""Limits that are not settings: those that peers and operators meet, and those used by more than
one package. Limits of a single package are in that package: HTTP/2's in http2/limits, a name
server's tables in registry/route_table."""

from __future__ import annotations

from typing import Final

TIMER_PRECISION_MAX_MS: Final = 1_000
"""The longest slot of a timer, in ms."""

FRAME_SIZE_MAX: Final = 16_777_216
"""Bytes of a remoting frame with its length field; RocketMQ's
com.rocketmq.remoting.frameMaxLength."""

HEADER_SIZE_MAX: Final = 262_144
"""Bytes of a command's header. The largest from real clients has PROPERTIES_SIZE_MAX of properties,
each byte of which becomes at most six in JSON. A quarter is left for all other fields."""

BATCH_MESSAGES_MAX: Final = 65_536
"""Messages of one batch. A batch of 4 MiB has fewer, even of the smallest messages that RocketMQ's
clients write, each with its key."""

BATCH_AT_ONCE_MAX: Final = 1_000
"""Messages of a batch that are stored in one turn; a longer batch is parsed in parts of
BATCH_PART_COUNT, with turns of other connections in between."""

BATCH_PART_COUNT: Final = 500

MESSAGE_KEYS_MAX: Final = 2_048
"""Keys of one message. Each is an index entry, and costs an eighth of a message without keys."""

BATCH_KEYS_MAX: Final = 65_536
"""Keys of all messages of a batch."""

KEYS_AT_ONCE_MAX: Final = 2_000
"""Keys that one connection adds in one turn."""

RUNS_SHOWN_AT_ONCE: Final = 2
"""Parts of long batches that become visible to consumers in one turn."""

UNSEEN_MAX: Final = 67_108_864
"""Bytes of records that may wait to become visible; beyond that, long batches are refused."""

REPLY_HEADER_SIZE_MAX: Final = 4_194_304
"""Bytes of the header of a broker's reply. The largest has the ids of BATCH_MESSAGES_MAX messages,
56 characters each if the broker has an IPv6 address."""

EXT_FIELDS_MAX: Final = 512
"""Header fields of one command."""

JSON_BODY_SIZE_MAX: Final = 1_048_576
"""Bytes of a client's request in JSON; the largest is a heartbeat with CONNECTION_SUBSCRIPTIONS_MAX
topics. It is parsed twice, by access control and by its handler."""

LOCKS_SIZE_MAX: Final = 262_144
"""Bytes of a request that locks or unlocks queues: some 4000 queues."""

QUESTION_SIZE_MAX: Final = 131_072
"""Bytes of a request about one topic: assignment of queues, validation of an expression."""

HALF_FRAMES_SIZE_MAX: Final = 268_435_456
"""Bytes of all incomplete frames of a server; beyond that, the oldest is dropped."""

STRANGERS_HALF_FRAMES_SIZE_MAX: Final = 67_108_864
"""Bytes of all incomplete frames of peers that have not proved an account; beyond that, the oldest
is dropped."""

STRANGERS_FRAME_SLACK: Final = 1_048_576
"""Bytes by which a stranger's frame may exceed the largest message, since an account's first
request may be the send of one."""

TOPIC_SIZE_MAX: Final = 127
"""Bytes of a topic's name; retry and dead-letter topics may have TOPIC_SIZE_MAX_LONG."""

TOPIC_SIZE_MAX_LONG: Final = 255

TOPIC_QUEUES_MAX: Final = 65_536
"""Queues of one topic; a topic's metrics are computed queue by queue."""

INT_MAX: Final = (1 << 31) - 1
"""The largest number that an int of RocketMQ holds, as in records."""

LONG_MAX: Final = (1 << 63) - 1

GROUP_SIZE_MAX: Final = 255

PROPERTIES_SIZE_MAX: Final = 32_767
"""Bytes of one message's encoded properties; a record stores the length as a signed short."""

HALF_PROPERTIES_SIZE_MAX: Final = PROPERTIES_SIZE_MAX - 256
"""Bytes of a half's encoded properties: its later copies have further ones, such as its checks."""

PULL_MESSAGES_MAX: Final = 1024
"""Messages of one pull answer, whatever the client asks for."""

ANSWERS_AHEAD_MAX: Final = 1_048_576
"""Bytes of unread answers to requests that one peer sent together. Beyond that, its other requests
wait until these are read: 36 KB of requests can ask for 25 MB."""

READS_AT_ONCE_MAX: Final = 32
"""Requests for messages that are served in one turn of a gRPC connection. Each takes at least 0.1
ms, even if it then waits."""

SERVED_AT_ONCE_MAX: Final = 32
"""Requests of any kind that a broker serves one by one in a turn of one connection: with accounts
on, a message takes 0.2 ms and more, and one read can contain 180. Requests that the fast path
serves are not counted."""

ASKED_AT_ONCE_MAX: Final = 64
"""Requests of one connection that a name server serves in a turn."""

PULL_SIZE_MAX: Final = 8_388_608
"""Bytes of one pull answer, whatever the client asks for; a larger message is sent alone."""

SEND_BUFFER_SIZE_MAX: Final = 64 * 1024 * 1024
"""Unsent bytes of one peer; beyond that, its connection is closed."""

UNSENT_SIZE_MAX: Final = 536_870_912
"""Unsent bytes of all peers of a process; beyond that, the peers with the most are disconnected."""

PULLS_HELD_MAX: Final = 100_000
"""Long polls held by one broker; beyond that, the oldest is answered immediately."""

DECOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes of a body after decompression."""

UNPACKED_SIZE_MAX: Final = DECOMPRESSED_SIZE_MAX
"""Total bytes of the bodies of one reply that the SDK's `admin` decompresses. The last body may
exceed it."""

POP_MESSAGES_MAX: Final = 32
"""Messages of one pop; RocketMQ refuses requests for more."""

ATTEMPT_ID_SIZE_MAX: Final = 255
"""Characters of the id of an orderly pop, which is kept with the queue's batch. Clients use 36."""

CHECK_POINTS_MAX: Final = 2_000_000
"""Unacknowledged pops; beyond that, nothing more is popped."""

CHECK_POINTS_OF_GROUP_MAX: Final = CHECK_POINTS_MAX // 4
"""Unacknowledged pops of one group, so that it cannot block others."""

CHECK_POINTS_OF_ACCOUNT_MAX: Final = CHECK_POINTS_MAX // 2
"""Unacknowledged pops of all groups of one account."""

CHECK_POINTS_RESERVED: Final = CHECK_POINTS_MAX // 8
"""Unacknowledged pops that are reserved for groups with few of them (delivery/pop_quotas)."""

CHECK_IMMUNITY_MAX_S: Final = 7 * 24 * 3_600
"""The longest time for which a producer may ask that its half is not checked; longer times are
shortened to this."""

PUBLISHED_TOPICS_MAX: Final = 64
"""Topics of transactional messages that are remembered for one producer."""

BUNDLE_MESSAGES_MAX: Final = 1_000
"""Messages of one transaction. One op record names them all, and one turn makes all of them
visible: some 30 us each."""

BUNDLE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of the bodies of one transaction's messages. One turn makes them visible, with all of them
in memory: some 3 ms per MiB."""

BUNDLES_REMEMBERED_MAX: Final = 100_000
"""Remembered transactions of several messages that have ended, so that no half is added to them
afterwards."""

CLIENT_ID_SIZE_MAX: Final = 1024
"""Characters of a client's id."""

WAITING_REQUESTS_MAX: Final = 65_536
"""Remembered requests that wait for another client's reply, each with the account that sent it."""

CONNECTION_GROUPS_MAX: Final = 4096
"""Producer and consumer groups of which one connection may be a member."""

CONNECTION_SUBSCRIPTIONS_MAX: Final = 4096
"""Topics that one connection may subscribe to, all its groups together."""

CONNECTION_SUBSCRIPTIONS_SIZE_MAX: Final = 4_194_304
"""Bytes of memory of the subscriptions of one connection, all its groups together. 4096 without
tags take a quarter of that."""

SUBSCRIPTION_SIZE_MAX: Final = 16_384
"""Characters of one subscription: its topic, its expression and its tags."""

SQL_TOKENS_MAX: Final = 2_000
"""Names, numbers, signs and words of one SQL92 expression: compiling one takes 10 µs."""

SELECTORS_SIZE_MAX: Final = 262_144
"""Characters of cached compiled expressions; a compiled one takes some 70 times its own size."""

HEARTBEAT_SQL_SIZE_MAX: Final = 65_536
"""Characters of all SQL92 expressions of one heartbeat: compiling takes 3 µs per character."""

RELEASED_AT_ONCE_MAX: Final = 500
"""Long polls answered in one turn, some 6 ms."""

RELEASED_SIZE_MAX: Final = PULL_SIZE_MAX
"""Bytes of the answers to long polls in one turn; beyond that the turn ends, so that sockets can be
written."""

CROWD_ARRIVALS_MAX: Final = 1_000
"""New messages of one queue that are remembered while its long polls are answered over several
turns."""

NOTIFIED_AT_ONCE_MAX: Final = 1_000
"""Members of groups notified of a change in one turn, some 3 ms."""

MEMBERSHIPS_MAX: Final = 1_000_000
"""Group memberships of all connections; a group counts once per connection."""

AUTO_CREATE_GROUPS_MAX: Final = 100_000
"""Consumer groups; above this number none is created by its first use, but an operator may create
more."""

GROUPS_AT_ONCE_MAX: Final = 200
"""Groups that one heartbeat creates, some 10 ms; the next heartbeat creates more."""

AUTO_CREATE_TOPICS_MAX: Final = 100_000
"""Topics; above this number none is created by its first message, but an operator may create
more."""

POP_RETRY_TOPICS_OF_ACCOUNT_MAX: Final = AUTO_CREATE_TOPICS_MAX // 4
"""Retry topics, each of one group for one popped topic, of the groups that one account has created
by using them."""

QUEUE_LOCKS_MAX: Final = 1_000_000
"""Queues held by orderly consumers."""

QUEUE_LOCKS_OF_ACCOUNT_MAX: Final = QUEUE_LOCKS_MAX // 4
"""Queues held by orderly consumers of one account."""

OFFSETS_MAX: Final = 1_000_000
"""Offsets of groups in queues."""

OFFSETS_OF_ACCOUNT_MAX: Final = OFFSETS_MAX // 4
"""Offsets of the groups that one account has created by using them."""

TIMER_PENDING_MAX: Final = 20_000_000
"""Messages with a delivery time that wait for it."""

TIMER_PENDING_OF_TOPIC_MAX: Final = TIMER_PENDING_MAX // 2
"""Those of one topic."""

TIMER_PENDING_RESERVED: Final = TIMER_PENDING_MAX // 8
"""Of TIMER_PENDING_MAX, those for topics with few."""

TIMER_RECALLS_MAX: Final = 1_000_000
"""Recalls that wait for the time of their message."""

TIMER_RECALLS_OF_TOPIC_MAX: Final = TIMER_RECALLS_MAX // 2
"""Those of one topic."""

POPPED_TOPICS_MAX: Final = 100_000
"""Topics recently popped by groups, as shown to operators."""

POPPED_SIZE_MAX: Final = 67_108_864
"""Bytes of memory of the subscriptions of groups that popped recently, as shown to operators."""

POPPERS_MAX: Final = 100_000
"""Connections that popped recently, counted once per group, as shown to operators."""

SETTINGS_TEXT_SIZE_MAX: Final = 262_144
"""Characters of a settings file, or of a request that changes settings."""

BROKER_SILENT_MS: Final = 120_000
"""After this silence a name server removes a broker that has not set another timeout
(heartbeatTimeoutMillis). Our own brokers set this one."""

FRAME_TIME_MAX_MS: Final = 60_000
"""Time to complete a frame, counted from the scan that finds it incomplete. Then its sender is
disconnected."""

ACL_FILE_SIZE_MAX: Final = 1_048_576
"""Bytes of one file of accounts."""

ACL_FILES_MAX: Final = 256
"""Files of accounts."""

ACL_FOLDERS_DEPTH_MAX: Final = 8
"""Depth of folders searched for files of accounts."""

REASON_SIZE_MAX: Final = 1_000
"""Characters of an operator's reason, which is stored with the end of a transaction."""

EPOCH_QUERIES_MAX: Final = 10_000
"""Queries of one producer group whose last decision is remembered."""

EPOCH_UNNAMED_MAX: Final = 1_000
"""Writes of one producer group without a name, and decisions for no token, that are remembered."""

EPOCH_TOKENS_KEPT_MAX: Final = 262_144
"""Tokens in the remembered decisions of one producer group: some 40 MiB of memory."""

EPOCH_QUERIES_TOTAL_MAX: Final = 50_000
"""Queries of all groups whose last decision is remembered."""

EPOCH_TOKENS_MAX: Final = 4096
"""Attempts (tokens) that one decision names."""

TRUSTED_ADDRESSES_MAX: Final = 256
"""Patterns of addresses that may change a name server."""

QUERY_FRAME_SIZE_MAX: Final = HEADER_SIZE_MAX + 65_536
"""Bytes of a frame of a peer that may only request routes from a name server; such requests have no
body."""

AUTH_USERS_MAX: Final = 100_000
"""Users of ACL 2.0. Each change writes the whole file, which takes less than a second with 50,000
users."""

AUTH_ENTRIES_MAX: Final = 1_000
"""Entries of one user's policies of one type."""

AUTH_SOURCES_MAX: Final = 64
"""Addresses of one entry."""

AUTH_NAME_SIZE_MAX: Final = 255
"""Characters of a user's name and of a resource's."""

AUTH_PASSWORD_SIZE_MAX: Final = 1_024
"""Characters of a user's password."""

AUTH_FILE_SIZE_MAX: Final = 67_108_864
"""Bytes of the file of users and policies."""

RATED_CLIENTS_MAX: Final = 100_000
"""Addresses whose request rates are remembered. Beyond that, the one silent for longest is
forgotten."""

HELD_PER_PEER_MAX: Final = 10_000
"""Long polls of one connection; beyond that, its oldest is answered immediately."""

GRPC_MESSAGE_SIZE_MAX: Final = 16_777_216
"""Bytes of one message of a gRPC call, as of a remoting frame."""

GRPC_PARTIAL_SIZE_MAX: Final = 67_108_864
"""Bytes of all incomplete messages of a connection; beyond that, the call whose bytes came last is
refused."""

GRPC_KEPT_SIZE_MAX: Final = 268_435_456
"""Bytes of incomplete or unread messages of all gRPC connections; beyond that, the connection that
began first is closed."""

STRANGERS_CALLS_SIZE_MAX: Final = 33_554_432
"""Bytes of the open calls of all gRPC connections without a proved account, mostly header fields;
beyond that, the connection with the most is closed."""

GRPC_PROPERTIES_MAX: Final = 128
"""User properties of a gRPC message, as in RocketMQ's proxy."""

GRPC_PROPERTIES_SIZE_MAX: Final = 16_384
"""Bytes of a gRPC message's user properties, tag and keys together."""

GRPC_RECOVERY_MAX_S: Final = 3_600
"""The longest delay of a half's first check."""

GRPC_DELAY_MAX_MS: Final = 86_400_000
"""The longest delay of a message."""

MESSAGE_GROUP_SIZE_MAX: Final = 64
"""Bytes of a message group's name."""

GRPC_MESSAGES_MAX: Final = 1_024
"""Messages of one call, some 20 ms."""

RUN_SIZE_MAX: Final = 4_194_304
"""Bytes of bodies of a front's plain messages that are collected before they are written."""

GRPC_UNPACKED_SIZE_MAX: Final = 8_388_608
"""Bytes of compressed bodies decompressed for one call, some 25 ms."""

GRPC_CLIENTS_OF_STRANGER_MAX: Final = 16
"""Clients on a connection without a proved account."""

GRPC_ACKS_MAX: Final = 4_096
"""Acks of one call."""

GRPC_CLIENTS_MAX: Final = 100_000
"""Clients of a front, each by its id, account and address."""

GRPC_SETTINGS_SIZE_MAX: Final = 262_144
"""Bytes of a gRPC client's settings, which are stored as long as it is connected."""

GRPC_SETTINGS_KEPT_SIZE_MAX: Final = 268_435_456
"""Bytes of the settings of all gRPC clients; beyond that, new ones are refused."""

GRPC_ENDPOINTS_SIZE_MAX: Final = 8_192
"""Bytes of the addresses that a gRPC client was given: 16 addresses with the longest host names,
and some reserve."""

HOST_NAME_SIZE_MAX: Final = 255
"""Characters of a host name, as in DNS."""

GRPC_CLIENTS_OF_CONNECTION_MAX: Final = 1_000
"""Clients that share a connection, as those of one process do in some languages."""
