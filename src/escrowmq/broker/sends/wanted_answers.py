"""Reads what a sender wants of its answer: whether to wait for the disk, and whether to report how
safe the message is."""

from __future__ import annotations

import json
from typing import Final

from msgspec.structs import replace

from escrowmq.base.answer import SendAnswer
from escrowmq.base.message import Property
from escrowmq.base.own_properties import DURABILITY, WANTS_SAFETY
from escrowmq.broker.incoming_request import Question

_NO: Final = "false"
NO_WAIT_PROPERTY: Final = f"{Property.WAIT}\x01{_NO}"
"""The encoded property by which a sender says that it does not want to wait for the disk."""

_FORMS: Final = (NO_WAIT_PROPERTY.encode(), json.dumps(NO_WAIT_PROPERTY)[1:-1].encode())
"""The property of `NO_WAIT_PROPERTY` as bytes of a binary header, and of a JSON header."""


def wants_to_wait(properties: dict[str, str]) -> bool:
    """Whether the sender of a message wants to wait for the disk, if the broker is configured for
    that."""
    return properties.get(Property.WAIT) != _NO


def may_hold_unwaiting_send(data: bytes) -> bool:
    """Whether these bytes may hold a send whose sender does not want to wait for the disk."""
    binary, in_json = _FORMS
    return binary in data or in_json in data


def with_safety_level(request: Question, sent: SendAnswer) -> SendAnswer:
    """Return the answer to a send, with the message's safety (memory, disk or replicas) if the
    sender requested that."""
    if (request.command.ext or {}).get(WANTS_SAFETY) != "true":
        return sent
    if sent.log_end:
        return replace(sent, tells_safety=True)
    # For a sender that does not wait, only what is certain now is reported.
    return replace(sent, ext={**(sent.ext or {}), DURABILITY: "memory"})
