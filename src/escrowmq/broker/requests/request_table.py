"""All requests that the broker serves: the rows of both tables, bound to their handlers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from escrowmq.acl.acl2_accesses import OPERATOR_CHANGE
from escrowmq.broker.incoming_request import RequestRow, not_supported
from escrowmq.broker.requests.client_requests import CLIENT_REQUESTS
from escrowmq.broker.requests.operator_requests import OPERATOR_REQUESTS


def request_rows() -> Iterator[RequestRow]:
    """Yield the rows of all requests."""
    return (row for _, rows_of in CLIENT_REQUESTS + OPERATOR_REQUESTS for row in rows_of)


def bind_rows(handlers: Iterable[object]) -> dict[int, RequestRow]:
    """Return the rows of these handlers' requests by code, each bound to its handler's method."""
    by_family = {type(handler): handler for handler in handlers}
    found: dict[int, RequestRow] = {}
    for family, rows_of in CLIENT_REQUESTS + OPERATOR_REQUESTS:
        handler = by_family.get(family)
        if handler is None:
            continue
        for row in rows_of:
            assert row.code not in found, row.code
            found[row.code] = msgspec.structs.replace(row, serve=row.serve.__get__(handler))
    return found


UNKNOWN_REQUEST_ROW: Final = RequestRow(-1, None, not_supported, OPERATOR_CHANGE)
"""The row for unknown requests: they need an operator's rights, and are then answered as
unsupported."""
