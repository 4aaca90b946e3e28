"""The base class of the broker's parts: the events that a part can handle."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Final, Protocol

from escrowmq.base.effects import Replace
from escrowmq.base.ports import Disk
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.config_tables import TableParser

File = tuple[str, bytes]
"""A file to write: its path and content."""

NOTHING: Final[tuple[File, ...]] = ()


class StartContext(Protocol):
    """What a part can use while it loads (broker/upkeep/start_checks)."""

    disk: Disk
    now_ms: int
    is_sound: bool
    """Whether no part of the log was found damaged."""
    lost_from: int | None
    """The log offset from which on written records are missing or damaged; None if nothing is."""

    def read_table(self, path: str, take: TableParser) -> bool:
        """Read a table. Return whether its newest version was read."""

    def read_optional_table(self, path: str, take: TableParser) -> None:
        """Read a table that the broker can start without."""

    def restore_groups(self, names: Iterable[str], now_ms: int) -> None:
        """Restore groups that have messages in flight."""


class Part:
    """A component of the broker. A subclass overrides the events that concern it."""

    name = ""
    """The name under which its failures are logged and counted."""

    work: tuple[Sized, ...] | None = None
    """Collections of unfinished work. `finish_input` is called only if one of them is not empty;
    with None, it is called for each input."""

    def load(self, start: StartContext) -> None:
        """Load the state that an earlier process saved. The store and the tables are open
        already."""

    def finish_input(self, now_ms: int) -> None:
        """Finish the part's work on this input, at the input's end."""

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        """Clean up after a lost connection."""

    def wake(self, now_ms: int) -> None:
        """Do the work that is due."""

    def wake_at_ms(self) -> int:
        """When `wake` is due next."""
        return NEVER_MS

    def clock_leapt(self, by_ms: int) -> None:
        """Shift deadlines by the clock's forward jump: timeouts keep their full length."""

    def files_to_save(self, now_ms: int) -> tuple[File, ...]:
        """Return the files to save now. Their content refers only to durable parts of the log."""
        return NOTHING

    def final_files(self, now_ms: int) -> tuple[File, ...]:
        """Return the files to save when the store is closed."""
        return self.files_to_save(now_ms)


def save_files(part: Part, output: Output, now_ms: int) -> None:
    """Write the files that a part wants saved now."""
    for path, data in part.files_to_save(now_ms):
        output.add_effect(Replace(path, data))
