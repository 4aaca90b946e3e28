"""A client's credentials."""

from __future__ import annotations

import msgspec

from escrowmq.errors import UsageError


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
        if not self.access_key or not self.secret_key:
            raise UsageError("credentials need an access key and a secret key; one is empty")

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"  # no secret ever in a log
