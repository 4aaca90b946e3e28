"""The bounds of one connection."""

from __future__ import annotations

import msgspec

from escrowmq.base import limits


class Http2Limits(msgspec.Struct, frozen=True):
    """What one client may do; base/limits says what each is for."""

    streams_max: int = limits.HTTP2_STREAMS_MAX
    header_list_size_max: int = limits.HTTP2_HEADER_LIST_SIZE_MAX
    header_frames_max: int = limits.HTTP2_HEADER_FRAMES_MAX
    stream_window: int = limits.HTTP2_STREAM_WINDOW
    connection_window: int = limits.HTTP2_CONNECTION_WINDOW
    unsent_size_max: int = limits.HTTP2_UNSENT_SIZE_MAX
    message_size_max: int = limits.GRPC_MESSAGE_SIZE_MAX
    partial_size_max: int = limits.GRPC_PARTIAL_SIZE_MAX
    overhead_max: int = limits.HTTP2_OVERHEAD_MAX
    overhead_per_s: int = limits.HTTP2_OVERHEAD_PER_S
    resets_max: int = limits.HTTP2_RESETS_MAX
    resets_per_s: int = limits.HTTP2_RESETS_PER_S
