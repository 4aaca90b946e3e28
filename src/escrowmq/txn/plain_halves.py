"""Plain halves as raw bytes. Most are ended while they are cached, so that they are never
decoded."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.codec.properties import decode_properties

HALF_MARK: Final = f"{Property.TRANSACTION_ID}\x01".encode()
"""The encoded property name that precedes the key in a stored half."""


class PlainHalf(msgspec.Struct, gc=False):
    """A stored half without a bundle, an epoch, check immunity or a delay."""

    queue_offset: int
    log_offset: int
    record_size: int
    stored_ms: int
    group: str
    topic: str
    queue_id: int
    """The queue of its message, not of the half."""

    key: bytes
    keys: tuple[bytes, ...]
    properties: bytes
    body: bytes
    tags_code: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int

    def message(self) -> StoredMessage:
        """Return the half decoded, as if it were read from the log."""
        return StoredMessage(
            topic=Topic.HALF,
            body=self.body,
            queue_id=0,
            flag=self.flag,
            properties=decode_properties(self.properties),
            sys_flag=self.sys_flag,
            born_ms=self.born_ms,
            born_host=self.born_host,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_log_offset=0,
            queue_offset=self.queue_offset,
            log_offset=self.log_offset,
            stored_ms=self.stored_ms,
            record_size=self.record_size,
        )
