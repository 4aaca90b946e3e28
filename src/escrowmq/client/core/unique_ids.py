"""Ids that a client gives to its messages, of RocketMQ's form (MessageClientIDSetter).

Upper-case hex of: 4 address bytes, 2 process id, 4 random (RocketMQ: a class loader's hash),
4 milliseconds since the month began, 2 counter.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
from typing import Final, NamedTuple

_COUNTER_MASK: Final = 0xFFFF
_PROCESS_MASK: Final = 0xFFFF
_MONTHS: Final = 12
_MARK_MASK: Final = 0xFFFF_FFFF
_SET_BACK_MS: Final = 100
"""A time that is earlier than the last one by more than this means that the clock was set back.
Threads that make ids together may pass times that differ by less."""

_MARKS_AFTER: Final = 0x7F4A_7C15
_MARKS_APART: Final = 0x9E37_79B1
"""Difference between the marks of consecutive months. It is odd, so that no two months within four
billion have the same mark."""


class _Month(NamedTuple):
    """A month of local time, and the part that all ids made in it begin with."""

    start_ms: int
    end_ms: int
    front: str


class UniqueIds:
    """Makes unique message ids. The ids of two makers differ if their address, process or `mark` (a
    random number) differ."""

    def __init__(self, *, host: str, process: int, mark: int) -> None:
        address = ipaddress.ip_address(host).packed[-4:]
        self._maker = f"{address.hex()}{process & _PROCESS_MASK:04x}".upper()
        self._mark = mark
        self._counts = itertools.count(1)
        self._month = _Month(start_ms=0, end_ms=0, front="")
        self._last_ms = 0

    def make(self, now_ms: int) -> str:
        """Return an id that this maker never repeats; callable from any thread."""
        month = self._month
        is_set_back = now_ms < self._last_ms - _SET_BACK_MS
        if is_set_back:  # the same times begin again, perhaps with the same counts
            self._mark += _MARKS_AFTER
        if is_set_back or not month.start_ms <= now_ms < month.end_ms:
            month = self._month = self._month_of(now_ms)
        self._last_ms = now_ms
        counter = next(self._counts) & _COUNTER_MASK
        return f"{month.front}{now_ms - month.start_ms:08X}{counter:04X}"

    def _month_of(self, now_ms: int) -> _Month:
        # Months are those of local time, as in RocketMQ: tools read the sending time from an id.
        now = dt.datetime.fromtimestamp(now_ms / 1000).astimezone()
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        # Times and counts start again with each month; another mark prevents equal ids.
        mark = (self._mark + (start.year * _MONTHS + start.month) * _MARKS_APART) & _MARK_MASK
        year, month = start.year + start.month // _MONTHS, start.month % _MONTHS + 1
        return _Month(
            start_ms=int(start.timestamp() * 1000),
            end_ms=int(start.replace(year=year, month=month).timestamp() * 1000),
            front=f"{self._maker}{mark:08X}",
        )
