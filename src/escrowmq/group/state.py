"""What a member of a group keeps on its disk, beside its log and its tables."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.errors import StorageError
from escrowmq.group.history import Began, History
from escrowmq.group.record import Record

PATH: Final = "group.json"


class Proposal(msgspec.Struct, frozen=True, rename="camel"):
    """A write of the record that was asked for. It may take effect until the record has another
    revision than the one that it expects."""

    revision: str
    record: Record


class MemberState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Each change is durable before anything follows from it."""

    member: str
    incarnation: str
    """Changes when this member may have lost what it had reported as taken."""
    group: str = ""
    """The group's id; empty as long as this folder has been in none."""
    seen: int = 0
    """The newest epoch that this member has heard of. It takes nothing of an older one."""
    proposal: Proposal | None = None
    """To be master of a new epoch. As long as it may take effect, nothing of the present epoch is
    taken either."""
    history: tuple[tuple[int, int], ...] = ()
    boot: str = ""
    """The boot of the machine in which this was written; as long as it is the same, a process that
    was killed has lost nothing."""
    is_emptying: bool = False
    """Whether the folder's messages are being removed, to copy them anew."""
    is_open: bool = False
    """Whether a process uses the folder, or was killed."""

    @property
    def promised(self) -> int:
        """Nothing of an older epoch is taken."""
        proposed = 0 if self.proposal is None else self.proposal.record.epoch
        return max(self.seen, proposed)

    @property
    def epochs(self) -> History:
        """Which epoch wrote which part of the log."""
        return tuple(Began(*began) for began in self.history)

    def encode(self) -> bytes:
        """As it is stored."""
        return msgspec.json.encode(self)


def read_state(data: bytes) -> MemberState:
    """Raises StorageError: without it, a member must not guess what it has promised."""
    try:
        return msgspec.json.decode(data, type=MemberState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{PATH} is damaged ({error}): it is not known what this member has promised. Restore "
            "the file, or move the whole folder away and start empty: the others have a copy"
        ) from None


def started(state: MemberState, *, boot: str, loses_nothing: bool, fresh: str) -> MemberState:
    """After a start. A member whose machine has restarted since, without having closed its files,
    may have lost the end of its log; it is then another incarnation, unless each report was durable
    (`loses_nothing`)."""
    may_have_lost = state.is_open and (not boot or boot != state.boot) and not loses_nothing
    incarnation = fresh if may_have_lost else state.incarnation
    return msgspec.structs.replace(state, incarnation=incarnation, boot=boot, is_open=True)
