"""Every request that the broker serves: the rows of the two tables, and their handlers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from escrowmq.acl.acl2_accesses import OPERATE
from escrowmq.broker.asked import RequestRow, not_supported
from escrowmq.broker.requests.client_requests import CLIENT_REQUESTS
from escrowmq.broker.requests.operator_requests import OPERATOR_REQUESTS


def rows() -> Iterator[RequestRow]:
    """All rows."""
    return (row for _, rows_of in CLIENT_REQUESTS + OPERATOR_REQUESTS for row in rows_of)


def bound(handlers: Iterable[object]) -> dict[int, RequestRow]:
    """The rows of the families present, each with the method of its own handler."""
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


UNKNOWN: Final = RequestRow(-1, None, not_supported, OPERATE)
"""A request without a row needs an operator's rights, and is then answered as unsupported."""
