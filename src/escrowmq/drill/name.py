"""Names of drills, which identify them in logs."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from escrowmq.net.clock import SystemClock


def make_drill_name() -> str:
    """Make a name from the start time and a random part."""
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
