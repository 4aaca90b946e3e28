"""Escapes text from others for printing: the result is one line without control sequences, in the
order in which it is stored. Used by logs and the command line."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return the text with every invisible or order-changing character escaped as `\x1b`, `\n`,
    `\u202e`: control characters, ends of lines and paragraphs, direction marks, surrogates, odd
    blanks."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_json(text: str) -> str:
    """Escape JSON text like `printable`, without changing its meaning: such characters occur only
    in strings, and are escaped in JSON's form."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _json_escape(letter) for letter in text)


def _json_escape(letter: str) -> str:
    number = ord(letter)
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
