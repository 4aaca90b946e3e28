"""Answers that cannot be read: whose they are, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from escrowmq.errors import CorruptRecord, ProtocolError, RemoteProtocolError


@contextmanager
def reading_from(address: str, code: int) -> Iterator[None]:
    """What fails in here was read from the answer to a request: RemoteProtocolError says who gave
    it, and what is wrong with it."""
    try:
        yield
    except (ProtocolError, CorruptRecord, msgspec.MsgspecError, UnicodeError) as error:
        raise RemoteProtocolError(
            f"{address} answers request {code} with what cannot be read: {error}; is that a broker "
            "or a name server, of a release that this one knows, and is nothing in between that "
            "alters what it says?"
        ) from error
