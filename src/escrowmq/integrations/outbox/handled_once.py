"""What a message is known by, so that it is handled once."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox.tables import TEXT_SIZE_MAX, SqlFamily, Statement, handle

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
    found: object = key(message)
    if not isinstance(found, str) or not found:
        raise UsageError(
            f"key= returned {found!r} for message {message.message_id}; a text that is not empty "
            "is expected, the same on every delivery"
        )
    return handle(family, known_as(group or message.group), known_as(found))


def named_like(handler: F, work: Callable[..., object]) -> F:
    """The handler under the name of what it is made of; its signature is its own."""
    functools.update_wrapper(handler, work)
    del handler.__wrapped__  # type: ignore[attr-defined]
    return handler
