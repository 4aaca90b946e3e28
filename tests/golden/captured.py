"""The captured files of this folder, as Python values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FRAME_FILES = sorted(path.name for path in HERE.glob("frames-*.json"))


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return found


def frames(name: str) -> list[tuple[str, bytes]]:
    """Every frame of a file, under the name of its exchange and its side."""
    return [
        (f"{exchange} {side}", bytes.fromhex(item[side]))
        for exchange, item in load(name)["exchanges"].items()
        for side in ("request", "reply")
        if item.get(side)
    ]


def all_frames() -> list[Any]:
    """The same of all files, as parameters of a test."""
    return [(f"{file} {name}", frame) for file in FRAME_FILES for name, frame in frames(file)]


def heartbeats() -> list[tuple[str, bytes]]:
    return [(name, frame) for name, frame in all_frames() if "heartbeat" in name
            and name.endswith("request")]  # fmt: skip
