"""The protocol by which a group of brokers changes its master, as a model without code: who may
acknowledge what, and what a new master knows. Searched exhaustively by `search`.

An engine that others keep (the *authority*) holds one record: epoch, master, and the members in
sync with their incarnations. It changes only by compare-and-swap. The rules:

- A master acknowledges what every member of the last written set has, and every one of a set that
  is being written: a growth counts from the moment it is asked for, a shrink once it is known to
  be written.
- A member that takes over has just read that it is in the record with its incarnation. It stops
  accepting the old epoch first, durably, then writes the record, and only then takes its log's end
  as the beginning of its epoch.
- A follower takes frames of its promised epoch or a later one. What its master's log does not have
  is cut off, durably.
- A member that loses power may have lost the end of its log. It comes back as another incarnation,
  and is not in sync until its master says so.

Frames, reports and writes of the record are lost, doubled and late here, processes stop, and power
fails, at any moment; nobody has a clock. What is under way can arrive at any later time; what is
lost simply never does. Each `Bug` breaks one rule, and the search has to find what that loses.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

Log = tuple[tuple[int, int], ...]
"""Entries: the epoch that wrote it, and what."""

Set = frozenset[tuple[int, int]]
"""Members with their incarnations."""

MEMBERS: Final = (0, 1, 2)


class Bug(enum.Enum):
    """A rule that is broken."""

    NONE = "none"
    FRAME_AFTER_PROMISE = "a frame of the old epoch is taken between refusal and swap"
    EARLY_SHRINK = "a shrink counts before it is written"
    EARLY_GROWTH = "a growth is counted alone, before it is written"
    VOLATILE_CUT = "what was cut off is there again after a stop"
    KEPT_INCARNATION = "an incarnation is kept after a power cut"
    ANYBODY_SERVES = "who is not in sync takes over"
    SWAP_IGNORES = "the authority writes without comparing"


class Bounds(NamedTuple):
    """How much may happen."""

    writes: int = 2
    epochs: int = 3
    changes: int = 2
    """Of the set, beside take-overs."""
    stops: int = 1
    cuts: int = 1
    """Of power."""


class Record(NamedTuple):
    """What the authority holds."""

    revision: int
    epoch: int
    master: int
    in_sync: Set


class Proposal(NamedTuple):
    """A write of the record that is under way: it may take effect at any time, or never."""

    expected: int
    record: Record


class Member(NamedTuple):
    """A broker."""

    incarnation: int = 0
    log: Log = ()
    cut: Log = ()
    """What was cut off last (for VOLATILE_CUT)."""
    promised: int = 1
    """It takes nothing of an older epoch; on disk."""
    follows: int = 1
    """Its log is the beginning of that epoch's log; on disk."""
    epoch: int = 0
    """The one it serves as master; 0 when it does not."""
    known: Record | None = None
    """The record as a master knows it."""
    proposal: Proposal | None = None
    synced: int = 0
    """How much of the log is on disk."""
    is_up: bool = True


class State(NamedTuple):
    """Everything."""

    record: Record
    members: tuple[Member, ...]
    frames: tuple[Log | None, ...]
    """By epoch: the longest log that its master has sent; None before there is one."""
    reports: frozenset[tuple[int, int, int, int]]
    """Epoch, member, incarnation, and how much it has said to have."""
    acknowledged: tuple[tuple[int, int] | None, ...]
    """By offset."""
    writes: int
    changes: int
    stops: int
    cuts: int


class Broken(Exception):
    """A promise was broken."""


def first(bounds: Bounds) -> State:
    """Member 0 is the master, and all are in sync."""
    record = Record(1, 1, 0, frozenset((member, 0) for member in MEMBERS))
    master = Member(epoch=1, known=record)
    return State(
        record=record,
        members=(master, Member(), Member()),
        frames=(None, (), *(None,) * (bounds.epochs - 1)),
        reports=frozenset(),
        acknowledged=(),
        writes=0,
        changes=0,
        stops=0,
        cuts=0,
    )


def steps(state: State, bounds: Bounds, bug: Bug) -> Iterator[tuple[str, State]]:
    """All that may happen next."""
    for name, member in enumerate(state.members):
        if not member.is_up:
            yield f"{name} starts", _started(state, name, member, bug)
            continue
        if member.epoch:
            yield from _as_master(state, name, member, bounds, bug)
        else:
            yield from _as_follower(state, name, member, bounds, bug)
        yield from _proposals(state, name, member, bug)
        if state.stops < bounds.stops:
            yield (
                f"{name} stops",
                _with(state, name, _stopped(member))._replace(stops=state.stops + 1),
            )
        if state.cuts < bounds.cuts:
            for left in range(member.synced, len(member.log) + 1):
                lost = _stopped(member)._replace(
                    log=member.log[:left],
                    synced=left,
                    incarnation=member.incarnation + (bug is not Bug.KEPT_INCARNATION),
                )
                yield (
                    f"{name} loses power, keeps {left}",
                    _with(state, name, lost)._replace(cuts=state.cuts + 1),
                )


def _as_master(
    state: State, name: int, member: Member, bounds: Bounds, bug: Bug
) -> Iterator[tuple[str, State]]:
    assert member.known is not None
    if state.writes < bounds.writes:
        entry = (member.epoch, state.writes)
        written = member._replace(log=(*member.log, entry))
        yield (
            f"{name} writes {entry}",
            _sent(_with(state, name, written), written)._replace(writes=state.writes + 1),
        )
    if member.synced < len(member.log) and len(member.known.in_sync) == 1:
        yield f"{name} syncs", _with(state, name, member._replace(synced=len(member.log)))
    confirmed = _confirmed(state, name, member, bug)
    if confirmed > len(state.acknowledged):
        yield f"{name} acknowledges {confirmed}", _acknowledge(state, member.log[:confirmed])
    if member.proposal is None and state.changes < bounds.changes:
        yield from _changes(state, name, member)


def _changes(state: State, name: int, member: Member) -> Iterator[tuple[str, State]]:
    """A shrink by anybody, or a growth by who has everything."""
    known = member.known
    assert known is not None
    wanted = [known.in_sync - {each} for each in known.in_sync if each[0] != name]
    for epoch, follower, incarnation, count in state.reports:
        mine = (follower, incarnation)
        is_even = epoch == member.epoch and count == len(member.log)
        if is_even and mine not in known.in_sync:
            others = frozenset(each for each in known.in_sync if each[0] != follower)
            wanted.append(others | {mine})
    for in_sync in wanted:
        record = known._replace(revision=known.revision + 1, in_sync=in_sync)
        asked = member._replace(proposal=Proposal(known.revision, record))
        yield (
            f"{name} asks for {sorted(in_sync)}",
            _with(state, name, asked)._replace(changes=state.changes + 1),
        )


def _as_follower(
    state: State, name: int, member: Member, bounds: Bounds, bug: Bug
) -> Iterator[tuple[str, State]]:
    for epoch, log in enumerate(state.frames):
        may = epoch >= member.promised or (
            bug is Bug.FRAME_AFTER_PROMISE and member.proposal is not None and epoch
        )
        if log is None or not may:
            continue
        if epoch == member.promised and log == member.log[: len(log)]:
            continue  # it has that
        kept = next(
            (
                at
                for at, pair in enumerate(zip(log, member.log, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(log), len(member.log)),
        )
        taken = member._replace(
            log=log,
            cut=member.log[kept:],
            promised=max(epoch, member.promised),
            follows=epoch,
            synced=min(member.synced, kept),
        )
        report = (epoch, name, member.incarnation, len(log))
        yield (
            f"{name} takes {log} of {epoch}",
            _with(state, name, taken)._replace(reports=state.reports | {report}),
        )
    record = state.record
    is_in_sync = (name, member.incarnation) in record.in_sync or bug is Bug.ANYBODY_SERVES
    if member.proposal is None and is_in_sync and record.epoch < bounds.epochs:
        # Refuses the old epoch first, on disk.
        in_sync = frozenset(each for each in record.in_sync if each[0] != record.master)
        new = Record(
            record.revision + 1, record.epoch + 1, name, in_sync | {(name, member.incarnation)}
        )
        asked = member._replace(promised=new.epoch, proposal=Proposal(record.revision, new))
        yield f"{name} refuses {record.epoch} and asks for {new.epoch}", _with(state, name, asked)


def _proposals(state: State, name: int, member: Member, bug: Bug) -> Iterator[tuple[str, State]]:
    """A write of the record takes effect, late or not; who asked for it learns what there is."""
    proposal = member.proposal
    if proposal is None:
        return
    may = state.record.revision == proposal.expected or bug is Bug.SWAP_IGNORES
    if may and state.record != proposal.record:
        yield f"the authority writes {proposal.record}", state._replace(record=proposal.record)
    if state.record.revision > proposal.expected:
        knows = _learned(state, name, member)
        after = _with(state, name, knows)
        yield f"{name} learns {state.record}", _sent(after, knows) if knows.epoch else after


def _learned(state: State, name: int, member: Member) -> Member:
    record = state.record
    if record.master == name and record.epoch in (member.epoch, member.promised):
        return member._replace(
            epoch=record.epoch,
            promised=record.epoch,
            follows=record.epoch,
            known=record,
            proposal=None,
        )
    return member._replace(epoch=0, promised=record.epoch, known=None, proposal=None)


def _sent(state: State, master: Member) -> State:
    """Its log is on its way to everybody."""
    frames = list(state.frames)
    frames[master.epoch] = master.log
    return state._replace(frames=tuple(frames))


def _confirmed(state: State, name: int, member: Member, bug: Bug) -> int:
    """As much as a master may acknowledge."""
    assert member.known is not None
    needed = set(member.known.in_sync)
    if member.proposal is not None:
        asked = member.proposal.record.in_sync
        is_shrink = len(asked) < len(needed)
        if bug is Bug.EARLY_SHRINK and is_shrink:
            needed = set(asked)
        elif bug is not Bug.EARLY_GROWTH or is_shrink:
            needed |= asked
    if all(each == name for each, _ in needed):
        return member.synced  # alone: what is on disk
    has = [
        max(
            (
                count
                for epoch, follower, incarnation, count in state.reports
                if (epoch, follower, incarnation) == (member.epoch, *each)
            ),
            default=0,
        )
        for each in needed
        if each[0] != name
    ]
    return min([len(member.log), *has])


def _acknowledge(state: State, log: Log) -> State:
    for offset, before in enumerate(state.acknowledged):
        if before != log[offset]:
            raise Broken(f"offset {offset} was {before}, and is acknowledged as {log[offset]}")
    return state._replace(acknowledged=log)


def _stopped(member: Member) -> Member:
    """Killed: what it knew is gone, its log and its promise are not."""
    return member._replace(epoch=0, known=None, proposal=None, is_up=False)


def _started(state: State, name: int, member: Member, bug: Bug) -> State:
    """It says how long its log is, if it knows whose beginning that is."""
    log = member.log
    if bug is Bug.VOLATILE_CUT:
        log = (*log, *member.cut)
    after = _with(state, name, member._replace(is_up=True, log=log, cut=()))
    if member.follows < member.promised:
        return after
    report = (member.follows, name, member.incarnation, len(log))
    return after._replace(reports=state.reports | {report})


def _with(state: State, name: int, member: Member) -> State:
    members = list(state.members)
    members[name] = member
    return state._replace(members=tuple(members))


def check(state: State) -> None:
    """What must hold in every state."""
    serving = [each for each in state.members if each.epoch]
    if len({each.epoch for each in serving}) < len(serving):
        raise Broken("two masters of one epoch")
    newest = max((each.epoch for each in serving), default=0)
    for each in serving:
        if each.epoch == newest == state.record.epoch:
            for offset, entry in enumerate(state.acknowledged):
                if offset >= len(each.log) or each.log[offset] != entry:
                    raise Broken(f"offset {offset}, acknowledged as {entry}, is not in {each.log}")


class Found(NamedTuple):
    """What a search came to."""

    states: int
    broken: str
    """What was broken; empty when nothing was."""
    path: tuple[str, ...]
    """What led there."""


def search(bounds: Bounds, bug: Bug = Bug.NONE, *, states_max: int = 5_000_000) -> Found:
    """Every state that can be reached, in breadth; ends at the first that breaks a promise."""
    begin = first(bounds)
    came_from: dict[State, tuple[State, str] | None] = {begin: None}
    border = [begin]
    while border:
        following: list[State] = []
        for state in border:
            try:
                check(state)
                for what, after in steps(state, bounds, bug):
                    if after not in came_from:
                        came_from[after] = (state, what)
                        following.append(after)
            except Broken as broken:
                return Found(len(came_from), str(broken), _path(came_from, state))
        if len(came_from) > states_max:
            raise AssertionError(f"{len(came_from)} states, {states_max} were expected at most")
        border = following
    return Found(len(came_from), "", ())


def _path(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    found: list[str] = []
    while (entry := came_from[state]) is not None:
        state, what = entry
        found.append(what)
    return tuple(reversed(found))
