"""The bounds of one HTTP/2 connection; base/fixed_limits says how large a gRPC message may be."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base import fixed_limits

STREAMS_MAX: Final = 1_000

STRANGERS_STREAMS_MAX: Final = 100
"""The same on a connection on which nobody has proved yet who he is: what RFC 9113 wants servers to
allow at least. A client's first call makes it STREAMS_MAX."""

RESET_LATE_MS: Final = 1_000
"""A call that is given up after so long does not count: no more than STREAMS_MAX can be open that
long, and clients give calls up in masses when their deadlines pass on a slow broker."""

OVERHEAD_EARNED: Final = 4
"""A client that measures its link answers each frame of data with a PING and two WINDOW_UPDATE."""


FIELDS_AT_ONCE_MAX: Final = 8_000
"""Header fields of one connection that are read before it is the others' turn, some 4 ms: each may
be a single byte, and a read has 65,536 of these."""

OVERHEAD_WORK: Final = 16
"""So many windows of streams, or settings of one frame, cost as much as a frame that carries
nothing: a microsecond or two."""


class Http2Limits(msgspec.Struct, frozen=True):
    """What one client may do."""

    streams_max: int = STREAMS_MAX
    """Open streams of one connection (MAX_CONCURRENT_STREAMS); further ones are refused."""

    header_list_size_max: int = 16_384
    """Bytes of a request's header fields, and of the block that they come in."""

    header_frames_max: int = 16
    """CONTINUATION frames of one block, which fits into one HEADERS frame."""

    stream_window: int = 1_048_576
    """Bytes under way to one stream."""

    connection_window: int = 4_194_304
    """Bytes under way to all streams of a connection."""

    unsent_size_max: int = 67_108_864
    """Bytes that wait on one connection for a client to make room; beyond, the stream that they
    are for is given up."""

    message_size_max: int = fixed_limits.GRPC_MESSAGE_SIZE_MAX
    partial_size_max: int = fixed_limits.GRPC_PARTIAL_SIZE_MAX

    overhead_max: int = 1_000
    """Frames that only cost (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, refused streams)
    that a client may send at once; each frame of a call gives it room for OVERHEAD_EARNED more."""

    overhead_per_s: int = 20
    """How many a second it may send for ever, with no call open. C++ clients ping each 60 s."""

    resets_max: int = 1_000
    """Calls that a client may give up at once (CVE-2023-44487); each call that was answered gives
    it room for one more."""

    resets_per_s: int = 100
