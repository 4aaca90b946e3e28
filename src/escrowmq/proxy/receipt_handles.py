"""Receipt handles: with one a consumer acknowledges a message, hides it for longer, or moves it to
the dead letters.

    start offset, pop time, invisible ms, revive queue, kind, broker name, queue id, queue offset,
    log offset; followed by `renewed` if the broker renews the invisible time

These fields are separated by blanks, and are those that pop consumers of the remoting protocol get
(codec.pop_receipt). A handle contains everything that is needed, so no front has to remember it."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.codec.pop_receipt import PopReceipt, decode_receipt, encode_receipt, retry_topic
from escrowmq.errors import UsageError
from escrowmq.proxy.clock_leaps import ClockLeaps
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import CallFault

HANDLE_SIZE_MAX: Final = 1_024
RENEWED: Final = "renewed"
_FIELDS: Final = (9, 10)


class ReceiptHandle(msgspec.Struct, frozen=True):
    """The fields of a receipt handle."""

    receipt: PopReceipt
    log_offset: int
    is_renewed: bool = False

    def __str__(self) -> str:
        text = f"{encode_receipt(self.receipt)} {self.log_offset}"
        return f"{text} {RENEWED}" if self.is_renewed else text

    def ack_fields(self, group: str, topic: str) -> dict[str, str]:
        """Return the fields that identify the message in an ack."""
        receipt = self.receipt
        return {
            "consumerGroup": group,
            "topic": retry_topic(topic, group, receipt.kind),
            "queueId": str(receipt.queue_id),
            "offset": str(receipt.queue_offset),
            "extraInfo": encode_receipt(receipt),
        }


def parse_receipt_handle(
    text: str, *, broker_name: str, leaps: ClockLeaps, now_ms: int
) -> ReceiptHandle:
    """Parse a handle of this broker; raises a Fault if it is invalid."""
    code = v2.INVALID_RECEIPT_HANDLE
    if len(text) > HANDLE_SIZE_MAX:
        raise CallFault(code, f"a handle of {len(text)} characters; {HANDLE_SIZE_MAX} are allowed")
    parts = text.split(" ")
    try:
        receipt = decode_receipt(text)
        if len(parts) not in _FIELDS or (len(parts) == _FIELDS[1] and parts[-1] != RENEWED):
            raise UsageError(
                f"receipt handle {text[:100]!r} has {len(parts)} fields; 9 are expected"
            )
        log_offset = int(parts[8])
        retry_topic("", "", receipt.kind)
    except (UsageError, ValueError) as error:
        raise CallFault(code, f"receipt handle cannot be read: {error}") from error
    if receipt.broker_name != broker_name:
        raise CallFault(
            code, f"this handle is of broker {receipt.broker_name[:100]}; send it there"
        )
    handle = ReceiptHandle(receipt, log_offset, len(parts) == _FIELDS[1])
    if handle.is_renewed or receipt.due_ms > now_ms:
        return handle
    late_ms = now_ms - receipt.due_ms - leaps.leapt_ms_since(receipt.pop_ms)
    if late_ms >= 0:
        raise CallFault(
            code, f"receipt handle is expired: the message is visible since {late_ms} ms"
        )
    return handle
