"""How much of each room the tests have run: `python tools/rooms_covered.py build/coverage.json`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

PACKAGE = "escrowmq"
LEAST_SHOWN = 5


def main(path: str) -> int:
    """Print a line a room, and the files of each that are covered least."""
    files = json.loads(Path(path).read_text(encoding="utf-8"))["files"]
    rooms: dict[str, list[tuple[float, int, int, str]]] = defaultdict(list)
    for name, about in files.items():
        parts = Path(name).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        summary = about["summary"]
        if summary["num_statements"]:
            share = summary["covered_lines"] / summary["num_statements"]
            row = (share, summary["covered_lines"], summary["num_statements"], "/".join(inside))
            rooms[inside[0] if len(inside) > 1 else "."].append(row)
    covered = statements = 0
    for room, rows in sorted(rooms.items()):
        ran, all_of = sum(row[1] for row in rows), sum(row[2] for row in rows)
        covered, statements = covered + ran, statements + all_of
        print(f"{room:14} {ran / all_of:6.1%}  {all_of:6} statements")
    print(f"{'all':14} {covered / statements:6.1%}  {statements:6} statements")
    print("\nleast covered")
    for share, _, all_of, name in sorted(row for rows in rooms.values() for row in rows)[
        :LEAST_SHOWN
    ]:
        print(f"{share:6.1%}  {all_of:5}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
