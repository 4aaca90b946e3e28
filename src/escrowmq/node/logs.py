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
"""Limit of lines of one kind within SPAN_S; further ones are only counted."""

SPAN_S: Final = 60.0

KINDS_MAX: Final = 1_000
"""Limit of the kinds of lines that are distinguished; all others count as one kind."""

_INDENT: Final = "    "


class LineFormatter(logging.Formatter):
    """Formats one line per event: time with its zone, level, package, text. Only a traceback
    follows on lines of its own, which are indented, so that no text can forge a line."""

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(name)s: %(message)s") -> None:
        super().__init__(form)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Format the time like 2024-02-29T23:59:59.999+01:00."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        return moment.isoformat(timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Format the line without a traceback."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Format the line, followed by the traceback."""
        line, *trace = super().format(record).splitlines()
        return "\n".join([line, *(_INDENT + printable(each) for each in trace)])


class JsonFormatter(LineFormatter):
    """Formats one JSON object per line, for log collectors: `time`, `level`, `logger`, `message`,
    and `trace` for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the JSON object; unprintable characters, line ends included, are escaped."""
        found = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["trace"] = self.formatException(record.exc_info)
        return json.dumps(found)


class RateFilter(logging.Filter):
    """Lets LINES_MAX lines of one kind pass per SPAN_S; the first line after that says how many
    were suppressed. A kind is a logger and its text without arguments. Audit lines are limited
    where they are made."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], int] = {}
        self._until_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be written."""
        if record.name == AUDIT or record.levelno >= logging.CRITICAL:
            return True
        kind = (record.name, str(record.msg))
        if record.created >= self._until_s or record.created < self._until_s - SPAN_S:
            self._begin_span(record)
        if kind not in self._counts and len(self._counts) >= KINDS_MAX:
            kind = ("", "")
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        return count <= LINES_MAX

    def _begin_span(self, record: logging.LogRecord) -> None:
        """Begin another span, and add to its first line how many lines of this kind were
        suppressed."""
        left = sum(max(0, count - LINES_MAX) for count in self._counts.values())
        self._counts.clear()
        self._until_s = record.created + SPAN_S
        if left:
            text = record.getMessage()
            record.msg = f"({left} similar lines were suppressed before this one) {text}"
            record.args = None


def make_handler(
    stream: TextIO, line_format: str | None = None, *, is_json: bool = False
) -> logging.Handler:
    """Make a handler that writes lines to a stream, in the form `line_format` or as JSON, with the
    limit on lines of one kind."""
    handler = logging.StreamHandler(stream)
    text = LineFormatter() if line_format is None else LineFormatter(line_format)
    handler.setFormatter(JsonFormatter() if is_json else text)
    handler.addFilter(RateFilter())
    return handler


def log_to_stderr(level: str, line_format: str | None = None, *, is_json: bool = False) -> None:
    """Write lines of this log level and above to standard error."""
    handler = make_handler(sys.stderr, line_format, is_json=is_json)
    logging.basicConfig(handlers=[handler], level=level.upper())
    # Operators' actions are logged whatever the log level is.
    logging.getLogger(AUDIT).setLevel(logging.INFO)
