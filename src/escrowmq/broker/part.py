"""The events that every part of a broker can handle."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Final, Protocol

from escrowmq.base.effects import Replace
from escrowmq.base.ports import Disk
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.config_tables import Take

File = tuple[str, bytes]
"""A path and the content to write."""

NOTHING: Final[tuple[File, ...]] = ()


class Start(Protocol):
    """What parts need from a start (broker/upkeep/start_checks)."""

    disk: Disk
    now_ms: int
    is_sound: bool
    """Whether no part of the log was found damaged."""
    lost_from: int | None
    """The log offset from which on something that was written is missing or damaged."""

    def take(self, path: str, take: Take) -> bool:
        """Read a table. Returns whether it was the newest version."""

    def take_lesser(self, path: str, take: Take) -> None:
        """Read a table that a start can do without. Returns whether it was the newest version."""

    def restore_groups(self, names: Iterable[str], now_ms: int) -> None:
        """Restore groups that have messages in flight."""


class Part:
    """A part of a broker; each overrides the events that concern it."""

    name = ""
    """The name under which its failures are logged and counted."""

    work: tuple[Sized, ...] | None = None
    """Where its unfinished work is: `settle` is called when one of these is not empty. None: it is
    called each time."""

    def load(self, start: Start) -> None:
        """Load what an earlier process saved. Store and tables are open."""

    def settle(self, now_ms: int) -> None:
        """Finish the work that this input began, at its end."""

    def lost(self, peer: Peer, now_ms: int) -> None:
        """A connection has ended."""

    def wake(self, now_ms: int) -> None:
        """Do the work that is due."""

    def wake_at_ms(self) -> int:
        """When `wake` is due next."""
        return NEVER_MS

    def clock_leapt(self, by_ms: int) -> None:
        """The clock was set forward: spans keep their full length."""

    def files_to_save(self, now_ms: int) -> tuple[File, ...]:
        """Files to save now, as far as the part of the log they depend on is durable."""
        return NOTHING

    def final_files(self, now_ms: int) -> tuple[File, ...]:
        """Files to save when the store is closed."""
        return self.files_to_save(now_ms)


def save_files(part: Part, output: Output, now_ms: int) -> None:
    """Have the files written that a part saves now."""
    for path, data in part.files_to_save(now_ms):
        output.add(Replace(path, data))
