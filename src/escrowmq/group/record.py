"""The record that an authority keeps of a group: who is master, and who has everything."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from escrowmq.errors import UsageError

_FORMAT: Final = 1
RECORD_SIZE_MAX: Final = 65_536

Epoch = Annotated[int, Meta(ge=1)]


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One group at one time. Each written version has a mark of its own."""

    format: int = _FORMAT
    group: str
    """Chosen at random when the group was made: a folder of another group is recognised by it."""
    epoch: Epoch
    """Grows with each change of the master, also to itself."""
    master: str
    address: str
    """HOST:PORT where the master's copies connect."""
    client_address: str = ""
    """HOST:PORT of the master for clients, to tell people."""
    in_sync: dict[str, str]
    """The members that have everything that was acknowledged, and their incarnations."""
    numbers: dict[str, int] = {}
    """The brokerId of each member while it is not the master."""
    mark: str
    """No two versions have the same: the answer to a write may be lost."""

    def encode(self) -> bytes:
        """As it is written."""
        return msgspec.json.encode(self)

    def has(self, member: str, incarnation: str) -> bool:
        """Whether this member, with all that it knew then, is in sync."""
        return self.in_sync.get(member) == incarnation

    @property
    def text(self) -> str:
        """For people."""
        in_sync = ", ".join(sorted(self.in_sync))
        return f"epoch {self.epoch}, master {self.master}, in sync {in_sync}"


def read_record(value: bytes) -> Record:
    """Raises UsageError that says what is wrong with it; a person may have edited it."""
    if len(value) > RECORD_SIZE_MAX:
        raise UsageError(f"a record of {len(value)} bytes; at most {RECORD_SIZE_MAX} are read")
    try:
        record = msgspec.json.decode(value, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{value[:80]!r} is no record of a group: {error}") from None
    if record.format != _FORMAT:
        raise UsageError(
            f"a record of format {record.format}; this release knows {_FORMAT}: upgrade it"
        )
    if record.master not in record.in_sync:
        raise UsageError(f"the master {record.master} is not among its members in sync")
    return record


def number_for(record: Record, member: str) -> dict[str, int]:
    """The numbers with one for this member: the lowest that is free."""
    if member in record.numbers:
        return record.numbers
    used = set(record.numbers.values())
    number = next(n for n in range(1, len(used) + 2) if n not in used)
    return {**record.numbers, member: number}
