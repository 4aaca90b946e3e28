"""Key-value configuration by namespace, stored in kvConfig.json."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from escrowmq.base.ports import Disk
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import CorruptRecord, UsageError
from escrowmq.store.config_tables import load_table

ORDER_CONF: Final = "ORDER_TOPIC_CONFIG"
"""The namespace that maps an ordered topic to `broker:queues;...`."""

KV_ITEMS_MAX: Final = 100_000
KV_TEXT_SIZE_MAX: Final = 32_768
"""Limit of the characters of one item, because a request for an item is answered in a header, whose
size is limited."""
KV_PATH: Final = "kvConfig.json"

_log = logging.getLogger(__name__)


class _KvFile(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]] | None = None


class KvConfig:
    """The key-value table; each change is durable before it is answered."""

    def __init__(self, disk: Disk | None, path: str = KV_PATH) -> None:
        self._disk = disk
        self._path = path
        self._tables: dict[str, dict[str, str]] = self._load()

    def _load(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}

        def take(data: bytes | None) -> None:
            if data is not None:
                found.update(decode_body(_KvFile, data).config_table or {})

        if self._disk is None:
            return found
        try:
            note = load_table(self._disk, self._path, take)
        except CorruptRecord as error:
            # A name server without order configuration is better than one that does not start; the
            # file is kept until the next change.
            _log.warning("%s; it is ignored", error)
            return {}
        if note:
            _log.warning("%s", note)
        return found

    def get(self, namespace: str | None, key: str | None) -> str | None:
        """Return one value; None if it is not set."""
        return self._tables.get(namespace or "", {}).get(key or "")

    def namespace_items(self, namespace: str | None) -> dict[str, str] | None:
        """Return all items of a namespace; None if it never had any."""
        return self._tables.get(namespace or "")

    def put(self, namespace: str, key: str, value: str | None) -> None:
        """Set one item; None removes it, and creates the namespace. Raises UsageError if the table
        is full, StorageError if it was not saved."""
        size = len(namespace) + len(key) + len(value or "")
        if size > KV_TEXT_SIZE_MAX:
            raise UsageError(f"an item of {size} characters; {KV_TEXT_SIZE_MAX} are allowed")
        if (
            sum(map(len, self._tables.values())) >= KV_ITEMS_MAX
            and self.get(namespace, key) is None
        ):
            raise UsageError(
                f"there are {KV_ITEMS_MAX} items, which is the limit; delete some first"
            )
        table = dict(self._tables.get(namespace, {}))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        self._save({**self._tables, namespace: table})

    def delete(self, namespace: str | None, key: str | None) -> None:
        """Remove one item; its namespace stays, even if empty."""
        table = self._tables.get(namespace or "")
        if table is None or key not in table:
            return
        rest = {name: value for name, value in table.items() if name != key}
        self._save({**self._tables, namespace or "": rest})

    def _save(self, tables: dict[str, dict[str, str]]) -> None:
        if self._disk is not None:
            self._disk.replace(self._path, fastjson.encode({"configTable": tables}))
        self._tables = tables
