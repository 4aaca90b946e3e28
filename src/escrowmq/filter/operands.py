"""The values of RocketMQ's SQL92: Java's types, conversions and comparisons."""

from __future__ import annotations

import enum
import re
from typing import Final

from escrowmq.errors import EscrowMQError, UsageError

DIGITS_MAX: Final = 4_000
"""Limit of the digits of a number in a property; below Python's own limit for `int`."""

_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BLANKS: Final = "".join(map(chr, range(33)))

Value = str | int | float | bool


class FilterError(UsageError):
    """Raised for an invalid filter expression; says the position, and what would be valid."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.position = position


class IncomparableError(EscrowMQError):
    """Raised for two values that cannot be compared: RocketMQ's evaluation throws for them, and the
    message does not match."""


class OperandKind(enum.IntEnum):
    """The Java type of a value. It decides the range in which a property is parsed: `int` and
    `long` differ."""

    INT = 0
    LONG = 1
    DOUBLE = 2
    TEXT = 3
    TRUTH = 4
    NOTHING = 5


NUMBERS: Final = frozenset({OperandKind.INT, OperandKind.LONG, OperandKind.DOUBLE})
_LIMITS: Final = {OperandKind.INT: 1 << 31, OperandKind.LONG: 1 << 63}


def parse_java_integer(text: str, kind: OperandKind) -> int:
    """Parse like Java's `Integer.valueOf` or `Long.valueOf`: no blanks, no point, within the
    range."""
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not digits.isdecimal() or len(digits) > DIGITS_MAX:
        raise IncomparableError(f"{text[:32]!r} is not a whole number")
    number = int(text)
    limit = _LIMITS[kind]
    if not -limit <= number < limit:
        raise IncomparableError(f"{text[:32]!r} is beyond {kind.name}")
    return number


def parse_java_double(text: str) -> float:
    """Parse like Java's `Double.valueOf`: blanks around it, `1f`, `NaN`, `0x1p3` are allowed."""
    text = text.strip(_BLANKS)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        raise IncomparableError(f"{text[:32]!r} is not a number")
    try:
        return float.fromhex(found[1])
    except (OverflowError, ValueError):  # an exponent beyond what C reads is a ValueError
        return _overflow_value(found[1])


def _overflow_value(text: str) -> float:
    is_tiny = "-" in text.lower().partition("p")[2]
    return float(("-" if text.startswith("-") else "") + ("0" if is_tiny else "inf"))


def parse_as_kind(text: str, kind: OperandKind) -> int | float:
    """Parse a property as a number of the kind with which it is compared."""
    return parse_java_double(text) if kind is OperandKind.DOUBLE else parse_java_integer(text, kind)


def compare_doubles(left: float, right: float) -> int:
    """Compare like Java's `Double.compare`: -0.0 is below 0.0, NaN above all and equal to
    itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _zero_and_nan_rank(left) - _zero_and_nan_rank(right)


def _zero_and_nan_rank(number: float) -> int:
    if number != number:  # NaN alone differs from itself
        return 2
    return 0 if number == 0 and str(number).startswith("-") else 1


def compare_values(
    left: Value, left_kind: OperandKind, right: Value, right_kind: OperandKind
) -> int:
    """Compare like RocketMQ's ComparisonExpression.__compare, oddities included; return a number
    below, at or above 0."""
    if left_kind is not right_kind:
        if left_kind is OperandKind.TRUTH:
            if right_kind is OperandKind.TEXT:  # a ClassCastException at RocketMQ
                raise IncomparableError("a truth value in front of text")
            return -1
        if right_kind is OperandKind.TRUTH:
            if left_kind is not OperandKind.TEXT:
                return -1
            left = str(left).lower() == "true"
        elif left_kind is OperandKind.TEXT:
            left, left_kind = parse_as_kind(str(left), right_kind), right_kind
        elif right_kind is OperandKind.TEXT:
            right, right_kind = parse_as_kind(str(right), left_kind), left_kind
    if OperandKind.DOUBLE in (left_kind, right_kind):
        return compare_doubles(float(left), float(right))
    if left == right:
        return 0
    return -1 if left < right else 1  # type: ignore[operator]
