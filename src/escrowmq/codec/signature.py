"""The signature of ACL 1.0 and 2.0: base64 of HMAC-SHA1 over the values of all header fields in
the order of their names (UTF-16 units, as Java sorts), and the body behind them."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE: Final = "Signature"

_LARGE_SIZE: Final = 65_536
"""A body that is not copied to be signed; for a smaller one that is faster."""


def sign(fields: Mapping[str, str], body: bytes, *, secret: str) -> str:
    """The value of the field `Signature`; one that is among the fields is not covered."""
    names = [name for name in fields if name != SIGNATURE]
    if not "".join(names).isascii():
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    else:
        names.sort()
    content = "".join([fields[name] for name in names]).encode()
    if len(body) < _LARGE_SIZE:
        found = hmac.digest(secret.encode(), content + body, "sha1")
    else:
        work = hmac.new(secret.encode(), content, "sha1")
        work.update(body)
        found = work.digest()
    return base64.b64encode(found).decode()
