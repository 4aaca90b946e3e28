"""The peer's tables under `config/`: topics.json, consumerOffset.json and the like.

Read tolerantly (the peer writes integer keys without quotes), written strictly (it reads quoted
ones as well), each beside a `.bak` of its former content.
"""

from __future__ import annotations

import json
from typing import Any, Final

from escrowmq.base.effects import Replace
from escrowmq.base.ports import Disk
from escrowmq.codec import fastjson
from escrowmq.errors import CorruptRecord, RemoteProtocolError

FOLDER: Final = "config"


def table_path(name: str) -> str:
    """Where a table is kept."""
    return f"{FOLDER}/{name}"


def read_table(disk: Disk, name: str) -> Any:  # noqa: ANN401 - JSON is what it is
    """The table's value, or that of its `.bak` when it is absent, empty or damaged; None when
    neither is there. CorruptRecord when something is there, but nothing that can be read."""
    path = table_path(name)
    problem = ""
    for candidate in (path, f"{path}.bak"):
        data = disk.read(candidate)
        if data is None or not data.strip():
            continue
        try:
            return fastjson.decode(data)
        except RemoteProtocolError as error:
            problem = problem or f"{candidate}: {error}"
    if problem:
        raise CorruptRecord(f"{problem}; no readable .bak beside it. Mend or remove the file")
    return None


def encode_table(value: object) -> bytes:
    """Strict JSON, laid out with tabs as the peer does."""
    text = json.dumps(value, ensure_ascii=False, indent="\t", separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def replacements(disk: Disk, name: str, data: bytes) -> list[Replace]:
    """What brings new content to a table: its old content to `.bak` first. At every moment one of
    both is whole."""
    path = table_path(name)
    old = disk.read(path)
    found = [Replace(path, data)]
    if old is not None and old.strip() and old != data:
        found.insert(0, Replace(f"{path}.bak", old))
    return found


def write_table(disk: Disk, name: str, value: object) -> None:
    """Write a table here and now, durably."""
    for effect in replacements(disk, name, encode_table(value)):
        disk.replace(effect.path, effect.data)
