"""Stores small files of our own in a query's checkpoint folder, on any file system."""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from escrowmq.errors import StorageError, UsageError

_SPARKS_OWN: Final = "metadata"
"""The file that Spark writes first into the folder of each query."""

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def load_stored(folder: str, name: str) -> dict[str, Any] | None:
    """Read what was stored under a name; None if nothing was."""
    system, path = _locate(folder, name)
    if system.get_file_info(path).type == fs.FileType.NotFound:
        return None
    with system.open_input_stream(path) as stream:
        data = stream.read()
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f"{path} in checkpointLocation={folder!r} is damaged: it has {len(data)} bytes "
            "that are not a JSON object. If this query has written no batch yet, delete it "
            "and start again; otherwise restore it from a copy of the checkpoint, or begin "
            "with another one"
        )
    return found


def require_query_folder(folder: str) -> None:
    """Raise StorageError if a running query has its checkpoint in another folder than Python. Spark
    reads a path without a scheme on its default file system, which may not be the local one."""
    if not _SCHEME.match(folder) and not (Path(folder) / _SPARKS_OWN).exists():
        raise StorageError(
            f"checkpointLocation={folder!r} is no checkpoint on this machine, so Spark has it on "
            "another file system (fs.defaultFS); write it in full, as hdfs://HOST/PATH, or name "
            "the broker that decides with option broker"
        )


def store_durably(folder: str, name: str, found: dict[str, Any]) -> None:
    """Store a dictionary under a name durably, completely or not at all."""
    system, path = _locate(folder, name)
    data = json.dumps(found).encode()
    if isinstance(system, fs.LocalFileSystem):
        _write_durably(Path(path), data)
        return
    # The file must appear only when it is complete; some of these systems show it earlier.
    system.create_dir(str(Path(path).parent), recursive=True)
    partial = str(Path(path).with_name(f".{Path(path).name}.{secrets.token_hex(8)}"))
    with system.open_output_stream(partial) as stream:
        stream.write(data)
    system.move(partial, path)


def _locate(folder: str, name: str) -> tuple[Any, str]:
    if not _SCHEME.match(folder):
        return fs.LocalFileSystem(), str(Path(folder).absolute() / name)
    # Spark takes `file:/x` too, which Arrow does not know.
    uri = re.sub(r"^file:/+", "file:///", folder)
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise StorageError(
            f"checkpointLocation={folder!r} cannot be reached from Python ({error}); name the "
            "broker that decides with option broker instead"
        ) from error
    return system, f"{path.rstrip('/')}/{name}"


def _write_durably(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    # Also make the name durable: a query that forgets its broker may choose another one.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
