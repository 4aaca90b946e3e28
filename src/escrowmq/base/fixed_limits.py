"""Bounds that are no settings, by name: what peers and operators meet, and what more than one room
goes by. A bound of one room alone stands there: HTTP/2's in http2/limits, how many brokers and
topics a name server knows in registry/route_table.
"""

from __future__ import annotations

from typing import Final

FRAME_SIZE_MAX: Final = 16_777_216
"""A remoting frame with its length field; RocketMQ's com.rocketmq.remoting.frameMaxLength."""

HEADER_SIZE_MAX: Final = 262_144
"""A command's header. The largest that a real client writes has PROPERTIES_SIZE_MAX of properties,
each byte of them six in JSON at worst; a quarter is left for all other fields."""

BATCH_MESSAGES_MAX: Final = 65_536
"""Messages of one batch: of the smallest that RocketMQ's clients write, each with its key, the
4 MiB of a batch hold fewer."""

BATCH_AT_ONCE_MAX: Final = 1_000
"""Messages of a batch that is stored in one turn; a longer one is read in parts of
BATCH_PART_COUNT, and others have their turn in between."""

BATCH_PART_COUNT: Final = 500

MESSAGE_KEYS_MAX: Final = 2_048
"""Keys of one message. Each is an entry of the index, and costs an eighth of what a message costs
that has none."""

BATCH_KEYS_MAX: Final = 65_536
"""Keys of all messages of a batch."""

KEYS_AT_ONCE_MAX: Final = 2_000
"""Keys that one connection adds before it is the others' turn."""

RUNS_SHOWN_AT_ONCE: Final = 2
"""Parts of long batches that are shown to consumers in one turn."""

UNSEEN_MAX: Final = 67_108_864
"""Bytes of records that may wait to be shown to consumers; beyond, no long batch is taken."""

REPLY_HEADER_SIZE_MAX: Final = 4_194_304
"""The header of what a broker says to a client. The largest names BATCH_MESSAGES_MAX messages by
their ids, of 56 characters each where the broker has an IPv6 address."""

EXT_FIELDS_MAX: Final = 512
"""Header fields of one command."""

JSON_BODY_SIZE_MAX: Final = 1_048_576
"""Bytes of a client's request in JSON; the largest is a heartbeat, of CONNECTION_SUBSCRIPTIONS_MAX
topics. It is read twice, by the door and by its handler."""

LOCKS_SIZE_MAX: Final = 262_144
"""Bytes of a request that locks queues, or lets them go: some 4000 queues."""

QUESTION_SIZE_MAX: Final = 131_072
"""Bytes of a question about one topic: who reads which queues, whether an expression is right."""

HALF_FRAMES_SIZE_MAX: Final = 268_435_456
"""Bytes of all frames of a server that have begun and are not whole yet; beyond, the one that
began first is given up."""

STRANGERS_HALF_FRAMES_SIZE_MAX: Final = 67_108_864
"""The same for those of peers who have not proved yet who they are."""

STRANGERS_FRAME_SLACK: Final = 1_048_576
"""A stranger's frame may have the largest message, which may be the first that an account sends
on a connection, and so much more."""

TOPIC_SIZE_MAX: Final = 127
"""Bytes of a topic's name; retry and dead-letter topics may have TOPIC_SIZE_MAX_LONG."""

TOPIC_SIZE_MAX_LONG: Final = 255

TOPIC_QUEUES_MAX: Final = 65_536
"""Queues of one topic; figures of a topic are worked out queue by queue."""

INT_MAX: Final = (1 << 31) - 1
"""The largest number that RocketMQ's ints hold, and those of a record."""

LONG_MAX: Final = (1 << 63) - 1

GROUP_SIZE_MAX: Final = 255

PROPERTIES_SIZE_MAX: Final = 32_767
"""Encoded properties of one message; the record keeps the length in a signed short."""

PULL_MESSAGES_MAX: Final = 1024
"""Messages of one pull answer, whatever the client asks for."""

ANSWERS_AHEAD_MAX: Final = 1_048_576
"""Bytes of answers to requests that came together; beyond, the rest of these waits until they are
read: 36 KB of requests can ask for 25 MB."""

READS_AT_ONCE_MAX: Final = 32
"""Requests for messages of one connection that are served before it is the others' turn; each takes
0.1 ms and more, also when it then waits."""

ASKED_AT_ONCE_MAX: Final = 64
"""Requests of one connection that a name server serves before it is the others' turn."""

PULL_SIZE_MAX: Final = 8_388_608
"""Bytes of one pull answer, whatever the client asks for; a larger message comes alone."""

SEND_BUFFER_SIZE_MAX: Final = 64 * 1024 * 1024
"""Unsent bytes of one peer that does not read; beyond, its connection is closed."""

UNSENT_SIZE_MAX: Final = 536_870_912
"""Unsent bytes of all peers of a process; beyond, those that have the most are cut."""

PULLS_HELD_MAX: Final = 100_000
"""Long polls held by one broker; beyond, the oldest is answered at once."""

DECOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
"""A body after decompression."""

UNPACKED_SIZE_MAX: Final = DECOMPRESSED_SIZE_MAX
"""Bodies of one reply that the SDK's `admin` unpacks, all together, but for the last of them."""

POP_MESSAGES_MAX: Final = 32
"""Messages of one pop; RocketMQ refuses to be asked for more."""

CHECK_POINTS_MAX: Final = 2_000_000
"""Pops that are not acknowledged; beyond, nothing more is handed out."""

CHECK_POINTS_OF_GROUP_MAX: Final = CHECK_POINTS_MAX // 4
"""The same for one group, so that others can pop whatever it does."""

PUBLISHED_TOPICS_MAX: Final = 64
"""Topics of transactional messages that are remembered of one producer."""

INDEX_KEYS_HELD_MAX: Final = 20_000
"""Index entries that wait in memory for room on the disk when a broker starts."""

BUNDLE_MESSAGES_MAX: Final = 1_000
"""Messages of one transaction; one op record names them all, and one turn of the loop makes all of
them visible: some 30 us each."""

BUNDLE_SIZE_MAX: Final = 16 * 1024 * 1024
"""The same in bytes of their bodies: some 3 ms of that turn for a MiB. They are in memory together
then."""

BUNDLES_REMEMBERED_MAX: Final = 100_000
"""Transactions of several messages whose end is remembered, so that no half joins them late."""

CLIENT_ID_SIZE_MAX: Final = 1024
"""Characters of a client's id."""

ASKED_MAX: Final = 65_536
"""Requests that wait for another client's reply, and are remembered with whose they are."""

CONNECTION_GROUPS_MAX: Final = 4096
"""Producer and consumer groups that one connection may be a member of."""

CONNECTION_SUBSCRIPTIONS_MAX: Final = 4096
"""Topics that one connection may subscribe to, all its groups together."""

SUBSCRIPTION_SIZE_MAX: Final = 16_384
"""Characters of one subscription: its topic, its expression and its tags."""

SQL_TOKENS_MAX: Final = 2_000
"""Names, numbers, signs and words of one SQL92 expression: to compile one takes 10 µs."""

SELECTORS_SIZE_MAX: Final = 262_144
"""Characters of the expressions that are kept compiled; one takes some 70 times its own size."""

HEARTBEAT_SQL_SIZE_MAX: Final = 65_536
"""Characters of all SQL92 expressions of one heartbeat: to compile them takes 3 µs each."""

RELEASED_AT_ONCE_MAX: Final = 500
"""Long polls that are answered in one go, some 6 ms; then it is the others' turn."""

RELEASED_SIZE_MAX: Final = PULL_SIZE_MAX
"""Bytes of the answers to these; then it is the others' turn as well, and that of the sockets."""

CROWD_ARRIVALS_MAX: Final = 1_000
"""Messages of one queue that wait until all who wait for them have been answered."""

NOTIFIED_AT_ONCE_MAX: Final = 1_000
"""Members of groups that are told of a change in one go, some 3 ms; the others' turn comes."""

MEMBERSHIPS_MAX: Final = 1_000_000
"""Groups of all connections together, each counted once a connection."""

GROUPS_MAX: Final = 100_000
"""Consumer groups up to which one is created by its first use; an operator may create more."""

GROUPS_AT_ONCE_MAX: Final = 200
"""Groups that one heartbeat creates, some 10 ms; the next one creates more."""

TOPICS_MAX: Final = 100_000
"""Topics up to which one is created by its first message; an operator may create more."""

QUEUE_LOCKS_MAX: Final = 1_000_000
"""Queues held by orderly consumers."""

POPPED_TOPICS_MAX: Final = 100_000
"""Topics that groups have popped from lately, as operators are shown them."""

POPPERS_MAX: Final = 100_000
"""Connections that have popped lately, counted once a group, as operators are shown them."""

SETTINGS_TEXT_SIZE_MAX: Final = 262_144
"""Characters of a settings file, or of a request that changes settings."""

HEARTBEAT_TIMEOUT_MS: Final = 120_000
"""A broker that was silent for so long is gone, to a name server that it has not told otherwise
(heartbeatTimeoutMillis). Our own brokers tell it this."""

FRAME_TIME_MAX_MS: Final = 60_000
"""From the look that finds a frame begun until it must be whole; then its sender is cut off."""

ACL_FILE_SIZE_MAX: Final = 1_048_576
"""Bytes of one file of accounts."""

ACL_FILES_MAX: Final = 256
"""Files of accounts."""

ACL_FOLDERS_DEPTH_MAX: Final = 8
"""Folders within folders in which files of accounts are looked for."""

EPOCH_QUERIES_MAX: Final = 10_000
"""Queries of which the last decision is remembered."""

EPOCH_TOKENS_MAX: Final = 4096
"""Attempts that one decision names."""

TRUSTED_ADDRESSES_MAX: Final = 256
"""Patterns of addresses from which a name server may be changed."""

QUERY_FRAME_SIZE_MAX: Final = HEADER_SIZE_MAX + 65_536
"""A frame of who may only ask a name server for routes: no such request has a body."""

AUTH_USERS_MAX: Final = 10_000
"""Users of ACL 2.0."""

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
"""Addresses whose rates are remembered; beyond, the one that was silent for longest begins anew."""

HELD_PER_PEER_MAX: Final = 10_000
"""Long polls of one connection; beyond, its oldest is answered at once."""

GRPC_MESSAGE_SIZE_MAX: Final = 16_777_216
"""Bytes of one message of a gRPC call, as those of a remoting frame."""

GRPC_PARTIAL_SIZE_MAX: Final = 67_108_864
"""Bytes of all messages of a connection that have begun and are not whole yet; beyond, the call
whose bytes came last is refused."""

GRPC_KEPT_SIZE_MAX: Final = 268_435_456
"""Bytes of messages of all gRPC connections that are not whole yet, or that nobody takes; beyond,
the connection that began first is given up."""

STRANGERS_CALLS_SIZE_MAX: Final = 33_554_432
"""Bytes of the open calls of all gRPC connections whose peers have not proved yet who they are,
their header fields above all; beyond, the connection that has the most is given up."""

GRPC_PROPERTIES_MAX: Final = 128
"""User properties of a message that comes by gRPC, as at RocketMQ's proxy."""

GRPC_PROPERTIES_SIZE_MAX: Final = 16_384
"""Bytes of its user properties, tag and keys together."""

GRPC_RECOVERY_MAX_S: Final = 3_600
"""For so long at most a client may want a half of its left alone."""

GRPC_DELAY_MAX_MS: Final = 86_400_000
"""So far ahead at most a message may be delivered."""

MESSAGE_GROUP_SIZE_MAX: Final = 64
"""Bytes of a message group's name."""

GRPC_MESSAGES_MAX: Final = 1_024
"""Messages of one call, some 20 ms."""

RUN_SIZE_MAX: Final = 4_194_304
"""Bytes of bodies of a front's plain messages that are gathered before they are written."""

GRPC_UNPACKED_SIZE_MAX: Final = 8_388_608
"""Bytes of compressed bodies that are unpacked for one call, some 25 ms."""

GRPC_CLIENTS_OF_STRANGER_MAX: Final = 16
"""Clients on a connection of which none has proved yet who it is."""

GRPC_ACKS_MAX: Final = 4_096
"""Acks of one call."""

GRPC_CLIENTS_MAX: Final = 100_000
"""Clients of a front, each by its id, account and address."""

GRPC_CLIENTS_OF_CONNECTION_MAX: Final = 1_000
"""Clients that share a connection; those of one process do in some languages."""
