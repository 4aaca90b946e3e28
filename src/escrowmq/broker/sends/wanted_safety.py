"""Senders that want to know how safe their message is."""

from __future__ import annotations

from msgspec.structs import replace

from escrowmq.base.answer import Sent
from escrowmq.base.own_properties import DURABILITY, WANTS_SAFETY
from escrowmq.broker.asked import Question


def with_safety(asked: Question, sent: Sent) -> Sent:
    """The answer to a send, with the safety of the message if its sender wants to know it."""
    if (asked.command.ext or {}).get(WANTS_SAFETY) != "true":
        return sent
    if sent.log_end:
        return replace(sent, tells_safety=True)
    # A sender that does not wait is told no more than is certain now.
    return replace(sent, ext={**(sent.ext or {}), DURABILITY: "memory"})
