"""Reads numbers from the fields of replies, which may contain anything."""

from __future__ import annotations

from typing import Final

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.errors import RemoteProtocolError

_DIGITS_MAX: Final = 20


def parse_number_field(reply: Command, name: str, *, otherwise: int | None = None) -> int:
    """Return the number in a field of a reply; -1 means that the broker has none. If the field is
    absent, return `otherwise`. Raises RemoteProtocolError for anything else."""
    text = (reply.ext or {}).get(name)
    if text is None:
        if otherwise is not None:
            return otherwise
        seen = "nothing"
    else:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX:
            number = int(text)
            if -1 <= number <= LONG_MAX:
                return number
        seen = repr(text[:64])
    raise RemoteProtocolError(f"{name} in a reply is {seen}; a number up to {LONG_MAX} is expected")
