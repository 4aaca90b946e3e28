"""The limits of one HTTP/2 connection; base/fixed_limits has the size of gRPC messages."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base import fixed_limits

STREAMS_MAX: Final = 1_000

STRANGERS_STREAMS_MAX: Final = 100
"""Open streams of a connection without a proved account: the minimum that RFC 9113 recommends. A
client's first authorized call raises the limit to STREAMS_MAX."""

RESET_LATE_MS: Final = 1_000
"""Cancelling a call that is older than this is not counted. No more than STREAMS_MAX calls can be
open that long, and clients cancel many calls together when deadlines pass on a slow broker."""

OVERHEAD_EARNED: Final = 4
"""Frames without content that each frame of a call allows in addition: a client that measures its
link answers each data frame with a PING and two WINDOW_UPDATE frames."""


FIELDS_AT_ONCE_MAX: Final = 4_000
"""Header fields of one connection per turn, some 9 ms: each may be a single byte, and a read can
contain 65,536 of these."""

OVERHEAD_WORK: Final = 16
"""This many stream windows, or settings of one frame, cost as much as an empty frame: a microsecond
or two."""


class Http2Limits(msgspec.Struct, frozen=True):
    """The limits of one client."""

    streams_max: int = STREAMS_MAX
    """Open streams of one connection (MAX_CONCURRENT_STREAMS); more are refused."""

    header_list_size_max: int = 16_384
    """Bytes of a request's header fields, and of their block."""

    header_frames_max: int = 16
    """CONTINUATION frames of one block, which usually fits into one HEADERS frame."""

    stream_window: int = 1_048_576
    """Flow-control window of one stream."""

    connection_window: int = 4_194_304
    """Flow-control window of a connection."""

    unsent_size_max: int = 67_108_864
    """Bytes that wait on one connection for the client's window; beyond that, their stream is
    reset."""

    message_size_max: int = fixed_limits.GRPC_MESSAGE_SIZE_MAX
    partial_size_max: int = fixed_limits.GRPC_PARTIAL_SIZE_MAX

    overhead_max: int = 1_000
    """Frames without content (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, refused streams)
    that a client may send in one burst; each frame of a call adds OVERHEAD_EARNED."""

    overhead_per_s: int = 20
    """How many of these a client may send per second in the long run, without open calls. C++
    clients ping every 60 s."""

    resets_max: int = 1_000
    """Calls that a client may cancel in one burst (CVE-2023-44487); each answered call adds one."""

    resets_per_s: int = 100
