"""The signature of our own clients, for accounts for which a broker requires it.

RocketMQ's signature (codec/signature.py) covers only the values of the fields: a request signed as
a query can be replayed, even as a deletion. This one is base64 of HMAC-SHA256, keyed with the
account's secret, over

    "escrowmq-1"        so that it is a signature of nothing else
    session             32 hex letters that the broker chose for this connection
    code                4 bytes, big-endian
    count of fields     4 bytes; all fields but Signature, by their names in UTF-8
    name, value         each with its size in 4 bytes before it
    body

One of the fields is `escrowSigned`, a number that grows with each request of the connection. So a
captured request cannot be replayed, on this connection or another; no clocks are compared, and a
broker stores only the session and the last number."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

from escrowmq.codec.signature import SIGNATURE

NUMBER: Final = "escrowSigned"
SESSION: Final = "escrowSession"

_MARK: Final = b"escrowmq-1"


def sign_request(
    code: int, fields: Mapping[str, str], body: bytes, *, secret: str, session: str
) -> str:
    """Return the value of the field `Signature`. It covers all fields except an existing
    `Signature`."""
    pairs = sorted((name.encode(), fields[name].encode()) for name in fields if name != SIGNATURE)
    parts = [_MARK, session.encode(), code.to_bytes(4, "big"), len(pairs).to_bytes(4, "big")]
    for pair in pairs:
        for text in pair:
            parts += len(text).to_bytes(4, "big"), text
    work = hmac.new(secret.encode(), b"".join(parts), "sha256")
    work.update(body)
    return base64.b64encode(work.digest()).decode()


def is_request_signed(
    code: int, fields: Mapping[str, str], body: bytes, *, secret: str, session: str
) -> bool:
    """Whether the signature was made with a secret. Takes constant time."""
    try:
        expected = sign_request(code, fields, body, secret=secret, session=session)
        return hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode())
    except (UnicodeEncodeError, OverflowError):  # an unpaired surrogate; a negative code
        return False
