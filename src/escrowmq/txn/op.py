"""Op records: which half messages are done with. One parser serves both forms of the peer, the
single offset of 4.x and the list of 5.x."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Message, Property, Topic

TAG_DONE: Final = "d"
OUTCOMES: Final = "escrowOutcomes"
"""A property of ours: how each transaction of the record ended, a letter each. The peer reads
tag and body alone."""

LETTERS: Final = "-crx"
_DIGITS_MAX: Final = 19


def encode_op(done: list[tuple[int, str]], *, host: bytes, now_ms: int) -> Message:
    """The record that says that these half queue offsets are done with, and how."""
    return Message(
        topic=Topic.OP,
        body="".join([f"{offset}," for offset, _ in done]).encode(),
        properties={
            Property.WAIT: "true",
            Property.TAGS: TAG_DONE,
            OUTCOMES: "".join([letter for _, letter in done]),
        },
        born_ms=now_ms,
        born_host=host,
        store_host=host,
    )


def decode_op(message: Message) -> list[tuple[int, str]]:
    """Half queue offsets that a record names, each with a letter (`-`: not told). What cannot be
    read is passed over, as the peer does."""
    if message.properties.get(Property.TAGS) != TAG_DONE:
        return []
    parts = message.body.decode("ascii", "replace").split(",")
    if not parts[-1]:
        parts.pop()
    letters = message.properties.get(OUTCOMES, "")
    if len(letters) != len(parts):
        letters = "-" * len(parts)
    return [
        (int(part), letter if letter in LETTERS else "-")
        for part, letter in zip(parts, letters, strict=True)
        if part.isascii() and part.isdecimal() and len(part) <= _DIGITS_MAX
    ]
