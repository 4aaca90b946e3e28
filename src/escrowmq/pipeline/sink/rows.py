"""Converts rows to messages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from escrowmq.base.message import Property, split_keys
from escrowmq.base.reserved import RESERVED
from escrowmq.client.core.message import Message
from escrowmq.client.core.validation import BETWEEN_TAGS
from escrowmq.errors import InvalidMessage, UsageError

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("array<string>", "string"),
    "queueId": ("int", "bigint", "smallint", "tinyint"),
    "brokerName": ("string",),
    "properties": ("map<string,string>",),
    "flag": ("int", "smallint", "tinyint"),
    "delayLevel": ("int", "bigint", "smallint", "tinyint"),
    "deliverTime": ("timestamp",),
}
"""The columns that have a meaning, and their allowed types."""


class AddressedMessage(msgspec.Struct):
    """A message, and the queue that its row requests, if any."""

    message: Message
    queue_id: int | None = None
    broker_name: str = ""
    unique_key: str = ""
    """The key under which to send it; generated if empty."""

    extra: dict[str, str] = {}
    """Properties besides those of the message, which the SDK would refuse: the tag of a row that
    comes from a topic may be one that no subscription can name. Brokers accept it."""


def check_columns(types: dict[str, str], *, order_by: str) -> None:
    """Raise UsageError if a frame cannot be sent; `types` are Spark's type names by column."""
    if "body" not in types:
        raise UsageError(
            f"a column `body` is needed (binary or string); there are {', '.join(types)}. "
            "Rename your column, or make one with to_json(struct(...)).alias('body')"
        )
    if "brokerName" in types and "queueId" not in types:
        raise UsageError(
            "the column brokerName says where a queue is, and there is no column queueId; add it, "
            "or drop brokerName"
        )
    for name, kind in types.items():
        allowed = COLUMNS.get(name)
        if allowed is None and name != order_by:
            raise UsageError(
                f"a column {name!r} has no meaning for the sink; drop it, or put it into "
                f"`properties`. The sink knows {', '.join(COLUMNS)}"
            )
        if allowed is not None and kind not in allowed:
            raise UsageError(
                f"the column {name} has the type {kind}; {' or '.join(allowed)} is expected"
            )


def messages_of_rows(batch: Any, *, topic: str, order_by: str) -> Iterator[AddressedMessage]:  # noqa: ANN401 - Arrow's
    """Convert an Arrow batch to messages. The option `topic` overrides the column."""
    values = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    nothing = [None] * batch.num_rows
    column = {name: values.get(name, nothing) for name in COLUMNS}
    orders = values[order_by] if order_by else nothing
    for index, body in enumerate(column["body"]):
        name = topic or column["topic"][index]
        if body is None or not name:
            what = "body" if body is None else "topic"
            raise InvalidMessage(f"row {index} of a batch has no {what} (null); remove such rows")
        broker, queue_id = column["brokerName"][index] or "", column["queueId"][index]
        if broker and queue_id is None:
            raise InvalidMessage(
                f"row {index} of a batch has brokerName={broker!r} and no queueId (null); give "
                "both, or neither"
            )
        tag = column["tags"][index] or ""
        is_odd = BETWEEN_TAGS in tag
        yield AddressedMessage(
            Message(
                topic=name,
                body=body.encode() if isinstance(body, str) else bytes(body),
                tag="" if is_odd else tag,
                keys=_keys(column["keys"][index]),
                properties=_properties(column["properties"][index]),
                order_key="" if orders[index] is None else str(orders[index]),
                delay_level=column["delayLevel"][index] or 0,
                deliver_at=_delivery_time(column["deliverTime"][index]),
                flag=column["flag"][index] or 0,
            ),
            queue_id,
            broker,
            extra={Property.TAGS: tag} if is_odd else {},
        )


def _keys(found: Any) -> list[str]:  # noqa: ANN401 - Arrow's
    if found is None:
        return []
    return split_keys(found) if isinstance(found, str) else [key for key in found if key]


def _properties(found: Any) -> dict[str, str]:  # noqa: ANN401 - Arrow's
    # RocketMQ's and EscrowMQ's own properties may be set if the rows come from a topic.
    pairs = found.items() if isinstance(found, dict) else found or ()
    return {name: value for name, value in pairs if value and name not in RESERVED}


def _delivery_time(found: dt.datetime | None) -> dt.datetime | None:
    if found is None or found.tzinfo is not None:
        return found
    return found.replace(tzinfo=dt.UTC)
