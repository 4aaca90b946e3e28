"""Patterns of addresses that need no authentication, as in plain_acl.yml.

pattern                             meaning
(blank)                             nobody
* | *.*.*.* | *:*:*:*:*:*:*:*       everybody
10.0.0.1 | fe80::1                  one address
10.0.0.1,10.0.0.2                   these addresses, without blanks
10.0.0.{1,2} | fe80::{1,2}          these ends of the last part
10.0.*.* | 10.0.1-5.*               the first part that is `*` or a range decides, what is before
                                    it is fixed, and what is behind it is open
fe80::1:* | fe80::1:0-ff:*          `*` as the last part; a range as the last part, or before `*`
"""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

import msgspec

from escrowmq.errors import UsageError

_EVERYBODY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_PARTS_V4: Final = 4
_PARTS_V6: Final = 8
_PART_MAX_V4: Final = 0xFF
_PART_MAX_V6: Final = 0xFFFF
_FORMS: Final = (
    "allowed are one address, a list a,b, ends a.b.c.{1,2}, ranges a.b.1-5.* and a.b.*.*, and *"
)

AddressParts = tuple[int, ...]
"""An address as 4 or 8 numbers."""


class AddressPattern(msgspec.Struct, frozen=True):
    """A pattern of addresses: single ones, or all with a prefix and a next number in a range."""

    singles: frozenset[AddressParts] = frozenset()
    is_everybody: bool = False
    parts_count: int = -1
    prefix: AddressParts = ()
    low: int = 0
    high: int = -1

    def matches(self, parts: AddressParts) -> bool:
        """Whether the pattern includes an address."""
        if self.is_everybody or parts in self.singles:
            return True
        at = len(self.prefix)
        return (
            len(parts) == self.parts_count
            and parts[:at] == self.prefix
            and self.low <= parts[at] <= self.high
        )


NOBODY: Final = AddressPattern()


@functools.lru_cache(maxsize=4096)
def address_parts(host: str) -> AddressParts:
    """Return the numbers of a peer's address; none for anything else, which only `*` matches.

    An IPv4 peer of an IPv6 socket is an IPv4 peer."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    packed = address.packed
    if len(packed) == _PARTS_V4:
        return tuple(packed)
    return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))


def parse_pattern(text: str | None) -> AddressPattern:
    """Parse a pattern; raises UsageError if it is invalid."""
    if text is None or not text.strip():
        return NOBODY
    if text in _EVERYBODY:
        return AddressPattern(is_everybody=True)
    if text.endswith("}"):
        return _parse_last_parts(text)
    if "," in text:
        return AddressPattern(
            singles=frozenset(_parse_part(part, text) for part in text.split(",") if part)
        )
    if "*" in text or "-" in text:
        return _parse_range_v6(text) if ":" in text else _parse_range_v4(text)
    return AddressPattern(singles=frozenset({_parse_part(text, text)}))


def _pattern_error(text: str, reason: str) -> UsageError:
    return UsageError(f"address {text[:64]!r}: {reason}; {_FORMS}")


def _parse_part(part: str, text: str) -> AddressParts:
    found = address_parts(part) if "%" not in part else ()
    if not found:
        raise _pattern_error(text, f"{part[:64]!r} is not an address")
    return found


def _parse_last_parts(text: str) -> AddressPattern:
    begin, _, last = text.rpartition(":" if ":" in text else ".")
    is_v4 = ":" not in text
    if not last.startswith("{") or (is_v4 and begin.count(".") != _PARTS_V4 - 2):
        raise _pattern_error(text, "only the last part may be a list in braces")
    front = text[: -len(last)]
    ends = [end for end in last[1:-1].split(",") if end]
    return AddressPattern(singles=frozenset(_parse_part(front + end, text) for end in ends))


def _parse_number(part: str, text: str, *, base: int, most: int) -> int:
    digits = "0123456789" if base == 10 else "0123456789abcdef"
    part = part.strip().lower()
    if not part or len(part) > len(digits) or set(part) - set(digits) or int(part, base) > most:
        raise _pattern_error(
            text, f"{part[:64]!r} is not a number from 0 to {most:{'x' if base > 10 else 'd'}}"
        )
    return int(part, base)


def _parse_range(part: str, text: str, *, base: int, most: int) -> tuple[int, int]:
    """Return the bounds of the range in one part of an address."""
    part = part.strip()
    if part == "*":
        return 0, most
    low_text, _, high_text = part.partition("-")
    low = _parse_number(low_text, text, base=base, most=most)
    high = _parse_number(high_text, text, base=base, most=most)
    if not low <= high or not high:
        raise _pattern_error(text, f"the range {part[:64]!r} is empty")
    return low, high


def _parse_range_v4(text: str) -> AddressPattern:
    parts = [part for part in text.split(".") if part]
    if len(parts) != _PARTS_V4:
        raise _pattern_error(text, f"it has {len(parts)} parts instead of {_PARTS_V4}")
    for at in range(1, _PARTS_V4):
        if parts[at].strip() == "*" or "-" in parts[at]:
            low, high = _parse_range(parts[at], text, base=10, most=_PART_MAX_V4)
            fixed = [_parse_number(part, text, base=10, most=_PART_MAX_V4) for part in parts[:at]]
            return AddressPattern(parts_count=_PARTS_V4, prefix=tuple(fixed), low=low, high=high)
    raise _pattern_error(text, "the first part may not be a range")


def _parse_range_v6(text: str) -> AddressPattern:
    front, _, last = text.rpartition(":")
    if "*" in text[:-1] or (text.endswith("*") and last != "*"):
        raise _pattern_error(text, "`*` may only be the whole last part")
    low, high = _parse_range(last, text, base=16, most=_PART_MAX_V6)
    expanded = _PARTS_V6 - 1
    if "-" in front:
        if last != "*":
            raise _pattern_error(text, "a range may be the last part, or be followed by a last `*`")
        front, _, middle = front.rpartition(":")
        low, high = _parse_range(middle, text, base=16, most=_PART_MAX_V6)
        expanded -= 1
    prefix = _parse_v6_front(front, expanded, text)
    if len(prefix) >= _PARTS_V6:
        raise _pattern_error(text, f"it has more than {_PARTS_V6} parts")
    return AddressPattern(parts_count=_PARTS_V6, prefix=prefix, low=low, high=high)


def _parse_v6_front(front: str, expanded: int, text: str) -> AddressParts:
    """Parse the groups of an IPv6 address before a range: of `1:2::3-9`, 1, 2 and 0, because a `::`
    at the end stands for a single zero. A `::` inside stands for as many zeros as are missing
    (AclUtils.expandIP)."""
    if "::" in front:
        left, _, right = front.partition("::")
        before = left.split(":") if left else []
        behind = right.split(":") if right else []
        middle = ["0"] * (expanded - len(before) - len(behind))
        parts = before + middle + behind
    else:
        parts = front.split(":")
    return tuple(_parse_number(part or "0", text, base=16, most=_PART_MAX_V6) for part in parts)


def is_loopback(host: str) -> bool:
    """Whether a peer's address is a loopback address."""
    parts = address_parts(host)
    return parts[:1] == (127,) or parts == (0, 0, 0, 0, 0, 0, 0, 1)
