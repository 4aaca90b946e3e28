"""Reads which half an END names: by its offsets, or by a signed id."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.base.answer import Refusal
from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.codec.headers import EndByIdHeader, EndTransactionHeader, read_header
from escrowmq.errors import UsageError
from escrowmq.txn.transactions import Transactions

HALF_NOT_FOUND: Final = "Find prepared transaction message failed"
_COUNT: Final = re.compile(r"[0-9]{1,9}")


def read_end(
    request: Command, transactions: Transactions, now_ms: int
) -> EndTransactionHeader | Refusal:
    """Return the header of an END with the offsets of its half, whether the request gives offsets
    or a signed id."""
    ext = request.ext or {}
    count = ext.get("escrowCount", "0")
    if not _COUNT.fullmatch(count):
        # An unparsable optional number counts as absent, but this one is a safeguard.
        remark = f"escrowCount is {count[:32]!r}; the number of messages is due"
        return Refusal(Response.SYSTEM_ERROR, remark)
    if "escrowId" not in ext:
        return read_header(EndTransactionHeader, request.ext)
    by_id = read_header(EndByIdHeader, request.ext)
    try:
        found, half = transactions.find_signed_half(by_id.escrow_id, now_ms)
    except UsageError as error:
        return Refusal(Response.NO_PERMISSION, str(error))
    if half is None:
        return Refusal(Response.SYSTEM_ERROR, HALF_NOT_FOUND)
    return EndTransactionHeader(
        producer_group=half.properties.get(Property.PGROUP, ""),
        tran_state_table_offset=found.queue_offset,
        commit_log_offset=found.log_offset,
        commit_or_rollback=by_id.commit_or_rollback,
        from_transaction_check=by_id.from_transaction_check,
        escrow_count=by_id.escrow_count,
    )
