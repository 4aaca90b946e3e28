from __future__ import annotations

import io
import json
import logging
from datetime import datetime

from escrowmq.node.logs import (
    AUDIT,
    KINDS_MAX,
    LINES_MAX,
    SPAN_S,
    LineFormatter,
    RateFilter,
    make_handler,
)

FORGED = "x\n2026-01-01T00:00:00.000+00:00 INFO escrowmq.audit: event=operation\x1b[2J\u202e"


def record(text: str = "%s is gone", *args: object, name: str = "room", at_s: float = 1e6,
           level: int = logging.WARNING) -> logging.LogRecord:  # fmt: skip
    found = logging.LogRecord(name, level, "f.py", 1, text, args or ("peer",), None)
    found.created = at_s
    return found


def test_no_name_writes_a_line_of_its_own() -> None:
    (line,) = LineFormatter().format(record("transaction of %s is late", FORGED)).splitlines()
    assert line.isprintable()
    assert "x\\n2026-01-01" in line
    assert "\\x1b[2J\\u202e" in line


def test_nor_does_the_text_of_an_error() -> None:
    found = record()
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        found.exc_info = (ValueError, error, error.__traceback__)
    first, *trace = LineFormatter().format(found).splitlines()
    assert first.endswith("peer is gone")
    assert trace
    assert all(line.startswith("    ") and line.isprintable() for line in trace)


def test_as_json_a_line_is_one_object_whatever_is_in_it() -> None:
    stream = io.StringIO()
    handler = make_handler(stream, is_json=True)
    handler.handle(record("transaction of %s is late", FORGED, at_s=0.0))
    failed = record()
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        failed.exc_info = (ValueError, error, error.__traceback__)
    handler.handle(failed)
    first, second = stream.getvalue().splitlines()
    assert (first + second).isascii()
    found = json.loads(first)
    assert set(found) == {"time", "level", "logger", "message"}
    assert (found["level"], found["logger"]) == ("WARNING", "room")
    assert found["message"] == f"transaction of {FORGED} is late"
    assert datetime.fromisoformat(found["time"]).timestamp() == 0
    assert FORGED in json.loads(second)["trace"]


def test_a_flood_of_one_kind_is_counted_and_told_with_the_first_line_after_it() -> None:
    counted = RateFilter()
    written = [counted.filter(record("request of %s", str(n))) for n in range(10 * LINES_MAX)]
    assert written == [True] * LINES_MAX + [False] * (9 * LINES_MAX)
    assert counted.filter(record("something else: %s"))
    later = record(at_s=1e6 + SPAN_S)
    assert counted.filter(later)
    assert later.getMessage() == (
        f"({9 * LINES_MAX} similar lines were suppressed before this one) peer is gone"
    )
    after = record(at_s=1e6 + SPAN_S)
    assert counted.filter(after)
    assert after.getMessage() == "peer is gone"


def test_what_operators_did_is_written_always() -> None:
    counted = RateFilter()
    for _ in range(3 * LINES_MAX):
        assert counted.filter(record(name=AUDIT))
        assert counted.filter(record(level=logging.CRITICAL))


def test_kinds_are_bounded() -> None:
    counted = RateFilter()
    for number in range(3 * KINDS_MAX):
        counted.filter(record(f"kind {number} of %s"))
    assert not counted.filter(record("another kind of %s"))


def test_what_is_written_is_both_counted_and_made_fit_to_print() -> None:
    written = io.StringIO()
    handler = make_handler(written)
    for _ in range(2 * LINES_MAX):
        handler.handle(record("%s", FORGED))
    assert len(written.getvalue().splitlines()) == LINES_MAX
