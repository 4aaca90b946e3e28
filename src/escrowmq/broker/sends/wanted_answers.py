"""What senders want of the answer: that it waits for the disk, and says how safe the message is."""

from __future__ import annotations

import json
from typing import Final

from msgspec.structs import replace

from escrowmq.base.answer import Sent
from escrowmq.base.message import Property
from escrowmq.base.own_properties import DURABILITY, WANTS_SAFETY
from escrowmq.broker.asked import Question

_NO: Final = "false"
WAITS_NOT: Final = f"{Property.WAIT}\x01{_NO}"
"""If one of its properties begins with this, a message's sender may not want to wait for the
disk."""

_FORMS: Final = (WAITS_NOT.encode(), json.dumps(WAITS_NOT)[1:-1].encode())
"""The text as it is written in binary headers, and in JSON."""


def waits(properties: dict[str, str]) -> bool:
    """Whether the sender of a message waits for the disk, where answers do that."""
    return properties.get(Property.WAIT) != _NO


def may_not_wait(data: bytes) -> bool:
    """Whether one of the senders in an input may not want to wait for the disk."""
    binary, in_json = _FORMS
    return binary in data or in_json in data


def with_safety(asked: Question, sent: Sent) -> Sent:
    """The answer to a send, with the safety of the message if its sender wants to know it."""
    if (asked.command.ext or {}).get(WANTS_SAFETY) != "true":
        return sent
    if sent.log_end:
        return replace(sent, tells_safety=True)
    # A sender that does not wait is told no more than is certain now.
    return replace(sent, ext={**(sent.ext or {}), DURABILITY: "memory"})
