"""Names of drills, by which they are found in logs."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from escrowmq.net.clock import SystemClock


def drill_name() -> str:
    """When it begins, and something random."""
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
