"""Converts messages from RocketMQ's gRPC protocol to properties and flags of records, and back.

system property          property of the record
message_id               UNIQ_KEY
tag, keys                TAGS; KEYS, blanks between
delivery_timestamp       TIMER_DELIVER_MS
message_group            __SHARDINGKEY
message_type TRANSACTION TRAN_MSG=true, PGROUP=<topic>, CHECK_IMMUNITY_TIME_IN_SECONDS
priority                 _SYS_MSG_PRIORITY_
born_timestamp           BORN_TIMESTAMP, and the record's own time of birth
born_host, trace_context __BORNHOST; TRACE_CONTEXT
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from typing import Final

from escrowmq.base.fixed_limits import GRPC_UNPACKED_SIZE_MAX, INT_MAX
from escrowmq.base.message import Property, StoredMessage, SysFlag, split_keys
from escrowmq.base.reserved import RESERVED
from escrowmq.codec.compression import decompress, size_until_error
from escrowmq.codec.ids import format_host, offset_id
from escrowmq.errors import RemoteProtocolError
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import CallFault
from escrowmq.proxy.validation import set_timestamp, timestamp_ms

KINDS: Final = {
    "NORMAL": v2.NORMAL,
    "FIFO": v2.FIFO,
    "DELAY": v2.DELAY,
    "TRANSACTION": v2.TRANSACTION,
    "PRIORITY": v2.PRIORITY,
}
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = b"\x78"
_DELAYS: Final = frozenset(
    {
        Property.DELAY,
        Property.TIMER_DELIVER_MS,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_DELAY_MS,
    }
)
_INNER: Final = RESERVED - {
    "escrowTransaction", "escrowDelay", "escrowOrderKey", "escrowChecker", "escrowMarker",
} | {"escrowOwner", "escrowCarried", "escrowMessages"}  # fmt: skip
"""Properties that are hidden from users; RocketMQ's proxy shows some of them."""


class DecompressionLimit:
    """The limit on the decompressed bodies of one call together: a small body may expand a
    thousandfold."""

    def __init__(self) -> None:
        self.left = GRPC_UNPACKED_SIZE_MAX

    def decompress(self, body: bytes, sys_flag: int) -> bytes:
        """Decompress a body. Raises RemoteProtocolError if it is broken, or too large."""
        is_gzip = body.startswith(_GZIP)  # RocketMQ's proxy stores what its clients have packed
        try:
            if is_gzip:
                plain = _gunzip(body, self.left)
            else:
                plain = decompress(body, sys_flag, size_max=self.left)
        except RemoteProtocolError:
            form = 0 if is_gzip else sys_flag
            self.left -= size_until_error(body, form, size_max=self.left)
            raise
        self.left -= len(plain)
        return plain


def _gunzip(body: bytes, size_max: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            plain = file.read(size_max + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RemoteProtocolError(f"the body cannot be decompressed: {error}") from error
    if len(plain) > size_max:
        raise RemoteProtocolError(f"the body decompresses to more than {size_max} bytes")
    return plain


# -- in ------------------------------------------------------------------------------------------


def message_type(properties: dict[str, str]) -> str:
    """Return the message type that follows from a message's properties."""
    if Property.TRAN_MSG in properties:
        return "TRANSACTION"
    if not _DELAYS.isdisjoint(properties):
        return "DELAY"
    if Property.SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if Property.PRIORITY in properties else "NORMAL"


def record_properties(
    message: v2.Message, system: v2.SystemProperties, topic: str
) -> dict[str, str]:
    """Return the properties of the record for a client's message. Each field of the message is read
    only once, because protobuf creates it anew each time."""
    users = message.user_properties
    found = dict(users) if users else {}
    found[Property.UNIQ_KEY] = system.message_id
    if system.tag:
        found[Property.TAGS] = system.tag
    keys = system.keys
    if keys:
        found[Property.KEYS] = " ".join(keys)
    if system.message_type == v2.TRANSACTION:
        found[Property.TRAN_MSG] = "true"
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds > 0:
            found[Property.CHECK_IMMUNITY_TIME] = str(seconds)
    # Any client that publishes to the topic may get checks for its halves.
    found[Property.PGROUP] = topic
    if system.HasField("delivery_timestamp"):
        due_ms = timestamp_ms(system.delivery_timestamp, v2.ILLEGAL_DELIVERY_TIME)
        found[Property.TIMER_DELIVER_MS] = str(due_ms)
    if system.message_group:
        found[Property.SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        found[Property.PRIORITY] = str(system.priority)
    if system.trace_context:
        found[Property.TRACE_CONTEXT] = system.trace_context
    if system.born_host.strip():
        found[Property.BORN_HOST] = system.born_host
    if system.HasField("born_timestamp"):
        found[Property.BORN_TIMESTAMP] = str(timestamp_ms(system.born_timestamp, v2.BAD_REQUEST))
    return found


def decompress_gzip_body(body: bytes, unpacking: DecompressionLimit, *, size_max: int) -> bytes:
    """Return a gzip body decompressed, as it is stored: consumers of the remoting protocol do not
    know gzip. Some clients declare gzip and send zlib, which is accepted, as RocketMQ's proxy
    does."""
    if not body.startswith((_GZIP, _ZLIB)):
        raise CallFault(
            v2.MESSAGE_CORRUPTED, "the body is declared as gzip, but is neither gzip nor zlib"
        )
    try:
        plain = unpacking.decompress(body, SysFlag.COMPRESSED)
    except RemoteProtocolError as error:
        raise CallFault(v2.MESSAGE_CORRUPTED, str(error)) from error
    if not plain:
        raise CallFault(v2.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(plain) > size_max:
        raise CallFault(v2.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {size_max}")
    return plain


def encode_property_text(properties: dict[str, str]) -> str:
    """Encode properties as in a send request."""
    return "\x02".join(map("\x01".join, properties.items())) + "\x02"


# -- out -----------------------------------------------------------------------------------------


def to_client_message(
    stored: StoredMessage, *, handle: str = "", unpacking: DecompressionLimit | None = None
) -> v2.Message:
    """Make a message for gRPC clients from a record. Its body is decompressed, because clients
    differ in what they can decompress. A body that is broken, or too large for the call, stays as
    it is and is declared as gzip, as by RocketMQ's proxy."""
    found = stored.properties
    body, encoding = stored.body, v2.IDENTITY
    if stored.sys_flag & SysFlag.COMPRESSED:
        try:
            body = (unpacking or DecompressionLimit()).decompress(stored.body, stored.sys_flag)
        except RemoteProtocolError:
            encoding = v2.GZIP
    message = v2.Message(body=body)
    message.topic.name = stored.topic
    for name, value in found.items():
        if name not in _INNER:
            message.user_properties[name] = value
    system = message.system_properties
    stored_id = offset_id(stored.store_host, stored.log_offset)
    system.message_id = found.get(Property.UNIQ_KEY, stored_id)
    if found.get(Property.TAGS):
        system.tag = found[Property.TAGS]
    system.keys.extend(split_keys(found.get(Property.KEYS, "")))
    system.body_digest.type = v2.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = KINDS[message_type(found)]
    set_timestamp(system.born_timestamp, stored.born_ms)
    system.born_host = found.get(Property.BORN_HOST) or format_host(stored.born_host)
    set_timestamp(system.store_timestamp, stored.stored_ms)
    system.store_host = format_host(stored.store_host)
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = min(stored.reconsume_times, INT_MAX - 1) + 1
    if handle:
        system.receipt_handle = handle
    _add_delivery_properties(system, found)
    return message


def _add_delivery_properties(system: v2.SystemProperties, found: dict[str, str]) -> None:
    deliver = found.get(Property.TIMER_DELIVER_MS) or found.get(Property.TIMER_OUT_MS, "")
    if deliver.isascii() and deliver.isdigit() and len(deliver) <= len("253402300799999"):
        set_timestamp(system.delivery_timestamp, int(deliver))
    if found.get(Property.SHARDING_KEY):
        system.message_group = found[Property.SHARDING_KEY]
    if found.get(Property.TRACE_CONTEXT):
        system.trace_context = found[Property.TRACE_CONTEXT]
    priority = found.get(Property.PRIORITY, "")
    if priority.isascii() and priority.isdigit() and len(priority) <= len("2147483647"):
        system.priority = min(int(priority), 2**31 - 1)
    seconds = found.get(Property.CHECK_IMMUNITY_TIME, "")
    if seconds.isascii() and seconds.isdigit() and len(seconds) <= len("2147483647"):
        system.orphaned_transaction_recovery_duration.seconds = int(seconds)
    origin = found.get(Property.DLQ_ORIGIN_TOPIC)
    if origin and found.get(Property.DLQ_ORIGIN_MESSAGE_ID):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = found[Property.DLQ_ORIGIN_MESSAGE_ID]
