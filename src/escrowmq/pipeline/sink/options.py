"""The options of the sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from escrowmq.client.core.validation import check_group, check_topic
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.options import ClusterAccess, UserOptions, parse_access

GROUP: Final = "escrowmq-spark-sink"
"""The default producer group of plain sinks."""

IN_FLIGHT_SIZE_MAX: Final = 4 << 20
"""Limit of the bytes of bodies that a task has in flight, unless one send is larger: each must be
confirmed within its timeout, also over a network that others use."""

RESTART_WAIT_MS: Final = 30_000
"""Tasks wait this many milliseconds for a restarting broker before they fail."""

_SPARKS_OWN: Final = ("checkpointLocation", "outputMode", "queryName", "path")
_INT_MAX: Final = (1 << 31) - 1


class SendingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How executors send."""

    batch_count: int
    batch_size: int
    at_once: int
    timeout_ms: int
    retries: int
    compress_over: int
    body_size_max: int


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a sink."""

    access: ClusterAccess
    topic: str
    group: str
    is_transactional: bool
    broker: str
    takes_stock: bool
    """Whether to send at least once to a broker that cannot decide, instead of refusing."""
    timeout_ms: int
    app_id: str
    version: int
    order_by: str
    sending: SendingOptions
    checkpoint: str
    is_stream: bool

    @property
    def batch_epoch(self) -> str:
        """The name and the number of a write of a table; a generated name if none is given."""
        return f"{self.app_id or uuid.uuid4().hex}/{self.version}"


def parse_sink_options(
    options: Mapping[str, str], *, is_stream: bool, columns: Iterable[str]
) -> SinkOptions:
    """Parse the options of a write of a frame with these columns. Raises UsageError for the first
    error."""
    given = UserOptions(options)
    is_transactional = given.flag("transactional", default=False)
    group = given.text("producerGroup")
    if is_transactional and not group:
        raise UsageError(
            "transactional=true needs producerGroup: a group for this sink alone, for the "
            "decisions about its batches"
        )
    found = SinkOptions(
        access=parse_access(given, needs_name_server=True),
        topic=given.text("topic"),
        group=group or GROUP,
        is_transactional=is_transactional,
        broker=given.text("broker"),
        takes_stock=given.choice(
            "onStockBroker", allowed=("refuse", "at-least-once"), default="refuse"
        )
        == "at-least-once",
        timeout_ms=given.span_ms("transactionTimeoutMs", default=900_000, low=1_000),
        app_id=given.text("txnAppId"),
        version=given.number("txnVersion", default=0),
        order_by=given.text("orderBy"),
        sending=_parse_sending(given),
        checkpoint=given.text("checkpointLocation"),
        is_stream=is_stream,
    )
    given.refuse_others(passed_over=_SPARKS_OWN)
    _check(found, given, is_stream=is_stream, columns=set(columns))
    return found


def _parse_sending(given: UserOptions) -> SendingOptions:
    body_size_max = given.size("bodySizeMax", default=4 << 20, low=1)
    batch_size = given.size("batchBytes", default=min(1 << 20, body_size_max), low=1)
    if batch_size > body_size_max:
        raise UsageError(
            f"batchBytes={batch_size} is more than bodySizeMax={body_size_max}; brokers "
            "limit a batch like a message (maxMessageSize): raise it there and here, or "
            "send smaller batches"
        )
    return SendingOptions(
        body_size_max=body_size_max,
        batch_count=given.number("batchSize", default=32, low=1, high=10_000),
        batch_size=batch_size,
        at_once=given.number("sendsInFlight", default=64, low=1, high=10_000),
        timeout_ms=given.span_ms("sendTimeoutMs", default=3_000, low=1),
        retries=given.number("retries", default=2, high=1_000),
        compress_over=given.size("compressOver", default=4_096, low=1),
    )


def _check(found: SinkOptions, given: UserOptions, *, is_stream: bool, columns: set[str]) -> None:
    check_group(found.group)
    if found.topic:
        check_topic(found.topic)
    elif "topic" not in columns:
        raise UsageError(
            "there is neither an option `topic` nor a column of that name; add one of them"
        )
    if found.order_by and found.order_by not in columns:
        raise UsageError(
            f"orderBy={found.order_by!r} is not a column; there are {', '.join(sorted(columns))}"
        )
    if is_stream and (given.has("txnAppId") or given.has("txnVersion")):
        raise UsageError(
            "txnAppId and txnVersion are for df.write; a stream's batches have numbers"
        )
    if bool(found.app_id) != given.has("txnVersion"):
        raise UsageError("txnAppId and txnVersion belong together; give both")
    if found.app_id and not found.is_transactional:
        raise UsageError("txnAppId and txnVersion need transactional=true")
    if found.is_transactional:
        _check_transactional(found, is_stream, columns)


def _check_transactional(found: SinkOptions, is_stream: bool, columns: set[str]) -> None:
    late = sorted(columns & {"delayLevel", "deliverTime"})
    if late:
        raise UsageError(
            f"the column {late[0]} and transactional=true do not go together; drop the column, or "
            "send with transactional=false"
        )
    if is_stream and not (found.broker or found.checkpoint):
        raise UsageError(
            "transactional=true stores the deciding broker in the checkpoint; give "
            "checkpointLocation as an option of this writeStream, or name the broker "
            "(broker)"
        )
