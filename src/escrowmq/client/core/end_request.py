"""END_TRANSACTION: the request's fields, the meaning of the answer, and ids for other processes.

An id signed by an EscrowMQ broker is used unchanged; only the broker's name is read from it
(codec/signed_id). For other brokers an id is made here: `u1.` and then URL-safe base64, without
padding, of the JSON of `Half`. It proves nothing: anyone who has it can end the transaction, like
any client of these brokers."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from typing import Final

import msgspec

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.own_properties import OPEN, OUTCOME
from escrowmq.client.core.sending import Outcome
from escrowmq.codec import signed_id
from escrowmq.codec.ids import parse_offset_id
from escrowmq.errors import (
    AlreadyCommitted,
    AlreadyRolledBack,
    AlreadySettled,
    EscrowMQError,
    OutcomeContradicted,
    RemoteProtocolError,
    UsageError,
    response_error,
)

_OWN_MARK: Final = "u1."
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")
"""The characters of base64; the standard library's decoder ignores all others, so they are checked
here."""

_ID_SIZE_MAX: Final = 2_047  # the mark and base64 without padding are never 2048


CHECK_AFTER_MAX_S: Final = 7 * 24 * 3_600
"""The longest delay that EscrowMQ's brokers accept."""


def check_after_seconds(check_after: dt.timedelta | float | None) -> int:
    """Return the whole seconds before a transaction's first check; 0 means the broker's default."""
    if check_after is None:
        return 0
    seconds: object = (
        check_after.total_seconds() if isinstance(check_after, dt.timedelta) else check_after
    )
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not 0 < seconds <= CHECK_AFTER_MAX_S
    ):
        raise UsageError(
            f"check_after={check_after!r}: a timedelta, or seconds up to {CHECK_AFTER_MAX_S}, is "
            "expected; leave it out for the broker's own time (transactionTimeOut)"
        )
    return math.ceil(seconds)


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """The stored half of one message, with all fields that its END needs."""

    broker_name: str
    topic: str
    """The topic, by the broker's name."""
    group: str
    """The producer group, by the broker's name."""
    unique_key: str
    log_offset: int
    queue_offset: int
    signed_id: str = ""
    """The transaction id that EscrowMQ's brokers sign; empty from other brokers."""


def parse_half(
    reply: Command, *, broker_name: str, topic: str, group: str, unique_key: str
) -> Half:
    """Make the `Half` from a broker's reply to a half message."""
    ext = reply.ext or {}
    try:
        _, log_offset = parse_offset_id(ext["msgId"])
        queue_offset = int(ext["queueOffset"])
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(
            f"the answer to a half message lacks a field that its END needs: {error}; "
            f"received {ext}"
        ) from error
    return Half(
        broker_name=broker_name,
        topic=topic,
        group=group,
        unique_key=unique_key,
        log_offset=log_offset,
        queue_offset=queue_offset,
        signed_id=ext.get("escrowId", ""),
    )


def end_fields(half: Half, outcome: Outcome, *, count: int = 0) -> dict[str, str]:
    """Return the header of END_TRANSACTION. `count` is the number of the transaction's messages, if
    it has an id of its own."""
    fields = {
        "producerGroup": half.group,
        "topic": half.topic,
        "commitLogOffset": str(half.log_offset),
        "tranStateTableOffset": str(half.queue_offset),
        "commitOrRollback": str(outcome.value),
        "fromTransactionCheck": "false",
        "msgId": half.unique_key,
        "transactionId": half.unique_key,
        "bname": half.broker_name,
    }
    # A client that knows the half's log position needs no signature. Without one, the broker
    # handles the END like any other, which takes a third of the CPU time there.
    if half.signed_id and (count or not half.unique_key):
        fields["escrowId"] = half.signed_id
    if count:
        fields["escrowCount"] = str(count)
    return fields


def check_answer_fields(
    check: dict[str, str], outcome: Outcome, *, group: str, is_open: bool = False
) -> dict[str, str]:
    """Return the header of END_TRANSACTION that answers a check. `is_open` says that the
    transaction is still open."""
    unique_key = check.get("msgId", "")
    fields = {
        "producerGroup": group,
        "commitLogOffset": check.get("commitLogOffset", "0"),
        "tranStateTableOffset": check.get("tranStateTableOffset", "0"),
        "commitOrRollback": str(outcome.value),
        "fromTransactionCheck": "true",
        "msgId": unique_key,
        "transactionId": check.get("transactionId", unique_key),
    }
    for name in ("topic", "bname"):
        if name in check:
            fields[name] = check[name]
    if is_open:
        fields[OPEN] = "true"
    return fields


def judge_end(reply: Command, outcome: Outcome, *, address: str) -> EscrowMQError | None:
    """Return None if the transaction ended as requested, OutcomeContradicted if it had ended
    another way, otherwise the broker's refusal; then the transaction is still pending."""
    if reply.code == Response.SUCCESS:
        return None
    refusal = response_error(reply.code, reply.remark, address=address)
    if isinstance(refusal, AlreadyCommitted | AlreadyRolledBack | AlreadySettled):
        settled = (reply.ext or {}).get(OUTCOME, type(refusal).__name__)
        contradicted = OutcomeContradicted(
            f"the transaction was to end with {outcome.name}, but it ended before: {settled}; "
            "see who settled it (a check-back, another holder of its id, an operator)"
        )
        contradicted.__cause__ = refusal
        return contradicted
    return refusal


def reported_outcome(error: EscrowMQError) -> Outcome:
    """Return the outcome that the broker reports in an error, in place of the requested one."""
    if isinstance(error.__cause__, AlreadyCommitted):
        return Outcome.COMMIT
    return Outcome.ROLLBACK if isinstance(error.__cause__, AlreadyRolledBack) else Outcome.UNKNOWN


def transaction_id_of(half: Half) -> str:
    """Return the id with which any process can end the transaction."""
    if half.signed_id:
        return half.signed_id
    return _OWN_MARK + base64.urlsafe_b64encode(msgspec.json.encode(half)).rstrip(b"=").decode()


def parse_transaction_id(token: object) -> Half:
    """Parse an id into the half that it names; raises UsageError if the text is not an id."""
    if not isinstance(token, str) or len(token) > _ID_SIZE_MAX:
        raise _invalid_id_error(token)
    try:
        if token.startswith(_OWN_MARK):
            own = token.removeprefix(_OWN_MARK)
            if not _BASE64.fullmatch(own):
                raise _invalid_id_error(token)
            data = base64.urlsafe_b64decode(own + "=" * (-len(own) % 4))
            return msgspec.json.decode(data, type=Half)
        name = signed_id.decode_signed_id(token)[0].broker_name
    except (binascii.Error, UnicodeDecodeError, msgspec.DecodeError, UsageError) as error:
        raise _invalid_id_error(token) from error
    return Half(
        broker_name=name,
        topic="",
        group="",
        unique_key="",
        log_offset=0,
        queue_offset=0,
        signed_id=token,
    )


def _invalid_id_error(token: object) -> UsageError:
    return UsageError(
        f"{str(token)[:32]!r} is no transaction id; pass what `detach()` returned, unchanged"
    )
