"""Text of others, made fit to be printed: one line, no orders to a terminal, nothing that is read
in another order than it stands. Logs and the command line print by it alone."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with every letter that shows nothing, or moves what others show, as `\\x1b`, `\\n`,
    `\\u202e`: control characters, ends of lines and paragraphs, marks of direction, halves of
    surrogate pairs, blanks that are none."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_json(text: str) -> str:
    """The same for JSON, which stays what it says: such letters stand in texts only, and get the
    form that JSON has for them."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _json_escape(letter) for letter in text)


def _json_escape(letter: str) -> str:
    number = ord(letter)
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
