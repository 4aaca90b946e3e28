"""The part that drives delayed delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from escrowmq.broker.part import File, Part, StartContext


class _DelayedDelivery(Protocol):
    def wake(self, now_ms: int) -> None: ...

    def wake_at_ms(self) -> int: ...

    def content_to_save(self, now_ms: int) -> bytes | None: ...


class DelayPart(Part):
    """Wakes one kind of delayed delivery, and saves its progress."""

    def __init__(
        self,
        name: str,
        path: str,
        queues: _DelayedDelivery,
        load: Callable[[bytes | None, int], object],
        *,
        is_in_log: bool = False,
        snapshot: tuple[str, Callable[[int], bytes | None]] | None = None,
    ) -> None:
        """`is_in_log`: the broker can start without the file, because it finds in the log what was
        delivered. `snapshot`: path and content of a second file, which makes starts faster."""
        self.name = name
        self._path = path
        self._queues = queues
        self._load = load
        self._is_in_log = is_in_log
        self._snapshot = snapshot

    def load(self, start: StartContext) -> None:
        """Load the progress of delayed deliveries."""

        def load_progress(data: bytes | None) -> None:
            self._load(data, start.now_ms)

        if self._is_in_log:
            start.read_optional_table(self._path, load_progress)
        else:
            start.read_table(self._path, load_progress)

    def wake(self, now_ms: int) -> None:
        """Deliver the messages that are due."""
        self._queues.wake(now_ms)

    def wake_at_ms(self) -> int:
        """The time at which the next message is due."""
        return self._queues.wake_at_ms()

    def files_to_save(self, now_ms: int) -> tuple[File, ...]:
        """Return the file of the deliveries' progress, as far as the deliveries are durable, and
        the snapshot, if one is due."""
        found: list[File] = []
        if self._snapshot is not None:
            # First, because it is used only if the progress is not older.
            path, take = self._snapshot
            if (snapshot := take(now_ms)) is not None:
                found.append((path, snapshot))
        if (data := self._queues.content_to_save(now_ms)) is not None:
            found.append((self._path, data))
        return tuple(found)
