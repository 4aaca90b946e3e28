"""Records for these tests, and what they must become as rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from escrowmq.base.message import Message, Property, StoredMessage
from escrowmq.codec.ids import format_host, offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record, encode_record

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
HOST_V6 = bytes(range(16)) + bytes([0, 0, 1, 2])

_text = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=30
)
_names = st.one_of(
    st.sampled_from(
        [
            Property.UNIQ_KEY,
            Property.KEYS,
            Property.TAGS,
            "TRAN_MSG",
            "escrowTransaction",
            "a",
            "ab",
        ]
    ),
    _text,
)
messages = st.builds(
    Message,
    topic=st.sampled_from(["t", "orders", "RMQ_SYS_TRANS_HALF_TOPIC", "x" * 200]),
    body=st.binary(max_size=300),
    queue_id=st.integers(0, 7),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    properties=st.dictionaries(_names, _text, max_size=8),
    sys_flag=st.sampled_from([0, 4, 8]),
    born_ms=st.integers(0, 4_000_000_000_000),
    born_host=st.sampled_from([HOST, HOST_V6]),
    store_host=st.sampled_from([HOST, HOST_V6]),
    reconsume_times=st.integers(0, 16),
    prepared_log_offset=st.integers(0, 1 << 40),
)


def log_of(
    found: list[Message], *, first: int = 0, log_offset: int = 0, stored_ms: int = 1_700_000_000_000
) -> bytes:
    """The records of messages, one behind another."""
    parts: list[bytes] = []
    at = log_offset
    for index, message in enumerate(found):
        record = encode_record(
            message,
            properties=encode_properties(message.properties),
            queue_offset=first + index,
            log_offset=at,
            stored_ms=stored_ms + index,
        )
        at += len(record)
        parts.append(record)
    return b"".join(parts)


def expected_row(data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The row of the record at a place, by the plain decoder; and where the next one begins."""
    stored = decode_record(data, at)
    return row_of(stored), at + stored.record_size


def row_of(stored: StoredMessage) -> dict[str, Any]:
    """What a message is as a row."""
    own = stored.properties
    stored_id = offset_id(stored.store_host, stored.log_offset)
    transaction = own.get("escrowTransaction") or own.get(Property.TRANSACTION_ID)
    if transaction is None and stored.sys_flag & 0xC:
        transaction = own.get(Property.UNIQ_KEY)
    keys = own.get(Property.KEYS)
    return {
        "topic": stored.topic,
        "brokerName": "b",
        "queueId": stored.queue_id,
        "queueOffset": stored.queue_offset,
        "msgId": own.get(Property.UNIQ_KEY, stored_id),
        "offsetMsgId": stored_id,
        "tags": own.get(Property.TAGS),
        "keys": None if keys is None else [word for word in keys.split(" ") if word],
        "body": stored.body,
        "properties": dict(own),
        "bornTimestamp": moment(stored.born_ms),
        "storeTimestamp": moment(stored.stored_ms),
        "bornHost": format_host(stored.born_host),
        "storeHost": format_host(stored.store_host),
        "sysFlag": stored.sys_flag & ~1,
        "flag": stored.flag,
        "reconsumeTimes": stored.reconsume_times,
        "physicalOffset": stored.log_offset,
        "preparedTransactionOffset": stored.prepared_log_offset,
        "transactionId": transaction,
    }


def moment(time_ms: int) -> dt.datetime:
    """A time as Arrow hands it out."""
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=time_ms)
