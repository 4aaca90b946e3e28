"""Op records: they name halves that were settled, with their outcomes.

One parser reads both forms of RocketMQ, the single offset of 4.x and the list of 5.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.base.fixed_limits import REASON_SIZE_MAX
from escrowmq.base.message import Message, Property, Topic
from escrowmq.base.own_properties import ENDED, ENDED_BY, MORE, OUTCOMES
from escrowmq.base.printable import printable
from escrowmq.codec.hashes import tags_code
from escrowmq.codec.properties import encode_properties
from escrowmq.txn.bundle import DIGEST_SIZE
from escrowmq.txn.state import State

TAG_DONE: Final = "d"
STATES: Final = {
    "c": State.COMMITTED,
    "r": State.ROLLED_BACK,
    "x": State.EXPIRED,
    "-": State.SETTLED,
}
"""The outcome that each letter in an op record means; `-`: an unknown one."""

LETTERS: Final = {state: letter for letter, state in STATES.items()}
TAGS_CODE: Final = tags_code(TAG_DONE)
OPS_OF_RECORD_MAX: Final = 400
"""The most ends in one op record, unless one transaction has more messages. RocketMQ's limit is
4096 characters."""

_PLAIN: Final = encode_properties({Property.WAIT: "true", Property.TAGS: TAG_DONE, OUTCOMES: "%b"})
_PLAIN_OF_ONE: Final = {state: _PLAIN % letter.encode() for state, letter in LETTERS.items()}
_DIGITS_MAX: Final = 19
_ENDED_SIZE: Final = 1 + DIGEST_SIZE
_WHO_SIZE_MAX: Final = 2 * REASON_SIZE_MAX
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def encode_plain_op(ended: Mapping[int, State]) -> tuple[bytes, bytes]:
    """Encode an op record for ends without a bundle and without an administrator. Return the same
    body and encoded properties as `encode_op` would give it, in less time."""
    if len(ended) == 1:
        ((queue_offset, state),) = ended.items()
        return b"%d," % queue_offset, _PLAIN_OF_ONE[state]
    body = "".join([f"{queue_offset}," for queue_offset in ended])
    letters = "".join([LETTERS[state] for state in ended.values()])
    return body.encode(), _PLAIN % letters.encode()


def encode_op(
    done: list[tuple[int, str]],
    *,
    host: bytes,
    now_ms: int,
    bundles: Mapping[str, str] = _NONE,
    who: str = "",
    is_last: bool = True,
) -> Message:
    """Return the op record that names settled halves with their outcomes. `bundles`: the outcomes'
    letters by the digests of ended bundles. `who`: the administrator that ended them, if any."""
    properties = {
        Property.WAIT: "true",
        Property.TAGS: TAG_DONE,
        OUTCOMES: "".join([letter for _, letter in done]),
    }
    if bundles:
        properties[ENDED] = "".join([letter + digest for digest, letter in bundles.items()])
    if who:
        # An op record that did not fit would keep all later ones from being stored.
        properties[ENDED_BY] = printable(who)[:_WHO_SIZE_MAX]
    if not is_last:
        properties[MORE] = "true"
    return Message(
        topic=Topic.OP,
        body="".join([f"{offset}," for offset, _ in done]).encode(),
        properties=properties,
        born_ms=now_ms,
        born_host=host,
        store_host=host,
    )


def decode_op(message: Message) -> list[tuple[int, str]]:
    """Return the halves that an op record names, each with its outcome's letter (`-`: unknown).
    Invalid entries are skipped, as in RocketMQ."""
    if message.properties.get(Property.TAGS) != TAG_DONE:
        return []
    parts = message.body.decode("ascii", "replace").split(",")
    if not parts[-1]:
        parts.pop()
    letters = message.properties.get(OUTCOMES, "")
    if len(letters) != len(parts):
        letters = "-" * len(parts)
    return [
        (int(part), letter if letter in STATES else "-")
        for part, letter in zip(parts, letters, strict=True)
        if part.isdecimal() and len(part) <= _DIGITS_MAX
    ]


def bundles_ended_in(message: Message) -> list[tuple[str, State]]:
    """Return the digests of the bundles that an op record ends, with their outcomes. Invalid
    entries are skipped."""
    text = message.properties.get(ENDED, "")
    found = []
    for at in range(0, len(text) - DIGEST_SIZE, _ENDED_SIZE):
        state = STATES.get(text[at])
        if state is not None:
            found.append((text[at + 1 : at + _ENDED_SIZE], state))
    return found
