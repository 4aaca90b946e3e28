"""A half that is about to be ended, with the data that its end needs."""

from __future__ import annotations

from typing import Final, NamedTuple

from escrowmq.base.message import Message, StoredMessage
from escrowmq.base.own_properties import OWNER

_OWNED: Final = b"\x02" + OWNER.encode() + b"\x01%b\x02"
"""Template of the encoded property with the mark of a half's account, with the separators around
it."""


class OpenHalf(NamedTuple):
    """A half that is about to be ended, with the data that its end needs."""

    queue_offset: int
    """The number under which its transaction is pending. After a resumption this is the copy's
    queue offset."""

    message: StoredMessage
    encoded: bytes | None = None
    """The half's encoded properties, if they are cached."""

    def encoded_properties_for(self, message: Message) -> bytes | None:
        """Return the encoded properties of a message made from this half, if they are cached and
        equal to the half's, apart from the account's mark."""
        own, wanted = self.message.properties, message.properties
        # A final shares the half's own dict unless something was removed (`make_final`): code that
        # changed it in place would store the old bytes.
        if self.encoded is None or wanted is own:
            return self.encoded
        if OWNER in own and OWNER not in wanted and {**wanted, OWNER: own[OWNER]} == own:
            return self.encoded.replace(_OWNED % own[OWNER].encode(), b"\x02", 1)
        return None
