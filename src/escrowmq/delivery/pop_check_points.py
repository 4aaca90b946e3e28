"""The check points in memory: popped messages that are not acknowledged, and when they are due for
redelivery.

Check points with the same revive queue and invisible time form a track. They are due in the order
in which they were made, which is also that of their records. So a track is a simple queue that
gives both the next due check point and the oldest record still needed. One whose record is in
another order (it was stored again, or a clock was set back) has a track with those that are due at
the same time. Measured: 209 bytes for a check point of one message, 6 a message for one of 32.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from escrowmq.delivery.revive_records import CheckPointKey

NEVER_MS: Final = 1 << 62
MESSAGES_MAX: Final = 62
"""The most messages of one check point, more than any pop may request."""

_TIME_BITS: Final = 44
_TIME_MASK: Final = (1 << _TIME_BITS) - 1
TIME_MAX: Final = _TIME_MASK
"""The highest valid pop time."""

_REVIVE_BITS: Final = 10
_START_SHIFT: Final = _TIME_BITS + _REVIVE_BITS
FIRST_POSTPONEMENT_MS: Final = 1_000
"""The pause before the first retry of a check point whose messages could not be read. It doubles
with each retry."""

PUT_OFF_MAX_MS: Final = 32_000

_DEAD_MIN: Final = 64
_TRACKS_MIN: Final = 64
_AHEAD_STEP_MS: Final = 1_000
_STEP_MS: Final = 1_000
"""The precision of the times at which several check points are due, so that many share a track."""

TrackKey = tuple[int, int, int, int, int]
"""Identifies a track: revive queue, invisible time, and grace. For postponed check points also the
pause and the time of the retry; for those with a record in another order, 0 and the time at which
they are due; otherwise 0 and 0."""


class PoppedQueue:
    """A queue as read by one group, with its open check points by their key."""

    __slots__ = ("group", "open", "queue_id", "topic")

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.open: dict[int, CheckPoint] = {}


class CheckPointTrack:
    """Check points in the order in which they are due, or those that are due or retried at the same
    time."""

    __slots__ = (
        "dead", "delay_ms", "grace_ms", "is_scheduled", "key", "points", "revive_queue", "span_ms",
        "until_ms",
    )  # fmt: skip

    def __init__(self, key: TrackKey) -> None:
        self.set_key(key)
        self.points: deque[CheckPoint] = deque()
        self.dead = 0
        self.is_scheduled = False

    def set_key(self, key: TrackKey) -> None:
        """Set this track's key and the values in it."""
        self.key = key
        self.revive_queue, invisible_ms, self.grace_ms, self.delay_ms, self.until_ms = key
        self.span_ms = invisible_ms + self.grace_ms

    def due_ms(self) -> int:
        """Return when the first check point is due, or will be retried."""
        return self.until_ms or self.first_due_ms()

    def first_due_ms(self) -> int:
        """Return when the first check point was due originally."""
        return self.points[0].pop_ms + self.span_ms

    def oldest_record(self) -> int:
        """Return the lowest offset of its open check points' records in the revive queue."""
        if not self.until_ms:
            return self.points[0].revive_offset
        # Those of the same time come from several tracks, in any order.
        return min(point.revive_offset for point in self.points if not point.is_finished)

    def drop_finished(self) -> None:
        """Remove finished check points from the front."""
        points = self.points
        while points and points[0].is_finished:
            points.popleft()
            self.dead -= 1
        assert 0 <= self.dead <= len(points), (self.dead, len(points))


# `eq=False`: the ledger keys its acks by the object, while `acked` changes. `gc=False`, since there
# may be two million: `Popped._remove` breaks the reference cycle with its line.
class CheckPoint(msgspec.Struct, gc=False, eq=False):
    """Messages that a group popped together from one queue."""

    key: int
    line: PoppedQueue
    track: CheckPointTrack
    revive_offset: int
    acked: int
    """One bit for each message, set if it is acknowledged."""

    count: int
    diffs: tuple[int, ...] | None
    """The offsets of the messages relative to the start; None if they are consecutive."""

    holder: int = 0
    """The connection number of the consumer for which the messages are renewed while it is
    connected (delivery/pop_auto_renewal); 0 if none."""

    @property
    def start_offset(self) -> int:
        """The queue offset at which the pop began to read."""
        return self.key >> _START_SHIFT

    @property
    def pop_ms(self) -> int:
        """The time of the pop."""
        return self.key & _TIME_MASK

    @property
    def is_finished(self) -> bool:
        """Whether all messages are acknowledged."""
        return self.acked == (1 << self.count) - 1

    def identity(self) -> CheckPointKey:
        """Return the identity of the check point."""
        line, revive = self.line, self.track.revive_queue
        start, pop_ms = self.start_offset, self.pop_ms
        return CheckPointKey(line.group, line.topic, line.queue_id, start, pop_ms, revive)

    def open_offsets(self) -> list[int]:
        """Return the queue offsets of unacknowledged messages."""
        start, diffs, acked = self.start_offset, self.diffs, self.acked
        return [
            start + (index if diffs is None else diffs[index])
            for index in range(self.count)
            if not acked >> index & 1
        ]

    def bit_of(self, queue_offset: int) -> int:
        """Return the bit of a message; 0 if it does not belong to this check point."""
        diff = queue_offset - self.start_offset
        if self.diffs is None:
            return 1 << diff if 0 <= diff < self.count else 0
        return 1 << self.diffs.index(diff) if diff in self.diffs else 0


class CheckPoints:
    """All open check points, by queue and by due time."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str, int], PoppedQueue] = {}
        self._tracks: dict[TrackKey, CheckPointTrack] = {}
        self._tracks_max = _TRACKS_MIN
        """The number of tracks at which empty ones are removed: a client may ask for another
        invisible time with each message."""
        self._dues: list[tuple[int, int, CheckPointTrack]] = []
        self._serial = 0
        self.count = 0
        self.counts: Counter[str] = Counter()
        """The number of open check points of each group."""

    def in_flight_counts(self, points_max: int) -> Counter[tuple[str, str]] | None:
        """Return the number of messages in flight by group and topic; None if there are more than
        `points_max` check points, because each must be examined."""
        if self.count > points_max:
            return None
        found: Counter[tuple[str, str]] = Counter()
        for line in self._lines.values():
            held = sum(point.count - point.acked.bit_count() for point in line.open.values())
            found[line.group, line.topic] += held
        return found

    def find(self, handle: CheckPointKey) -> CheckPoint | None:
        """Return the open check point; None if it is finished or never existed."""
        # Both come from clients. A value that is too wide would reach into its neighbour's bits of
        # the key, and name another check point.
        if handle.revive_queue >> _REVIVE_BITS or handle.pop_ms >> _TIME_BITS:
            return None
        line = self._lines.get(handle[:3])
        return None if line is None else line.open.get(_key(handle))

    @staticmethod
    def ahead_ms(pop_ms: int, now_ms: int) -> int:
        """Return how far a pop time is in the future, in whole seconds. That happens if a clock was
        ahead, or after many changes in one millisecond. The check point is due that much earlier;
        whole seconds let such check points share tracks."""
        ahead = max(0, pop_ms - now_ms)
        return ahead - ahead % _AHEAD_STEP_MS

    def add(
        self,
        handle: CheckPointKey,
        queue_offsets: Sequence[int],
        *,
        invisible_ms: int,
        revive_offset: int,
        grace_ms: int,
        acked: int = 0,
        holder: int = 0,
    ) -> CheckPoint:
        """Add a check point with the offset of its record. It replaces one with the same
        identity."""
        assert 0 < len(queue_offsets) <= MESSAGES_MAX, len(queue_offsets)
        old = self.find(handle)
        if old is not None:
            self.acknowledge_all(old)
        line = self._lines.get(handle[:3])
        if line is None:
            line = self._lines[handle[:3]] = PoppedQueue(*handle[:3])
        track = self._get_or_create_track((handle.revive_queue, invisible_ms, grace_ms, 0, 0))
        if track.points and handle.pop_ms < track.points[-1].pop_ms - _AHEAD_STEP_MS:
            due_ms = handle.pop_ms + track.span_ms
            track = self._get_or_create_track((*track.key[:3], 0, due_ms + -due_ms % _STEP_MS))
        start = handle.start_offset
        diffs: tuple[int, ...] | None = tuple([offset - start for offset in queue_offsets])
        if diffs == tuple(range(len(queue_offsets))):
            diffs = None
        point = CheckPoint(
            _key(handle), line, track, revive_offset, acked, len(queue_offsets), diffs, holder
        )
        line.open[point.key] = point
        self._append(track, point)
        self.count += 1
        self.counts[line.group] += 1
        return point

    def _get_or_create_track(self, key: TrackKey) -> CheckPointTrack:
        track = self._tracks.get(key)
        if track is None:
            if len(self._tracks) >= self._tracks_max:
                self._remove_empty_tracks()
            track = self._tracks[key] = CheckPointTrack(key)
        return track

    def _remove_empty_tracks(self) -> None:
        self._tracks = {key: track for key, track in self._tracks.items() if track.points}
        self._dues = [item for item in self._dues if item[2].points]
        heapq.heapify(self._dues)
        self._tracks_max = 2 * len(self._tracks) + _TRACKS_MIN

    def _append(self, track: CheckPointTrack, point: CheckPoint) -> None:
        track.points.append(point)
        if not track.is_scheduled:
            track.is_scheduled = True
            self._serial += 1
            heapq.heappush(self._dues, (track.due_ms(), self._serial, track))

    def acknowledge(self, point: CheckPoint, queue_offsets: list[int]) -> list[int]:
        """Mark messages as acknowledged. Return those that were not before."""
        news = []
        for offset in queue_offsets:
            bit = point.bit_of(offset)
            if bit and not point.acked & bit:
                point.acked |= bit
                news.append(offset)
        if news and point.is_finished:
            self._remove(point)
        return news

    def finish_deleted(
        self, is_gone: Callable[[PoppedQueue], bool]
    ) -> list[tuple[CheckPoint, list[int]]]:
        """Finish all check points of deleted groups or topics. Return the unacknowledged messages
        of each."""
        lines = [line for line in self._lines.values() if is_gone(line)]
        points = [point for line in lines for point in line.open.values()]
        return [(point, self.acknowledge(point, point.open_offsets())) for point in points]

    def acknowledge_all(self, point: CheckPoint) -> None:
        """Mark all messages of a check point as acknowledged."""
        if not point.is_finished:
            point.acked = (1 << point.count) - 1
            self._remove(point)

    def _remove(self, point: CheckPoint) -> None:
        line, track = point.line, point.track
        del line.open[point.key]
        if not line.open:
            del self._lines[line.group, line.topic, line.queue_id]
        self.count -= 1
        self.counts[line.group] -= 1
        assert self.count >= 0, self.count
        assert self.counts[line.group] >= 0, line.group
        if not self.counts[line.group]:
            del self.counts[line.group]
        track.dead += 1
        track.drop_finished()
        if track.dead > _DEAD_MIN and track.dead * 2 > len(track.points):
            track.points = deque(each for each in track.points if not each.is_finished)
            track.dead = 0

    # -- when ------------------------------------------------------------------------------------

    def next_due(self, now_ms: int) -> CheckPoint | None:
        """Return the first due check point; None if none is due. The same one is returned until it
        is finished or postponed."""
        dues = self._dues
        while dues and dues[0][0] <= now_ms:
            _, serial, track = dues[0]
            if not track.points:
                heapq.heappop(dues)
                del self._tracks[track.key]
            elif track.due_ms() > now_ms:
                # Acks have finished the first check points. They do not update the heap: a time in
                # it may be too early, but never too late.
                heapq.heapreplace(dues, (track.due_ms(), serial, track))
            else:
                return track.points[0]
        return None

    def postpone(self, point: CheckPoint, now_ms: int) -> bool:
        """Postpone the check point that `next_due` returned, because its messages cannot be read.
        Others are not delayed. Return whether it is postponed for the first time."""
        track = point.track
        assert track.points[0] is point, "it is the first that is due"
        track.points.popleft()
        track.drop_finished()
        delay_ms = min(max(2 * track.delay_ms, FIRST_POSTPONEMENT_MS), PUT_OFF_MAX_MS)
        until_ms = now_ms + delay_ms
        until_ms += -until_ms % _STEP_MS
        point.track = self._get_or_create_track((*track.key[:3], delay_ms, until_ms))
        self._append(point.track, point)
        return not track.delay_ms

    # -- records that are stored again -----------------------------------------------------------

    def open_counts(self) -> Counter[int]:
        """Return by revive queue the number of open check points."""
        found: Counter[int] = Counter()
        for track in self._tracks.values():
            found[track.revive_queue] += len(track.points) - track.dead
        return found

    def points_before(self, limits: Mapping[int, int], count_max: int) -> list[CheckPoint]:
        """Return open check points with records before these offsets, by revive queue."""
        found = []
        for track in self._tracks.values():
            limit = limits.get(track.revive_queue, 0)
            for point in track.points:
                if point.revive_offset < limit:
                    if not point.is_finished:
                        found.append(point)
                    if len(found) == count_max:
                        return found
                elif not track.until_ms:  # those behind it are newer
                    break
        return found

    def may_move_record(self, point: CheckPoint) -> bool:
        """Whether an open check point is where `move_record` expects it: before all others of its
        track, unless their order does not matter."""
        return bool(point.track.until_ms) or point.track.points[0] is point

    def move_record(self, point: CheckPoint, revive_offset: int) -> None:
        """Set the offset of a check point's newest record. It is due at the same time as before, to
        the second."""
        track = point.track
        if not track.until_ms:
            assert track.points[0] is point, "it has the oldest record"
            track.points.popleft()
            track.drop_finished()
            due_ms = point.pop_ms + track.span_ms
            point.track = self._get_or_create_track(
                (*track.key[:3], 0, due_ms + -due_ms % _STEP_MS)
            )
            self._append(point.track, point)
        point.revive_offset = revive_offset

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all due times by the clock's jump: each check point waits for its full time."""
        tracks, self._tracks = self._tracks, {}
        for (revive, invisible_ms, grace_ms, delay_ms, until_ms), track in tracks.items():
            later_ms = until_ms + by_ms if until_ms else 0
            key = (revive, invisible_ms, grace_ms + by_ms, delay_ms, later_ms)
            track.set_key(key)
            self._tracks[key] = track
        self._dues = [(due_ms + by_ms, serial, track) for due_ms, serial, track in self._dues]

    def wake_at_ms(self) -> int:
        """The earliest time at which a check point may be due."""
        return self._dues[0][0] if self._dues else NEVER_MS

    def late_ms(self, now_ms: int) -> dict[int, int]:
        """Return by revive queue how long the next check point has been due."""
        found: dict[int, int] = {}
        for track in self._tracks.values():
            if track.points:
                late_ms = max(0, now_ms - track.first_due_ms())
                found[track.revive_queue] = max(late_ms, found.get(track.revive_queue, 0))
        return found

    def oldest_records(self) -> dict[int, int]:
        """Return by revive queue the oldest record of an open check point."""
        found: dict[int, int] = {}
        for track in self._tracks.values():
            if track.points:
                offset = track.oldest_record()
                found[track.revive_queue] = min(offset, found.get(track.revive_queue, offset))
        return found


def _key(handle: CheckPointKey) -> int:
    time = handle.pop_ms & _TIME_MASK
    return handle.start_offset << _START_SHIFT | handle.revive_queue << _TIME_BITS | time
