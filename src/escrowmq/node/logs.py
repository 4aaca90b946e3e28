"""Log lines of servers on standard error: one line per event, names from outside escaped, and a
limit on lines of one kind."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Final, TextIO

from escrowmq.base.printable import printable

AUDIT: Final = "escrowmq.audit"

LINES_MAX: Final = 100
"""Lines of one kind that are written within SPAN_S; more are only counted."""

SPAN_S: Final = 60.0

KINDS_MAX: Final = 1_000
"""Kinds of lines that are distinguished; all others count as one."""

_INDENT: Final = "    "


class LogLine(logging.Formatter):
    """One line per event: time with its zone, level, package, text. Only a traceback follows on
    lines of its own, each indented, so that no text can forge a line."""

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(name)s: %(message)s") -> None:
        super().__init__(form)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """As 2024-02-29T23:59:59.999+01:00."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        return moment.isoformat(timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line itself."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """The line, followed by the traceback."""
        line, *trace = super().format(record).splitlines()
        return "\n".join([line, *(_INDENT + printable(each) for each in trace)])


class JsonLine(LogLine):
    """One JSON object per line, for log collectors: `time`, `level`, `logger`, `message`, and
    `trace` for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The object. What is not printable is escaped in it, line ends included."""
        found = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["trace"] = self.formatException(record.exc_info)
        return json.dumps(found)


class Counted(logging.Filter):
    """Passes LINES_MAX lines of one kind per SPAN_S; the first line after that says how many were
    suppressed. A kind is a logger and its text without arguments. Audit lines are counted where
    they are made."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], int] = {}
        self._until_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if record.name == AUDIT or record.levelno >= logging.CRITICAL:
            return True
        kind = (record.name, str(record.msg))
        if record.created >= self._until_s or record.created < self._until_s - SPAN_S:
            self._begin(record)
        if kind not in self._counts and len(self._counts) >= KINDS_MAX:
            kind = ("", "")
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        return count <= LINES_MAX

    def _begin(self, record: logging.LogRecord) -> None:
        """Begin another span; the number of suppressed lines is added to its first line."""
        left = sum(max(0, count - LINES_MAX) for count in self._counts.values())
        self._counts.clear()
        self._until_s = record.created + SPAN_S
        if left:
            text = record.getMessage()
            record.msg = f"({left} similar lines were suppressed before this one) {text}"
            record.args = None


def handler_of(
    stream: TextIO, form: str | None = None, *, is_json: bool = False
) -> logging.Handler:
    """A handler that writes to a stream by the rules above."""
    handler = logging.StreamHandler(stream)
    text = LogLine() if form is None else LogLine(form)
    handler.setFormatter(JsonLine() if is_json else text)
    handler.addFilter(Counted())
    return handler


def log_to_stderr(level: str, form: str | None = None, *, is_json: bool = False) -> None:
    """Write logged lines to standard error, from a level on."""
    handler = handler_of(sys.stderr, form, is_json=is_json)
    logging.basicConfig(handlers=[handler], level=level.upper())
    # What operators did is on record however little else is wanted.
    logging.getLogger(AUDIT).setLevel(logging.INFO)
