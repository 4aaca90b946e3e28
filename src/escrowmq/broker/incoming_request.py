"""A request as handlers see it: its sender, its content, and its arrival time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from escrowmq.acl.acl2_accesses import RightsRule
from escrowmq.base.answer import Refusal, Reply
from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.broker.peer import Peer
from escrowmq.codec.repeated_requests import with_text_fields

H = TypeVar("H")


class RequestRow(msgspec.Struct, frozen=True):
    """One kind of request: its code, header type, handler and required rights."""

    code: int
    header: type[msgspec.Struct] | None
    """The type of its header fields; None if it has none, or if the handler reads the raw
    fields."""

    serve: Callable[..., Reply]
    """The method that serves the request. In the table of requests it is a function of its class,
    not yet bound to an object."""

    rule: RightsRule
    """The rights that it requires of its sender."""

    is_audited: bool = False
    """Whether the audit log gets a line for each request, because operators change something with
    it."""

    is_read: bool = False
    """Whether it reads messages: its answer may be large, and its sender understands
    FLOW_CONTROL."""

    is_brief: bool = False
    """Whether it needs no work at the end of its input, except to save changed tables and to serve
    consumers that wait for its messages."""

    is_free: bool = False
    """Whether rate limits never refuse it. Such a request ends something, and refusing it would
    cost more than serving it, because the client retries."""


HandlerRows = tuple[type, tuple[RequestRow, ...]]
"""The rows of the requests that one class of handlers serves."""


def handler_rows(handlers: type, *rows: RequestRow) -> HandlerRows:
    """Collect the rows of the requests that one class of handlers serves."""
    return handlers, rows


class IncomingRequest(msgspec.Struct, Generic[H]):
    """One request. A handler may keep it and answer later, with `Broker.answer`."""

    peer: Peer
    row: RequestRow
    command: Command
    """The command as received. The dialogue needs it to address the answer."""

    header: H
    now_ms: int
    account: str = ""
    """The sender's account, if peers must prove their identity; else empty."""

    @property
    def body(self) -> bytes:
        """The body of the request."""
        return self.command.body

    @property
    def ext(self) -> dict[str, str]:
        """The raw header fields."""
        return with_text_fields(self.command).ext or {}


Question = IncomingRequest[Any]


def not_supported(request: Question) -> Refusal:
    """Return the refusal of a request that this broker does not serve."""
    remark = f" request type {request.command.code} not supported"
    return Refusal(Response.REQUEST_CODE_NOT_SUPPORTED, remark)
