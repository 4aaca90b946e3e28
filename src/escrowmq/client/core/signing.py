"""Authentication fields of requests."""

from __future__ import annotations

from typing import Final

from escrowmq.client.core.credentials import Credentials
from escrowmq.client.core.dialogue import Fields
from escrowmq.codec.own_signature import NUMBER, sign_request
from escrowmq.codec.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign_fields

_NOTHING: Final[Fields] = {}


class Signer:
    """Adds the common fields to requests, and signs them for an account."""

    def __init__(self, who: Credentials | None, *, also: Fields = _NOTHING) -> None:
        self._who = who
        self._also = also

    def add_common_fields(self, fields: Fields, body: bytes) -> Fields:
        """Return the fields with those that every request carries and, if there is an account,
        RocketMQ's signature."""
        who = self._who
        if self._also:
            fields = {**fields, **self._also}
        if who is not None:
            fields = {**fields, ACCESS_KEY: who.access_key}
            if who.security_token:
                fields[SECURITY_TOKEN] = who.security_token
            fields[SIGNATURE] = sign_fields(fields, body, secret=who.secret_key)
        return fields

    def add_own_signature(
        self, code: int, fields: Fields, body: bytes, session: str, number: int
    ) -> Fields:
        """Return the fields with EscrowMQ's own signature, for a broker that requires more than
        RocketMQ's."""
        assert self._who is not None, "nobody asks for it who has no account"
        fields = {**fields, NUMBER: str(number)}
        fields[SIGNATURE] = sign_request(
            code, fields, body, secret=self._who.secret_key, session=session
        )
        return fields
