"""The one place where the command line prints: what others have named is shown, never obeyed."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from escrowmq.base.printable import printable, printable_json

_SEPARATOR: Final = "\t"


def say(*cells: object) -> None:
    """One line of the answer; a tab between cells, and in none of them."""
    _print(_SEPARATOR.join(printable(str(cell)) for cell in cells))


def show_json(found: object) -> None:
    """Any answer as JSON on one line."""
    _print(printable_json(msgspec.json.encode(found).decode()))


def complain(text: str) -> None:
    """One line about what went wrong, on standard error."""
    sys.stderr.write(printable(text) + "\n")


def _print(line: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal of another alphabet is shown what it can show.
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
