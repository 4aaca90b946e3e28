"""Compressed bodies: bit 0 of sysFlag marks them, and its type bits give the form.

sysFlag & 0x700   form
          0x000   zlib (clients before 5.0, and Go's)
          0x100   LZ4, frame format
          0x200   Zstandard
          0x300   zlib
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterator
from typing import Any, Final

from escrowmq.base.fixed_limits import DECOMPRESSED_SIZE_MAX
from escrowmq.base.message import SysFlag
from escrowmq.errors import RemoteProtocolError, UsageError

FORMS: Final = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
_ZSTD_STEP_SIZE: Final = 512
_READ_STEP_SIZE: Final = 65_536
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32


def compress(body: bytes, *, form: str, level: int) -> tuple[bytes, int]:
    """Compress a body. Return it with its sysFlag bits."""
    bits = FORMS.get(form)
    if bits is None:
        raise UsageError(f"compression {form!r}; one of {', '.join(sorted(FORMS))} is expected")
    if form == "zlib":
        return zlib.compress(body, level), bits | SysFlag.COMPRESSED
    packed: bytes
    if form == "lz4":
        packed = _import_library("lz4.frame").compress(body, compression_level=level)
    else:
        packed = _import_library("zstandard").ZstdCompressor(level=level).compress(body)
    return packed, bits | SysFlag.COMPRESSED


def decompress(body: bytes, sys_flag: int, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress a body. Raises RemoteProtocolError if it is broken or larger than `size_max`."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    bits = sys_flag & SysFlag.COMPRESSION_MASK
    try:
        if bits == FORMS["lz4"]:
            decoder = _import_library("lz4.frame").LZ4FrameDecompressor()
            plain = bytes(decoder.decompress(body, max_length=size_max + 1))
            is_whole = decoder.eof
        elif bits == FORMS["zstd"]:
            plain, is_whole = _decompress_zstd(body, size_max)
        else:
            inflater = zlib.decompressobj()
            plain = inflater.decompress(body, size_max + 1)
            is_whole = inflater.eof
    except (zlib.error, RuntimeError, ValueError, EOFError) as error:
        raise RemoteProtocolError(
            f"body of {len(body)} bytes cannot be decompressed: {error}"
        ) from error
    if len(plain) > size_max:
        raise RemoteProtocolError(
            f"body of {len(body)} bytes decompresses to more than {size_max} bytes"
        )
    if not is_whole:
        raise RemoteProtocolError(f"body of {len(body)} bytes is cut short")
    return plain


def size_until_error(body: bytes, sys_flag: int, *, size_max: int) -> int:
    """Return how many bytes of a broken compressed body can be decompressed before the error, up to
    `size_max`: what it costs to find the error. The body is decompressed in steps, because the
    libraries drop what precedes an error. Gzip is understood too."""
    size = 0
    with contextlib.suppress(Exception):  # each library has errors of its own
        for part in _decompressed_parts(body, sys_flag & SysFlag.COMPRESSION_MASK):
            size += len(part)
            if size >= size_max:
                break
    return min(size, size_max)


def _decompressed_parts(body: bytes, bits: int) -> Iterator[bytes]:
    """Yield the decompressed body in steps, until it ends. Raises the library's error where it
    breaks."""
    if bits == FORMS["lz4"]:
        read = _import_library("lz4.frame").LZ4FrameFile(io.BytesIO(body)).read
    elif bits == FORMS["zstd"]:
        read = _import_library("zstandard").ZstdDecompressor().stream_reader(body).read
    else:
        inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
        while part := inflater.decompress(body, _READ_STEP_SIZE):
            yield part
            body = inflater.unconsumed_tail
        return
    while part := read(_READ_STEP_SIZE):
        yield part


def _decompress_zstd(body: bytes, size_max: int) -> tuple[bytes, bool]:
    """Decompress a body. Return it (more than `size_max` bytes if it is too large), and whether its
    frame was complete. The input is fed in small steps, because the library does not limit the
    output."""
    library = _import_library("zstandard")
    decoder = library.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(body), _ZSTD_STEP_SIZE):
            part = decoder.decompress(body[at : at + _ZSTD_STEP_SIZE])
            parts.append(part)
            size += len(part)
            if decoder.eof or size > size_max:
                break
    except library.ZstdError as error:
        raise ValueError(str(error)) from error
    return b"".join(parts), decoder.eof


def _import_library(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a library when it is first needed. Most clients never need it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed; install it, or use zlib") from error
