"""Replies to ENDs that are alike but for the number of the request."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply

_OPAQUE: Final = slice(13, 17)
"""In a binary frame."""

_SIZES: Final = 8
"""In front of a header in JSON: that of the frame, and its own."""


class EndedTemplate:
    """The replies that say the same, whatever form the request had. Measured: 0.2 us each, where
    encoding one takes 4."""

    __slots__ = ("_json", "back", "front")

    def __init__(self, told: dict[str, str]) -> None:
        (frame, json) = (
            encode_reply(Command(code=0, opaque=0, is_binary=is_binary), 0, ext=told)
            for is_binary in (True, False)
        )
        self.front, self.back = frame[: _OPAQUE.start], frame[_OPAQUE.stop :]
        """What stands before the number and behind it, in the binary form."""
        header = json[_SIZES:].replace(b"%", b"%%")
        self._json, count = re.subn(rb'(?<="opaque":)0(?=[,}])', b"%d", header)
        assert count == 1, header

    def binary(self, opaque: bytes) -> bytes:
        """The whole frame, in the binary form."""
        return self.front + opaque + self.back

    def json(self, opaque: int) -> bytes:
        """The whole frame, in JSON."""
        header = self._json % opaque
        size = len(header)
        return (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + header
