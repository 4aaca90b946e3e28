"""Prints all output of the command line, and escapes names that come from outside."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from escrowmq.base.printable import printable, printable_json

_SEPARATOR: Final = "\t"
_IS_YAML = False


def print_line(*cells: object) -> None:
    """Print one line of an answer, whose cells are separated by tabs. Tabs and control characters
    in a cell are escaped."""
    _write_line(_SEPARATOR.join(printable(str(cell)) for cell in cells))


def set_yaml(*, is_wanted: bool) -> None:
    """Choose whether `print_json` prints YAML from now on."""
    global _IS_YAML
    _IS_YAML = is_wanted


def print_json(found: object) -> None:
    """Print an answer as JSON on one line."""
    if _IS_YAML:
        import yaml

        # Escaped as in JSON: a terminal shows YAML, and must not execute it.
        text = yaml.safe_dump(
            msgspec.to_builtins(found), sort_keys=False, allow_unicode=False, explicit_start=True
        )
        for line in text.splitlines():
            _write_line(line)
        return
    _write_line(printable_json(msgspec.json.encode(found).decode()))


def clear_screen() -> None:
    """Clear the terminal, and move to its top."""
    print("\x1b[2J\x1b[H", end="", flush=True)


def print_text(text: str) -> None:
    """Print lines of this program's own, without escaping anything."""
    for line in text.splitlines():
        _write_line(line)


def print_error_line(text: str) -> None:
    """Print one line about an error on standard error."""
    sys.stderr.write(printable(text) + "\n")


def print_error_json(found: object) -> None:
    """Print an object that describes an error, as one line of JSON on standard error."""
    sys.stderr.write(printable_json(msgspec.json.encode(found).decode()) + "\n")


def _write_line(line: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal with another encoding shows the characters that it has.
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
