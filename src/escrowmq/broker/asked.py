"""A request as handlers see it: who asks, what, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from escrowmq.acl.acl2_accesses import Rule
from escrowmq.base.answer import Reply
from escrowmq.base.command import Command
from escrowmq.broker.peer import Peer
from escrowmq.codec.repeated_requests import whole

H = TypeVar("H")


class RequestRow(msgspec.Struct, frozen=True):
    """One kind of request."""

    code: int
    header: type[msgspec.Struct] | None
    """Its fields; None where it has none, or where the handler reads them as they came."""

    serve: Callable[..., Reply]
    """The method that serves it; in the table of requests that of the class, without its object."""

    rule: Rule
    """What it needs of its sender."""

    is_audited: bool = False
    """Operators change something by it: a line is written about it (broker/access/audit_log)."""

    is_read: bool = False
    """It asks for messages: its answers may be large, and its sender knows FLOW_CONTROL."""

    is_brief: bool = False
    """Nothing of it is left for the end of its input, but tables that it may have changed."""

    is_free: bool = False
    """It ends something, and is not refused for its number: it would cost more when it comes
    again."""


Family = tuple[type, tuple[RequestRow, ...]]
"""The rows that the methods of one class serve."""


def family(handlers: type, *rows: RequestRow) -> Family:
    """The requests of one class of handlers."""
    return handlers, rows


class Asked(msgspec.Struct, Generic[H]):
    """One question. Whoever holds it can answer it later: `Broker.answer`."""

    peer: Peer
    row: RequestRow
    command: Command
    """What came over the wire, by which the door finds its way back."""

    header: H
    now_ms: int
    account: str = ""
    """Whose it is, where everybody has to prove that; else empty."""

    @property
    def body(self) -> bytes:
        """The body of the request."""
        return self.command.body

    @property
    def ext(self) -> dict[str, str]:
        """The fields as they came."""
        return whole(self.command).ext or {}


Question = Asked[Any]
