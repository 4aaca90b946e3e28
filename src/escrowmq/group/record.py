"""A group's record at its authority: which member is master, and which members are in sync."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Meta

from escrowmq.errors import UsageError

_FORMAT: Final = 1
RECORD_SIZE_MAX: Final = 65_536
_SKIPPED_EPOCHS_MAX: Final = 65_536
"""Far more than members fail over in a year, and few for the ints of RocketMQ's tools."""

Epoch = Annotated[int, Meta(ge=1)]


class GroupRecord(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One version of the record. Each version has its own mark."""

    format: int = _FORMAT
    group: str
    """A random id, chosen when the group was created, by which the folder of another group is
    recognised."""
    epoch: Epoch
    """Grows each time a member becomes master, even the same one again."""
    master: str
    address: str
    """HOST:PORT to which the master's copies connect."""
    client_address: str = ""
    """HOST:PORT of the master for clients; shown to people."""
    in_sync: dict[str, str]
    """The members that have everything that was acknowledged, and their incarnations."""
    numbers: dict[str, int] = {}
    """The brokerId of each member while it is not the master."""
    mark: str
    """A text that differs in every version, so that a writer whose answer was lost recognises its
    own."""

    def encode(self) -> bytes:
        """Encode the record."""
        return msgspec.json.encode(self)

    def is_in_sync(self, member: str, incarnation: str) -> bool:
        """Whether this incarnation of the member is in sync."""
        return self.in_sync.get(member) == incarnation

    def is_replaced_by(self, other: GroupRecord) -> bool:
        """Whether the other record names another master of this group, or a later epoch."""
        is_same = (other.epoch, other.master) == (self.epoch, self.master)
        return other.group == self.group and other.epoch >= self.epoch and not is_same

    @property
    def description(self) -> str:
        """Describe the record in words."""
        in_sync = ", ".join(sorted(self.in_sync))
        return f"epoch {self.epoch}, master {self.master}, in sync {in_sync}"


class _AnyFormat(msgspec.Struct):
    """The part of a record that all formats have."""

    format: int = _FORMAT


class _OtherFormat(UsageError):
    """The record has a format that this release does not support."""


def decode_group_record(value: bytes) -> GroupRecord:
    """Decode a record. Raises UsageError if it is invalid: a person may have edited it."""
    if len(value) > RECORD_SIZE_MAX:
        raise UsageError(f"a record of {len(value)} bytes; at most {RECORD_SIZE_MAX} are read")
    try:
        found = msgspec.json.decode(value, type=_AnyFormat).format
        if found != _FORMAT:
            raise _OtherFormat(
                f"the group's record has format {found}, and this release supports {_FORMAT}: "
                "upgrade this broker"
            )
        record = msgspec.json.decode(value, type=GroupRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{value[:80]!r} is not a group's record: {error}") from None
    if record.master not in record.in_sync:
        raise UsageError(f"the master {record.master} is not among its members in sync")
    return record


class DecodedRecord(NamedTuple):
    """The content of the record as this release understands it."""

    record: GroupRecord | None
    fault: str
    """Why there is no record that this member can read; empty if there is one."""
    has_other_format: bool = False
    """Whether another release has written it. A member that cannot read it must not replace it."""


def decoded_or_fault(value: bytes) -> DecodedRecord:
    """Return the record, or why there is none."""
    if not value:
        return DecodedRecord(None, "there is no record of this group")
    try:
        return DecodedRecord(decode_group_record(value), "")
    except _OtherFormat as error:
        return DecodedRecord(None, str(error), has_other_format=True)
    except UsageError as error:
        return DecodedRecord(None, str(error))


def numbers_with(record: GroupRecord, member: str) -> dict[str, int]:
    """Return the numbers of all members; this member gets the lowest free one if it has none."""
    if member in record.numbers:
        return record.numbers
    used = set(record.numbers.values())
    number = next(n for n in range(1, len(used) + 2) if n not in used)
    return {**record.numbers, member: number}


def with_in_sync(record: GroupRecord, in_sync: dict[str, str], *, mark: str) -> GroupRecord:
    """Return the record with another in-sync set. Members that join it get a number."""
    record = msgspec.structs.replace(record, in_sync=in_sync, mark=mark)
    for member in in_sync:
        record = msgspec.structs.replace(record, numbers=numbers_with(record, member))
    return record


class NewMaster(NamedTuple):
    """A member that asks to become the master."""

    member: str
    incarnation: str
    address: str
    client_address: str


def epochs_to_skip(mark: str) -> int:
    """Return how many numbers for epochs a member skips that leads by force: some that it does not
    know may be used, if the record was lost with the members that led. Two epochs of one number
    would let two logs pass for equal. `mark` is a random text."""
    return crc32(mark.encode()) % _SKIPPED_EPOCHS_MAX


def first_record(group: str, master: NewMaster, *, epoch: int, mark: str) -> GroupRecord:
    """Return the record of a group in which only this member is in sync."""
    return GroupRecord(
        group=group,
        epoch=epoch,
        master=master.member,
        address=master.address,
        client_address=master.client_address,
        in_sync={master.member: master.incarnation},
        numbers={master.member: 1},
        mark=mark,
    )


def succeeding_record(
    record: GroupRecord, master: NewMaster, *, epoch: int, mark: str
) -> GroupRecord:
    """Return the record in which this member replaces the master. The former master is no longer in
    sync."""
    me = master.member
    in_sync = {m: i for m, i in record.in_sync.items() if m not in (record.master, me)}
    in_sync[me] = master.incarnation
    numbers = numbers_with(record, record.master)
    return msgspec.structs.replace(
        record,
        epoch=epoch,
        master=me,
        address=master.address,
        client_address=master.client_address,
        in_sync=in_sync,
        numbers=numbers_with(msgspec.structs.replace(record, numbers=numbers), me),
        mark=mark,
    )
