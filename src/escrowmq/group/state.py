"""The state of a member of a group that is stored durably, beside its log and its tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.authority import VersionedRecord
from escrowmq.errors import StorageError, UsageError
from escrowmq.group.history import EpochStart, History
from escrowmq.group.record import GroupRecord, decode_group_record

PATH: Final = "group.json"


class Proposal(msgspec.Struct, frozen=True, rename="camel"):
    """A write of the record that this member has requested. It may take effect as long as the
    record has the expected revision."""

    revision: str
    record: GroupRecord


class MemberState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The durable state of a member. Each change is written before the member acts on it."""

    member: str
    incarnation: str
    """The member's identity; it changes when the member may have lost data that it had reported as
    stored."""
    group: str = ""
    """The group's id; empty while this folder belongs to no group."""
    seen: int = 0
    """The newest known epoch. This member accepts no data of an older one."""
    proposal: Proposal | None = None
    """The pending proposal to become master of a new epoch. While it may take effect, this member
    accepts no data of the present epoch either."""
    history: tuple[tuple[int, int], ...] = ()
    boot: str = ""
    """The boot id of the machine at the time of writing. If it is still the same, a killed process
    has lost nothing."""
    sound_end: int = -1
    """The log after this offset is incomplete or damaged, and must be copied again; -1 if it is
    intact."""
    is_emptying: bool = False
    """Whether the folder's messages are being removed, to be copied again from the master."""
    is_open: bool = False
    """Whether a process uses the folder, or was killed."""

    @property
    def promised_epoch(self) -> int:
        """The epoch that this member has promised. It accepts no data of older epochs."""
        proposed = 0 if self.proposal is None else self.proposal.record.epoch
        return max(self.seen, proposed)

    @property
    def epoch_starts(self) -> History:
        """Which epoch wrote which part of the log."""
        return tuple(EpochStart(*began) for began in self.history)

    def encode(self) -> bytes:
        """Encode the state."""
        return msgspec.json.encode(self)


def decode_state(data: bytes) -> MemberState:
    """Decode the state. Raises StorageError if it is damaged: a member must not guess what it has
    promised."""
    try:
        return msgspec.json.decode(data, type=MemberState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{PATH} is damaged ({error}): it is not known what this member has promised. Restore "
            "the file, or move the whole folder away and start empty: the others have a copy"
        ) from None


def state_after_start(
    state: MemberState, *, boot: str, loses_nothing: bool, fresh: str
) -> MemberState:
    """Return the state after a start. If the machine has restarted before the files were closed,
    the end of the log may be lost; the member then gets a new incarnation, unless each report was
    durable (`loses_nothing`)."""
    may_have_lost = state.is_open and (not boot or boot != state.boot) and not loses_nothing
    incarnation = fresh if may_have_lost else state.incarnation
    return msgspec.structs.replace(state, incarnation=incarnation, boot=boot, is_open=True)


def settling_proposal(
    proposal: Proposal,
    found: VersionedRecord,
    state: MemberState,
    *,
    mark: Callable[[], str],
    may_lag: bool,
) -> Proposal:
    """Return what to write so that a pending proposal either takes effect or never can.

    Normally this is the proposal itself. But a member that has lost power since then must not lead:
    it would depose the serving master, and could not serve. Neither must a member that is not in
    sync, unless the operator who ordered it still waits for that (`may_lag`). Such a member writes
    the found record with another mark, which gives the record another revision.
    """
    me = state.member, state.incarnation
    if not found.value:
        return proposal
    try:
        record = decode_group_record(found.value)
    except UsageError:  # edited by hand
        return proposal
    if proposal.record.is_in_sync(*me) and (may_lag or record.is_in_sync(*me)):
        return proposal
    return Proposal(found.revision, msgspec.structs.replace(record, mark=mark()))
