"""Small files of ours in a query's checkpoint folder, wherever that is."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from escrowmq.errors import StorageError

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def recall(folder: str, name: str) -> dict[str, Any] | None:
    """What was kept under a name; None when nothing was."""
    system, path = _locate(folder, name)
    if system.get_file_info(path).type == fs.FileType.NotFound:
        return None
    with system.open_input_stream(path) as stream:
        found: dict[str, Any] = json.loads(stream.read())
    return found


def remember(folder: str, name: str, found: dict[str, Any]) -> None:
    """Keep something durably: whole, or not at all."""
    system, path = _locate(folder, name)
    data = json.dumps(found).encode()
    if isinstance(system, fs.LocalFileSystem):
        _write_durably(Path(path), data)
        return
    system.create_dir(str(Path(path).parent), recursive=True)
    with system.open_output_stream(path) as stream:
        stream.write(data)


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
    # The name as well: a query that has forgotten its broker may choose another one.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
