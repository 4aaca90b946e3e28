"""When a group's member asks the authority, and how long it waits for others."""

from __future__ import annotations

from typing import Final

import msgspec

AGAIN_MS: Final = 500
"""Pause in ms before another attempt if the authority did not answer."""

SUCCESSION_LOOK_MS: Final = 20
QUIET_MS: Final = 1_500
"""If a master was silent for this long, its members often check whether another one waits for
them."""

CALLED_MS: Final = 3_000
"""A master that has handed over waits this long before it accepts messages again."""

REBUILD_MS: Final = 10_000
"""An order to rebuild the group is forgotten after this time, in which its command waits for it."""

CREATE_WAIT_MS: Final = 3_000
"""A member with an empty folder waits this long for another one to create the group."""


class MemberTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The timeouts of a member."""

    silence_ms: int = 3_000
    """A copy that lacks data for this many ms is no longer in sync."""
    takeover_ms: int = 3_500
    """A member in sync takes over when its master has been silent for this long."""
    leader_look_ms: int = 2_000
    """Interval at which a master reads the record. It is shorter than `CREATE_WAIT_MS`, so that a
    master whose record was deleted writes it again before an empty member makes another group."""
    follower_look_ms: int = 10_000
    search_ms: int = 1_000
    """Interval at which a member without a master reads the record."""
