"""Messages as users see them, and their properties on the wire."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TypeVar, overload

import msgspec

from escrowmq.base.message import Property, StoredMessage, SysFlag, split_keys
from escrowmq.base.reserved import RESERVED
from escrowmq.codec.compression import decompress
from escrowmq.codec.ids import format_host, offset_id

Delay = dt.timedelta | float
Moment = dt.datetime | float


class Message(msgspec.Struct):
    """A message to send.

    Consumers can filter by `tag`; a message can be found by its `keys`. Messages with the same
    `order_key` go to one queue, in order. At most one of `delay_level` (1 to 18, as configured at
    the broker), `delay` (a timedelta, or seconds) and `deliver_at` (a datetime with a time zone, or
    seconds since the epoch) sets the time of delivery.

    >>> message = escrowmq.Message("paid", b"order 1", keys=["o-1"], properties={"shop": "3"})
    >>> message.delay = 0.5
    >>> producer.send(message).recall_handle != ""
    True
    """

    topic: str
    body: bytes
    tag: str = ""
    keys: list[str] | str = []
    properties: dict[str, str] = {}
    order_key: str = ""
    delay_level: int = 0
    delay: Delay | None = None
    deliver_at: Moment | None = None
    flag: int = 0

    @property
    def key_list(self) -> list[str]:
        """The keys as a list, in whatever form they were given."""
        return [self.keys] if isinstance(self.keys, str) else self.keys or []


def snapshot_of(message: Message) -> Message:
    """Return a copy of a message as it is now. Code that keeps a message beyond the caller's call
    must copy it: programs change a message, its keys or its properties, and send it again."""
    # The types of these values have not been checked yet.
    body: object = message.body
    keys: object = message.keys
    properties: object = message.properties
    return Message(
        message.topic,
        bytes(body) if isinstance(body, (bytearray, memoryview)) else message.body,
        message.tag,
        [*keys] if isinstance(keys, (list, set)) else message.keys,
        dict(properties) if isinstance(properties, (dict, Mapping)) else message.properties,
        message.order_key,
        message.delay_level,
        message.delay,
        message.deliver_at,
        message.flag,
    )


class ReceivedMessage(Message, kw_only=True):
    """A message received from a broker. `properties` are the user's own; RocketMQ's and EscrowMQ's
    are in `system`.

    >>> found = []
    >>> def was_it_committed(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
    ...     found.append(message.message_id)  # looked up in the database, in a real check
    ...     return escrowmq.Outcome.COMMIT
    """

    message_id: str = ""
    """The id that its producer gave it, the same on every delivery."""
    offset_id: str = ""
    """The id of this stored copy of the message."""
    broker_name: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    born_ms: int = 0
    born_host: str = ""
    stored_ms: int = 0
    deliveries_before: int = 0
    """How often the message was delivered before (RocketMQ's reconsumeTimes)."""
    sys_flag: int = 0
    prepared_log_offset: int = 0
    system: dict[str, str] = {}

    @property
    def transaction_id(self) -> str:
        """The id of its transaction; empty if it has none."""
        found = self.system
        return found.get("escrowTransaction") or found.get(Property.TRANSACTION_ID, "")


R = TypeVar("R", bound=ReceivedMessage)


@overload
def to_received_message(
    stored: StoredMessage, *, topic: str = "", broker_name: str = ""
) -> ReceivedMessage: ...


@overload
def to_received_message(
    stored: StoredMessage, *, topic: str = "", broker_name: str = "", kind: type[R]
) -> R: ...


def to_received_message(
    stored: StoredMessage,
    *,
    topic: str = "",
    broker_name: str = "",
    kind: type[ReceivedMessage] = ReceivedMessage,
) -> ReceivedMessage:
    """Make a `ReceivedMessage` from a record, with its body decompressed. `topic` is the user's
    name for the topic, if it differs from the record's. Raises RemoteProtocolError if the body is
    broken."""
    found = stored.properties
    own, system = {}, found
    if not RESERVED.issuperset(found):  # most messages have no others: one look, in C
        own = {name: value for name, value in found.items() if name not in RESERVED}
        system = {name: value for name, value in found.items() if name in RESERVED}
    stored_id = offset_id(stored.store_host, stored.log_offset)
    return kind(
        topic=topic or stored.topic,
        body=decompress(stored.body, stored.sys_flag),
        tag=found.get(Property.TAGS, ""),
        keys=split_keys(found.get(Property.KEYS, "")),
        properties=own,
        order_key=found.get(Property.SHARDING_KEY, ""),
        flag=stored.flag,
        message_id=found.get(Property.UNIQ_KEY, stored_id),
        offset_id=stored_id,
        broker_name=broker_name,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        log_offset=stored.log_offset,
        born_ms=stored.born_ms,
        born_host=format_host(stored.born_host),
        stored_ms=stored.stored_ms,
        deliveries_before=stored.reconsume_times,
        sys_flag=stored.sys_flag & ~SysFlag.COMPRESSED,
        prepared_log_offset=stored.prepared_log_offset,
        system=system,
    )
