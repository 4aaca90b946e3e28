"""Whether a send that the fast path has parsed may be stored, where peers have to prove their
identity: extracts what its account has signed from a header in either encoding, for
broker/fast/publish_grants."""

from __future__ import annotations

from escrowmq.broker.fast.publish_grants import PublishGrants
from escrowmq.codec.request_shapes import (
    NEVER_ALIKE,
    Alike,
    JsonSend,
    SendShape,
    read_json_fields,
)
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, content_of


def lets_in(
    grants: PublishGrants,
    shape: SendShape,
    alike: Alike,
    data: bytes,
    at: int,
    header_end: int,
    end: int,
) -> bool:
    """Whether to store a request of a known shape at a position."""
    signed = shape.signed
    _, queue, born, properties = alike
    if signed is None or _is_for_the_door(properties):
        return False
    code = int.from_bytes(data[at + 8 : at + 10], "big")
    return grants.let_in(
        (code, signed.access_key, shape.header.topic),
        signed.content(queue, born, properties),
        shape.signature(data, header_end),
        data[header_end:end],
    )


def lets_in_json(
    grants: PublishGrants, found: JsonSend, data: bytes, at: int, header_end: int, end: int
) -> bool:
    """Whether to store a request whose JSON header begins at a position."""
    fields = read_json_fields(data[at:header_end])
    if fields is None or not NEVER_ALIKE.isdisjoint(fields):
        return False
    if _is_for_the_door(found.extFields.i.encode()):
        return False
    return grants.let_in(
        (found.code, fields.get(ACCESS_KEY, ""), found.extFields.b),
        content_of(fields),
        fields.get(SIGNATURE, "").encode(),
        data[header_end:end],
    )


def _is_for_the_door(properties: bytes) -> bool:
    """Whether a topic may belong to an account, or need more than rights to a topic."""
    return b"TRAN_MSG" in properties or b"escrow" in properties
