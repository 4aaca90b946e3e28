"""Parsing of addresses that users write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from escrowmq.errors import UsageError

_PORT_MAX: Final = 65_535
_SEPARATORS: Final = re.compile(r"[;,\s]+")


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return `host:port` of each name server, in the order given, without duplicates."""
    parts: object = _SEPARATORS.split(text.strip()) if isinstance(text, str) else text
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise UsageError(f"name_servers={text!r}; 'host:port', or a list of these, is expected")
    found = [part.removeprefix("http://") for part in parts if part]
    if not found:
        raise UsageError(
            "no name server is given; pass 'host:port' (several separated by ';'), or set "
            "the environment variable NAMESRV_ADDR"
        )
    for address in found:
        if "://" in address:
            raise UsageError(f"address {address!r}: 'host:port' is expected, without a prefix")
        split_address(address)
    return tuple(dict.fromkeys(found))


def split_address(address: str) -> tuple[str, int]:
    """Return host and port; raises UsageError unless the text is `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise UsageError(
            f"address {address!r}: 'host:port' with a port of 1..{_PORT_MAX} is expected"
        )
    return host, int(port)
