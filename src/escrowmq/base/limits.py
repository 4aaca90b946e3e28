"""Every bound of the system that is not a setting, by name."""

from __future__ import annotations

from typing import Final

FRAME_SIZE_MAX: Final = 16_777_216
"""A remoting frame with its length field; the peer's com.rocketmq.remoting.frameMaxLength."""

FRAME_SIZE_FIELD: Final = 4

EXT_FIELDS_MAX: Final = 512
"""Header fields of one command."""

TOPIC_SIZE_MAX: Final = 127
"""Bytes of a topic's name; retry and dead-letter topics may have TOPIC_SIZE_MAX_LONG."""

TOPIC_SIZE_MAX_LONG: Final = 255

TOPIC_QUEUES_MAX: Final = 65_536
"""Queues of one topic; figures of a topic are worked out queue by queue."""

GROUP_SIZE_MAX: Final = 255

PROPERTIES_SIZE_MAX: Final = 32_767
"""Encoded properties of one message; the record keeps the length in a signed short."""

PULL_MESSAGES_MAX: Final = 1024
"""Messages of one pull answer, whatever the client asks for."""

SEND_BUFFER_SIZE_MAX: Final = 64 * 1024 * 1024
"""Unsent bytes of one peer that does not read; beyond, its connection is closed."""

PULLS_HELD_MAX: Final = 100_000
"""Long polls held by one broker; beyond, the oldest is answered at once."""

DECOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
"""A body after decompression."""

POP_MESSAGES_MAX: Final = 32
"""Messages of one pop; the peer refuses to be asked for more."""

CHECK_POINTS_MAX: Final = 2_000_000
"""Pops that are not acknowledged; beyond, nothing more is handed out."""
