"""The limits of one HTTP/2 connection; base/fixed_limits has the size of gRPC messages."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base import fixed_limits

STREAMS_MAX: Final = 1_000

STRANGERS_STREAMS_MAX: Final = 100
"""The most open streams of a connection without a proved account: the minimum that RFC 9113
recommends. The first admitted call of a client raises the limit to STREAMS_MAX."""

RESET_LATE_MS: Final = 1_000
"""A cancelled call counts as part of a flood only if it is younger than this. At most STREAMS_MAX
calls can be older, and clients cancel many calls together when their deadlines pass on a slow
broker."""

OVERHEAD_EARNED: Final = 4
"""How many frames without content are allowed for each frame of a call. A client that measures its
connection answers each data frame with a PING and two WINDOW_UPDATE frames."""

FIELDS_AT_ONCE_MAX: Final = 4_000
"""The most header fields of one connection per turn, some 9 ms of work. A field may be a single
byte, and one read can contain 65,536 of them."""

OVERHEAD_WORK: Final = 16
"""To change this many stream windows, or to process this many settings of one frame, counts as one
frame without content: a microsecond or two."""

WINDOW_UPDATES: Final = 10
"""So many WINDOW_UPDATE frames count as one frame without content, because they cost as little as
data of a byte. grpcio sends two with each call, while it may have a thousand calls in flight. Each
piece of less than SMALL_PIECE bytes that such a frame cuts from a message counts as one, too."""

SMALL_PIECE: Final = 1_024
"""A larger piece of a message that is sent adds to the client's budget for floods. With tiny
windows a client could force any number of smaller ones."""


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
    """The most bytes of one connection that wait for the client's window. A stream that exceeds it
    is reset."""

    message_size_max: int = fixed_limits.GRPC_MESSAGE_SIZE_MAX
    partial_size_max: int = fixed_limits.GRPC_PARTIAL_SIZE_MAX

    overhead_max: int = 1_000
    """Frames without content (PING, SETTINGS, PRIORITY, empty DATA, refused streams) that a client
    may send in one burst; each frame of a call adds OVERHEAD_EARNED."""

    overhead_per_s: int = 20
    """How many of these a client may send per second in the long run, without open calls. C++
    clients ping every 60 s."""

    resets_max: int = 1_000
    """Calls that a client may cancel in one burst (CVE-2023-44487); each answered call adds one."""

    resets_per_s: int = 100
