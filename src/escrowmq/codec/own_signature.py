"""The signature of our own clients, for accounts of which a broker wants it.

RocketMQ's (codec/signature.py) covers the values of the fields alone: what was signed as a look can
be sent as a deletion, and be sent again. This one is base64 of HMAC-SHA256, its key the account's
secret, over

    "escrowmq-1"        so that it is a signature of nothing else
    session             32 hex letters that the broker chose for this connection
    code                4 bytes, big-endian
    count of fields     4 bytes; all fields but Signature, by their names in UTF-8
    name, value         each with its size in 4 bytes before it
    body

Among the fields is `escrowSigned`, a number that grows with each request of the connection. What
was heard is worth nothing on another connection, and nothing a second time on the same one; no
clock is compared, and all a broker keeps is the session and the last number."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

from escrowmq.codec.signature import SIGNATURE

NUMBER: Final = "escrowSigned"
SESSION: Final = "escrowSession"

_MARK: Final = b"escrowmq-1"


def sign_own(
    code: int, fields: Mapping[str, str], body: bytes, *, secret: str, session: str
) -> str:
    """The value of the field `Signature`; one that is among the fields is not covered."""
    pairs = sorted((name.encode(), fields[name].encode()) for name in fields if name != SIGNATURE)
    parts = [_MARK, session.encode(), code.to_bytes(4, "big"), len(pairs).to_bytes(4, "big")]
    for pair in pairs:
        for text in pair:
            parts += len(text).to_bytes(4, "big"), text
    work = hmac.new(secret.encode(), b"".join(parts), "sha256")
    work.update(body)
    return base64.b64encode(work.digest()).decode()


def is_signed_own(
    code: int, fields: Mapping[str, str], body: bytes, *, secret: str, session: str
) -> bool:
    """Whether the holder of a secret has signed; takes as long for a nearly right signature."""
    try:
        expected = sign_own(code, fields, body, secret=secret, session=session)
        return hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode())
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; a code below 0
        return False
