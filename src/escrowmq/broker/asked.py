"""A request as handlers see it: its sender, its content, and its arrival time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from escrowmq.acl.acl2_accesses import Rule
from escrowmq.base.answer import Refusal, Reply
from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.broker.peer import Peer
from escrowmq.codec.repeated_requests import with_text_fields

H = TypeVar("H")


class RequestRow(msgspec.Struct, frozen=True):
    """One kind of request."""

    code: int
    header: type[msgspec.Struct] | None
    """The type of its fields; None where it has none, or where the handler reads the raw fields."""

    serve: Callable[..., Reply]
    """The method that serves it; in the table of requests the class's function, without an
    object."""

    rule: Rule
    """What it requires of its sender."""

    is_audited: bool = False
    """Operators change something with it: the audit log gets a line (broker/access/audit_log)."""

    is_read: bool = False
    """It reads messages: its answers may be large, and its sender understands FLOW_CONTROL."""

    is_brief: bool = False
    """It leaves nothing to do at the end of its input, except to save tables that it changed and to
    serve those who wait for its messages."""

    is_free: bool = False
    """It ends something, and is not refused by rate limits: retries would cost more."""


Family = tuple[type, tuple[RequestRow, ...]]
"""The rows that the methods of one class serve."""


def family(handlers: type, *rows: RequestRow) -> Family:
    """The requests of one class of handlers."""
    return handlers, rows


class Asked(msgspec.Struct, Generic[H]):
    """One request. A handler may keep it and answer later, with `Broker.answer`."""

    peer: Peer
    row: RequestRow
    command: Command
    """The command as it was received, which the dialogue needs to address the answer."""

    header: H
    now_ms: int
    account: str = ""
    """The account of the sender, where peers have to prove their identity; else empty."""

    @property
    def body(self) -> bytes:
        """The body of the request."""
        return self.command.body

    @property
    def ext(self) -> dict[str, str]:
        """The raw fields."""
        return with_text_fields(self.command).ext or {}


Question = Asked[Any]


def not_supported(asked: Question) -> Refusal:
    """The answer to a request that is not served here."""
    remark = f" request type {asked.command.code} not supported"
    return Refusal(Response.REQUEST_CODE_NOT_SUPPORTED, remark)
