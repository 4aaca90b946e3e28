"""Offsets of a broadcasting consumer: every member keeps its own, in a file.

The file is RocketMQ's own (LocalFileOffsetStore): `<folder>/<group>/offsets.json`, with queues as
keys of `offsetTable`. A new version is written to a temporary file and moved into place. The
previous one is kept as `offsets.json.bak`, which is read if the file itself is damaged."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from escrowmq.client.consumer_settings import Start
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.client.offsets import QueueBounds
from escrowmq.client.queue_fetcher import QueueFetcher
from escrowmq.codec.client_bodies import decode_queue_table
from escrowmq.codec.fastjson import QueueId, encode_fastjson_map
from escrowmq.errors import RemoteProtocolError, UsageError

_log = logging.getLogger(__name__)

_NAME: Final = "offsets.json"


class FileOffsets:
    """Offsets of one broadcasting consumer, stored in a folder of its own."""

    def __init__(self, instance: ClientInstance, folder: str, *, group: str, start: Start) -> None:
        self._bounds = QueueBounds(instance)
        self._start = start
        self._path = Path(folder) / group / _NAME
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"offsets_folder={folder!r} cannot be used: {error}") from error
        self._table = self._load()
        self._lock = asyncio.Lock()

    async def start_offset(self, queue: MessageQueue, *, since_ms: int | None = None) -> int:
        """Return where to start in a queue: at the stored offset, otherwise where the consumer's
        settings say."""
        found = self._table.get(queue)
        if found is not None:
            return found
        return await self._bounds.start_offset(queue, self._start, since_ms=since_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue; None if there is none."""
        return self._table.get(queue)

    def has_broker_offsets(self, queue: MessageQueue) -> bool:
        """Always False: brokers do not know these offsets."""
        return False

    async def store_offsets(self, readers: Iterable[QueueFetcher]) -> None:
        """Write the file if an offset has changed."""
        async with self._lock:
            changed = [
                reader for reader in readers if reader.fetched.commit_offset != reader.committed
            ]
            if not changed:
                return
            for reader in changed:
                self._table[reader.queue] = reader.fetched.commit_offset
            data = _encode_offsets(self._table)
            try:
                await asyncio.to_thread(self._write, data)
            except (OSError, RuntimeError) as error:  # the latter where no thread is available
                _log.warning("offsets could not be stored: %s", error)
                return
            for reader in changed:
                reader.committed = self._table[reader.queue]

    def _write(self, data: bytes) -> None:
        beside = self._path.with_suffix(".tmp")
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # After a crash between these two steps only the .bak exists; `_load` reads that.
        if self._path.exists():
            self._path.replace(self._path.with_suffix(".json.bak"))
        beside.replace(self._path)

    def _load(self) -> dict[MessageQueue, int]:
        for path in (self._path, self._path.with_suffix(".json.bak")):
            try:
                return _decode_offsets(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, RemoteProtocolError) as error:
                _log.warning("%s cannot be read: %s", path, error)
        return {}


def _encode_offsets(table: dict[MessageQueue, int]) -> bytes:
    items = (
        (QueueId(queue.broker_name, queue.queue_id, queue.topic), queue_offset)
        for queue, queue_offset in sorted(table.items())
    )
    return b'{"offsetTable":' + encode_fastjson_map(items) + b"}\n"


def _decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    return {
        MessageQueue(queue.topic, queue.broker_name, queue.queue_id): queue_offset
        for queue, queue_offset in decode_queue_table(int, data).items()
    }
