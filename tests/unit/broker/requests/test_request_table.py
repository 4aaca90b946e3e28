"""The table of requests says of each what its method takes."""

from __future__ import annotations

import typing
from collections import Counter

import pytest

from escrowmq.base.answer import Reply
from escrowmq.base.codes import Request
from escrowmq.broker.incoming_request import RequestRow
from escrowmq.broker.requests.request_table import request_rows
from tests.harness.exchange import Exchange

ROWS = list(request_rows())
NAMES = {code: name for name, code in vars(Request).items() if name.isupper()}


def header_of(row: RequestRow) -> set[object]:
    """The headers that a method takes; those that its class wraps take what they wrap."""
    hints = typing.get_type_hints(row.serve)
    assert hints["return"] == Reply
    (header,) = typing.get_args(hints["request"])
    return set(typing.get_args(header)) or {header}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: NAMES[row.code])
def test_a_method_takes_the_header_of_its_row(row: RequestRow) -> None:
    assert (row.header or type(None)) in header_of(row)


def test_each_request_has_one_row_and_every_row_is_served() -> None:
    assert Counter(row.code for row in ROWS).most_common(1)[0][1] == 1
    served = set(Exchange().core.serving.rows)
    of_accounts = {50, 51, 52, 53}  # with aclEnable alone
    assert served == {row.code for row in ROWS} - of_accounts


def test_what_gives_rights_is_written_down() -> None:
    assert all(row.is_audited for row in ROWS if row.rule.changes_rights)
