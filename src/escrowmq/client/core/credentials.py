"""A client's credentials."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.errors import UsageError

_KEY_SIZE_MIN: Final = 1


class Credentials(msgspec.Struct, frozen=True):
    """A client's account, for brokers with access control.

    >>> who = escrowmq.Credentials("orders", "the secret of orders")
    >>> with escrowmq.Producer(nameserver, group="signed", credentials=who) as signed:
    ...     sent = signed.send("paid", b"order 1")
    """

    access_key: str
    secret_key: str
    security_token: str = ""

    def __post_init__(self) -> None:
        if len(self.access_key) < _KEY_SIZE_MIN or len(self.secret_key) < _KEY_SIZE_MIN:
            raise UsageError("credentials need an access key and a secret key; one is empty")

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"  # no secret ever in a log
