r"""Encodes and decodes message properties: `name 0x01 value 0x02`, repeated, UTF-8."""

from __future__ import annotations

from typing import Final

_ENTRY_SIZE_MIN: Final = 3
_DIGITS_MAX: Final = 19
"""The number of digits of the largest long. Python refuses to parse numbers of some thousand
digits."""


def encode_properties(properties: dict[str, str]) -> bytes:
    """Encode properties. The last one ends with 0x02 too."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode(
        "utf-8", "surrogatepass"
    )


def decode_properties(encoded: bytes) -> dict[str, str]:
    """Decode properties. Entries without name, separator or value are skipped, as by RocketMQ's
    `MessageDecoder.string2messageProperties`."""
    return parse_properties(encoded.decode("utf-8", "replace"))


def parse_properties(text: str) -> dict[str, str]:
    """Decode properties from text, as in a send request's header."""
    properties: dict[str, str] = {}
    for entry in text.split("\x02"):
        if len(entry) >= _ENTRY_SIZE_MIN:
            name, _, value = entry.partition("\x01")
            if name and value:
                properties[name] = value
    return properties


def property_value(properties: bytes, mark: bytes) -> bytes:
    """Return the value of one property, given as name and 0x01; empty if it is missing. If it is
    repeated, the last one counts."""
    at = properties.rfind(mark)
    if at < 0:
        return b""
    if at and properties[at - 1] != 2:
        found = decode_properties(properties).get(mark[:-1].decode(), "")
        return found.encode("utf-8", "surrogatepass")
    end = properties.find(b"\x02", at)
    return properties[at + len(mark) : end if end >= 0 else len(properties)]


def parse_number(text: str | None, *, most: int) -> int | None:
    """Return the number from 0 to `most` in a property; None for anything else. Clients choose
    these values, so readers must not fail on them."""
    if not text or len(text) > _DIGITS_MAX or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= most else None
