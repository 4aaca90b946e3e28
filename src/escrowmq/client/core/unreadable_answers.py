"""Errors for answers that cannot be parsed: they name the server that sent the answer, and the
likely cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from escrowmq.errors import CorruptRecord, ProtocolError, RemoteProtocolError


@contextmanager
def convert_parse_errors(address: str, code: int) -> Iterator[None]:
    """Turn errors of the enclosed code, which parses an answer, into a RemoteProtocolError that
    names the sender and the fault."""
    try:
        yield
    except (ProtocolError, CorruptRecord, msgspec.MsgspecError, UnicodeError) as error:
        raise RemoteProtocolError(
            f"{address} answers request {code} with something that cannot be parsed: "
            f"{error}; is that a broker or a name server of a supported release, and does "
            "nothing in between alter its answers?"
        ) from error
