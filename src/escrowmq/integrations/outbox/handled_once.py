"""What a message is known by, so that it is handled once."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from escrowmq.client.core.redelivery import NEVER
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox.tables import (
    TEXT_SIZE_MAX,
    SqlFamily,
    Statement,
    handle,
    unhandle,
)

Key = Callable[[HeldMessage], str]
F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "sha256:"


def message_id(message: HeldMessage) -> str:
    """The id that a message keeps on every delivery."""
    return message.message_id


def known_as(text: str) -> str:
    """The same as the table can hold it."""
    if len(text) <= TEXT_SIZE_MAX and text.isascii() and text.isprintable():
        return text
    return _MARK + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def note(family: SqlFamily, message: HeldMessage, *, key: Key, group: str) -> Statement:
    """Note that a message is being handled: changes one row, or none when it was before."""
    return handle(family, *_place(message, key=key, group=group))


def given_back(messages: Iterable[HeldMessage], *, key: Key, group: str) -> list[Statement]:
    """Take the notes back of those that the work itself has let come again: the next delivery
    would not reach it."""
    return [
        unhandle(*_place(each, key=key, group=group)) for each in messages if _comes_again(each)
    ]


def _comes_again(message: HeldMessage) -> bool:
    ticket = message.ticket
    return ticket is not None and ticket.is_settled and ticket.level not in (None, NEVER)


def _place(message: HeldMessage, *, key: Key, group: str) -> tuple[str, str]:
    found: object = key(message)
    if not isinstance(found, str) or not found:
        raise UsageError(
            f"key= returned {found!r} for message {message.message_id}; a text that is not empty "
            "is expected, the same on every delivery"
        )
    return known_as(group or message.group), known_as(found)


def named_like(handler: F, work: Callable[..., object]) -> F:
    """The handler under the name of what it is made of; its signature is its own."""
    functools.update_wrapper(handler, work)
    del handler.__wrapped__  # type: ignore[attr-defined]
    return handler
