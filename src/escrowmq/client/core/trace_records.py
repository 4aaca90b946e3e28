"""RocketMQ's message trace: its records, in the format that its readers expect.

Records are text. Fields are separated by 0x01, each record ends with 0x02, unknown fields are
`null` (RocketMQ's TraceDataEncoder, 5.3.3):

  Pub             time, region, group, topic, message id, tag, keys, broker, body size, cost ms,
                  kind, offset id, success
  SubBefore       time, region, group, request id, message id, deliveries before, keys
  SubAfter        request id, message id, cost ms, success, keys, end, time, group
  EndTransaction  time, region, group, topic, message id, tag, keys, broker, kind,
                  transaction id, state, from a check

Trace messages are found by the ids and keys of the messages they describe."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from escrowmq.base.message import KEYS_SEPARATOR, split_keys
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import Outcome, SendResult, SendStatus, delay_properties

REGION_DEFAULT: Final = "DefaultRegion"
BODY_SIZE_MAX: Final = 118_000
"""Limit of the body of one trace message; the maximum of RocketMQ's clients."""

KEYS_SIZE_MAX: Final = 16_000
"""Limit of the keys of one trace message: half of the maximum size of a message's properties."""

_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"
_STATES: Final = {
    Outcome.COMMIT: "COMMIT_MESSAGE",
    Outcome.ROLLBACK: "ROLLBACK_MESSAGE",
    Outcome.UNKNOWN: "UNKNOW",
}


class TracedMessageKind(enum.IntEnum):
    """The kind of a sent message (RocketMQ's MessageType)."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeResult(enum.IntEnum):
    """The result of consuming (RocketMQ's ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4


class TraceRecord(msgspec.Struct, frozen=True):
    """One trace record, and the keys by which it is found."""

    text: str
    keys: tuple[str, ...]


class TraceMessage(msgspec.Struct, frozen=True):
    """A trace message."""

    body: bytes
    keys: list[str]


def traced_kind_of(message: Message, *, is_half: bool) -> TracedMessageKind:
    """Return the kind of a sent message."""
    if is_half:
        return TracedMessageKind.HALF
    if delay_properties(message):
        return TracedMessageKind.DELAYED
    return TracedMessageKind.ORDERED if message.order_key else TracedMessageKind.NORMAL


def sent_record(
    message: Message, result: SendResult, *, group: str, place: tuple[str, str], span: range
) -> TraceRecord:  # fmt: skip
    """Make the record of a message that was stored. `place` is the region and the address of its
    broker, `span` the start and duration."""
    region, address = place
    keys = KEYS_SEPARATOR.join(message.key_list)
    return _make_record(
        "Pub", span.start, region, group, message.topic, result.message_id,
        message.tag or None, keys or None, address, len(message.body), len(span),
        int(traced_kind_of(message, is_half=result.is_half)), result.offset_id,
        result.status is SendStatus.OK,
        found_by=(result.message_id, keys),
    )  # fmt: skip


def delivered_record(
    message: Message, message_id: str, *, group: str, region: str, request_id: str, now_ms: int,
    deliveries_before: int,
) -> TraceRecord:  # fmt: skip
    """Make the record of a message that is about to be consumed."""
    keys = KEYS_SEPARATOR.join(message.key_list)
    return _make_record(
        "SubBefore", now_ms, region, group, request_id, message_id, deliveries_before,
        keys or None, found_by=(message_id, keys),
    )  # fmt: skip


def consumed_record(
    message: Message,
    message_id: str,
    *,
    group: str,
    request_id: str,
    span: range,
    end: ConsumeResult,
) -> TraceRecord:
    """Make the record of a message that was consumed, or will be redelivered."""
    keys = KEYS_SEPARATOR.join(message.key_list)
    return _make_record(
        "SubAfter", request_id, message_id, len(span), end is ConsumeResult.SUCCESS, keys or None,
        int(end), span.stop, group, found_by=(message_id, keys),
    )  # fmt: skip


def end_record(
    message: Message, message_id: str, *, group: str, place: tuple[str, str], now_ms: int,
    outcome: Outcome, is_from_check: bool,
) -> TraceRecord:  # fmt: skip
    """Make the record of an END that was sent to a broker for a message's transaction."""
    region, address = place
    keys = KEYS_SEPARATOR.join(message.key_list)
    return _make_record(
        "EndTransaction", now_ms, region, group, message.topic, message_id, message.tag or None,
        keys or None, address, int(TracedMessageKind.COMMIT), message_id, _STATES[outcome],
        is_from_check, found_by=(message_id, keys),
    )  # fmt: skip


def pack(records: Iterable[TraceRecord]) -> Iterator[TraceMessage]:
    """Pack records into few trace messages, each within the limits of its size and its keys."""
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = keys_size = 0
    for record in records:
        more, more_keys = len(record.text) * 4, sum(4 * len(key) + 1 for key in record.keys)
        if texts and (size + more > BODY_SIZE_MAX or keys_size + more_keys > KEYS_SIZE_MAX):
            yield TraceMessage("".join(texts).encode("utf-8", "replace"), list(keys))
            texts, keys, size, keys_size = [], {}, 0, 0
        texts.append(record.text)
        keys.update(dict.fromkeys(record.keys))
        size, keys_size = size + more, keys_size + more_keys
    if texts:
        yield TraceMessage("".join(texts).encode("utf-8", "replace"), list(keys))


def _make_record(*fields: object, found_by: tuple[str, str]) -> TraceRecord:
    text = _FIELD_END.join([_field_text(field) for field in fields]) + _RECORD_END
    message_id, keys = found_by
    return TraceRecord(text, tuple(dict.fromkeys([message_id, *split_keys(keys)])))


def _field_text(field: object) -> str:
    if field is None:
        return "null"
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field)
