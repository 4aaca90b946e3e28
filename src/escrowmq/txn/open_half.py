"""A half that an END names, or that the broker ends itself: fetched once, and handed on."""

from __future__ import annotations

from typing import Final, NamedTuple

from escrowmq.base.message import Message, StoredMessage
from escrowmq.base.own_properties import OWNER

_OWNED: Final = b"\x02" + OWNER.encode() + b"\x01%b\x02"
"""The mark of a half's account, after its sender's properties."""


class OpenHalf(NamedTuple):
    """A half, and what its end needs to know of it."""

    queue_offset: int
    """The number of its transaction. A half that was resumed is pending under its copy's."""

    message: StoredMessage
    encoded: bytes | None = None
    """Its properties as they were stored, if they are cached."""

    def encoded_for(self, message: Message) -> bytes | None:
        """The encoded properties of a message made from it, if they are unchanged, or unchanged
        except for the account's mark."""
        own, wanted = self.message.properties, message.properties
        # A final shares the half's own dict unless something was removed (`final_of`): code that
        # changed it in place would store the old bytes.
        if self.encoded is None or wanted is own:
            return self.encoded
        if OWNER in own and OWNER not in wanted and {**wanted, OWNER: own[OWNER]} == own:
            return self.encoded.replace(_OWNED % own[OWNER].encode(), b"\x02", 1)
        return None
