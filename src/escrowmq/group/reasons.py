"""Why a member does not take part in its group, in words for people."""

from __future__ import annotations

from escrowmq.group.record import GroupRecord
from escrowmq.group.state import MemberState


def reason_not_taking_part(record: GroupRecord, state: MemberState, *, has_log: bool) -> str:
    """Return why this member does not take part in a group; empty if it does."""
    if not state.group and has_log:
        return (
            f"the group has a master, {record.master}, and this folder has messages of its "
            "own, which are not the group's. Move the folder away and start empty"
        )
    if state.group and state.group != record.group:
        return (
            f"the record is of group {record.group}, and this folder of group {state.group}: "
            "either the record was made anew, or this folder belongs to another group"
        )
    if record.epoch < state.seen:
        return (
            f"the record is of epoch {record.epoch}, and this member has seen epoch "
            f"{state.seen}: the authority has lost its last writes. It takes part again when "
            "the record has caught up; if no master serves, `escrowmq cluster rebuild`"
        )
    return ""


def reason_without_record(fault: str) -> str:
    """Return why this member does not take part if the record is missing or invalid."""
    return (
        f"{fault}, and this member cannot know who has what was acknowledged. A master that serves "
        "writes it again; if none does, `escrowmq cluster rebuild`"
    )


def reason_to_write_again(record: GroupRecord | None, mine: GroupRecord, fault: str) -> str:
    """Return why a master replaces the record that it has read by its own. `fault`: why there is no
    record."""
    if record is not None and record.group == mine.group:
        fault = f"the record was changed by somebody else ({record.description})"
    elif record is not None:
        fault = f"the record is of another group, {record.group}"
    return f"{fault}; the master that serves writes its own: {mine.description}"


def reason_not_taking_over(record: GroupRecord) -> str:
    """Return why a member that is not in sync does not replace a silent master."""
    able = ", ".join(sorted(record.in_sync))
    return (
        f"the master {record.master} is not heard, and this member is not in sync: it may "
        f"lack what was acknowledged, and does not take over. {able} may"
    )


def reason_to_distrust_folder(record: GroupRecord, state: MemberState) -> str:
    """Return why this folder is not the one that the record calls in sync; empty if it may be. A
    member promises an epoch, durably, before it leads it: a folder that has not promised the epoch
    that this member leads is an older copy of it, such as a back-up."""
    is_mine = record.master == state.member
    is_mine = is_mine and record.is_in_sync(state.member, state.incarnation)
    if not is_mine or record.epoch <= state.promised_epoch:
        return ""
    return (
        f"this folder is an older copy of this member's: it knows epochs up to {state.seen}, and "
        f"this member was the master of epoch {record.epoch}"
    )


def reason_after_loss(record: GroupRecord, state: MemberState) -> str:
    """Return why the former master does not continue after it has lost power, or part of its
    log, or if its folder is older than its last epoch."""
    others = sorted(record.in_sync.keys() - {record.master})
    why = "this member was the master, and "
    if state.sound_end >= 0:
        why += f"its log is damaged or lacks something from offset {state.sound_end} on"
    else:
        why += (
            "the power of its machine has failed since, or its folder was replaced by an older copy"
        )
    why += ": it may have lost what it acknowledged. "
    why += (
        f"{', '.join(others)} will take over"
        if others
        else "No other member was in sync. If nobody has a better copy, accept what is lost by "
        "`escrowmq cluster rebuild --accept-loss`"
    )
    return why
