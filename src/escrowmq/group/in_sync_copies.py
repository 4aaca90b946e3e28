"""The master's knowledge of each copy: when it last had everything, and whether it may be in
sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

_GONE_MS: Final = 500
"""A copy whose connection was closed stays in sync for this time, in which it may connect again."""

_REJOIN_MS: Final = 200
"""A copy that has just left the in-sync set may join again only after this time, so that reports
from before do not count."""

_REST_MS: Final = 10_000
_REST_MAX_MS: Final = 160_000
_FORGET_MS: Final = 600_000


class _CopyState(msgspec.Struct):
    incarnation: str
    current_ms: int
    """The latest time at which it had everything that was stored then."""
    may_join_ms: int = 0
    rest_ms: int = 0
    """How long the copy must wait before it may join the in-sync set; longer each time it falls
    behind."""
    left_ms: int = 0


class CopyStates:
    """The state of each copy, by member."""

    def __init__(self) -> None:
        self._of: dict[str, _CopyState] = {}
        self._has_all: Callable[[str, str], bool] = lambda _member, _incarnation: False

    def set_has_all(self, has_all: Callable[[str, str], bool]) -> None:
        """Set the function that returns whether a member has everything that was acknowledged."""
        self._has_all = has_all

    def set_in_sync(self, in_sync: Mapping[str, str], now_ms: int) -> None:
        """Note the in-sync set of the record that was just written."""
        for member, incarnation in in_sync.items():
            known = self._of.get(member)
            if known is None or known.incarnation != incarnation:
                self._of[member] = _CopyState(incarnation, now_ms)
        for member, copy in self._of.items():
            if member not in in_sync and not copy.left_ms:
                copy.left_ms = now_ms
                copy.may_join_ms = now_ms + copy.rest_ms
                copy.rest_ms = min(max(copy.rest_ms * 2, _REST_MS), _REST_MAX_MS)
            elif member in in_sync:
                if copy.left_ms and now_ms - copy.left_ms > _FORGET_MS:
                    copy.rest_ms = 0
                copy.left_ms = 0

    def note_report(self, member: str, incarnation: str, *, current_ms: int) -> None:
        """Record that a copy has everything that was stored up to the time `current_ms`."""
        known = self._of.get(member)
        if known is None or known.incarnation != incarnation:
            left_ms = 1 if known is None or known.left_ms else 0
            self._of[member] = known = _CopyState(incarnation, current_ms, left_ms=left_ms)
        known.current_ms = max(known.current_ms, current_ms)

    def note_disconnected(self, member: str, *, silence_ms: int, now_ms: int) -> None:
        """Record that the connection of a copy was closed."""
        known = self._of.get(member)
        if known is not None:
            known.current_ms = min(known.current_ms, now_ms - silence_ms + _GONE_MS)

    def ignore_suspension(self, span_ms: int) -> None:
        """Shift all times by how long this process was suspended, so that no copy is late because
        of that."""
        for copy in self._of.values():
            copy.current_ms += span_ms

    def late_members(self, in_sync: Mapping[str, str], before_ms: int, *, me: str) -> set[str]:
        """Return the members of the in-sync set that have lacked something since `before_ms`, or
        have another incarnation than the set says."""
        return {
            member
            for member, incarnation in in_sync.items()
            if member != me and self._is_late(member, incarnation, before_ms)
        }

    def _is_late(self, member: str, incarnation: str, before_ms: int) -> bool:
        copy = self._of.get(member)
        return copy is None or copy.incarnation != incarnation or copy.current_ms < before_ms

    def members_caught_up(
        self, in_sync: Mapping[str, str], now_ms: int
    ) -> Iterator[tuple[str, str]]:
        """Yield the members that have everything and are not in the in-sync set."""
        for member, copy in self._of.items():
            is_rested = now_ms >= max(copy.may_join_ms, copy.left_ms + _REJOIN_MS)
            # Its last report is not enough: more may have been acknowledged since.
            if member not in in_sync and is_rested and self._has_all(member, copy.incarnation):
                yield member, copy.incarnation
