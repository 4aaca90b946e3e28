"""One member of a group: when it asks to be master, when it stops, and what it does until then.

The rules are those of tests/model/failover.py. No step depends on a clock for safety: times only
decide when something is tried. The caller does all I/O: it performs the orders of `take_orders` one
after another, each completely before the next."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from escrowmq.base.authority import VersionedRecord
from escrowmq.group import member_timeouts, orders
from escrowmq.group.history import with_new_epoch
from escrowmq.group.in_sync_copies import CopyStates
from escrowmq.group.reasons import (
    reason_after_loss,
    reason_not_taking_over,
    reason_not_taking_part,
    reason_to_distrust_folder,
    reason_to_write_again,
    reason_without_record,
)
from escrowmq.group.record import (
    GroupRecord,
    NewMaster,
    decoded_or_fault,
    epochs_to_skip,
    first_record,
    succeeding_record,
    with_in_sync,
)
from escrowmq.group.state import MemberState, Proposal, settling_proposal


class GroupMember:
    """Decides what one member of a group does."""

    def __init__(  # noqa: PLR0913 - what it was, where it is, and what it may ask the world
        self,
        state: MemberState,
        terms: member_timeouts.MemberTimeouts,
        *,
        mark: Callable[[], str],
        address: str,
        client_address: str,
        has_log: bool,
        log: Callable[[str], None],
        jitter_ms: int,
        now_ms: int,
    ) -> None:
        """`mark` returns a random text; `has_log`: whether the folder has messages already; `log`
        reports events to operators."""
        self.state = state
        self.terms = terms
        self._mark = mark
        self._addresses = address, client_address
        self._has_log = has_log
        self._log = log
        self._jitter_ms = jitter_ms
        self.record: GroupRecord | None = None
        """The record as last read, or written by this member."""
        self.revision = ""
        self.is_leader = False
        """Whether this member serves as master of `record.epoch`."""
        self.is_opening = False
        """Whether the authority has accepted this member as master, and no epoch has begun."""
        self._begun_ms = -1
        """When the epoch began, while the broker is not open as its master yet; -1 otherwise."""
        self.proposal: Proposal | None = state.proposal
        self.copies = CopyStates()
        self._orders: list[orders.Order] = []
        self._is_asking = False
        self._look_ms = self._looked_ms = self._woken_ms = self._heard_ms = now_ms
        """`_heard_ms`: when something last arrived from the master."""
        self._born_ms = now_ms
        self._failed_epoch = 0
        """The epoch of a master that is known to have failed."""
        self._called = (0, now_ms)
        """The epoch of a master that has handed over, and until when this member acts on that."""
        self._forced_until_ms = 0
        """Until this time, this member becomes master even if it lags, by an operator's order."""
        self._succession_ms = 0
        """Until this time, a master that hands over expects to be replaced."""
        self._followed: tuple[int, str, str] | None = None
        self.why = "the authority has not answered yet"
        """Why this member is neither master nor follows one; empty otherwise."""
        self.authority_fault = ""
        self._is_contested = self._is_duplicate = False
        self._said: set[str] = set()

    def take_orders(self) -> list[orders.Order]:
        """Return the waiting orders, and forget them."""
        waiting, self._orders = self._orders, []
        return waiting

    # -- time --------------------------------------------------------------------------------

    def wake(self, now_ms: int) -> None:
        """Do everything that is due now."""
        slept_ms = now_ms - self._woken_ms
        self._woken_ms = now_ms
        if self.is_leader and self._begun_ms >= 0:
            pass  # if it never opens, the others must be able to take over
        elif self.is_leader:
            if slept_ms > self.terms.silence_ms // 3:
                self.copies.ignore_suspension(slept_ms)  # no copy was silent meanwhile
            self._update_in_sync_set(now_ms)
        elif self._may_take_over(now_ms):
            # It takes over when it has read the record. Otherwise it could promise an epoch that
            # it cannot write, and take nothing of the present one although its master is back.
            self._look_ms = now_ms
        else:
            self._log_silence(now_ms)
        if self._followed is not None and now_ms - self._heard_ms > member_timeouts.QUIET_MS:
            self._look_ms = min(self._look_ms, self._looked_ms + member_timeouts.AGAIN_MS)
        if now_ms >= self._look_ms:
            self._order_read(now_ms)

    def _log_silence(self, now_ms: int) -> None:
        record = self.record
        is_silent = now_ms - self._heard_ms > self.terms.takeover_ms + self.terms.silence_ms
        if self._followed is None or record is None or not is_silent:
            return
        if not record.is_in_sync(self.state.member, self.state.incarnation):
            self._log_once(reason_not_taking_over(record))

    def wake_at_ms(self) -> int:
        """Return the latest time at which `wake` must be called."""
        span_ms = self.terms.silence_ms // 10
        return min(self._look_ms, self._woken_ms + span_ms)

    def _order_read(self, now_ms: int) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        self._looked_ms = now_ms
        self._look_ms = now_ms + self._read_interval_ms()
        self._orders.append(orders.ReadRecord())

    def _read_interval_ms(self) -> int:
        terms = self.terms
        if self.is_leader:
            is_near = self._woken_ms < self._succession_ms
            return member_timeouts.SUCCESSION_LOOK_MS if is_near else terms.leader_look_ms
        record = self.record
        # Name servers know a member only by its brokerId, which the record gives it.
        is_numbered = record is not None and self.state.member in record.numbers
        is_settled = is_numbered and not self.why and not self._failed_epoch
        return terms.follower_look_ms if is_settled else terms.search_ms

    def read_soon(self, now_ms: int) -> None:
        """Read the record soon, because it probably explains an event."""
        self._look_ms = min(self._look_ms, now_ms)

    # -- the authority's answers -------------------------------------------------------------

    def record_read(self, found: VersionedRecord, now_ms: int) -> None:
        """Process the record that was read."""
        self._is_asking, self.authority_fault = False, ""
        proposal = self.proposal
        if proposal is not None:
            if found.value == proposal.record.encode():
                self._apply_written(proposal, found.revision, now_ms)
            elif found.revision == proposal.revision:
                is_wanted = self.is_leader or now_ms < self._forced_until_ms
                self.proposal = settling_proposal(
                    proposal, found, self.state, mark=self._mark, may_lag=is_wanted
                )
                self._order_write(self.proposal)  # it was lost, or is late: this settles it
            else:
                self._drop_proposal(now_ms)
                self._apply_record(found, now_ms)
            return
        self._apply_record(found, now_ms)

    def authority_failed(self, reason: str, now_ms: int) -> None:
        """Retry later: the authority did not answer; a write may have taken effect."""
        self._is_asking = False
        self._look_ms = now_ms + member_timeouts.AGAIN_MS
        if not self.authority_fault:
            self._log(f"the authority does not answer, so the group cannot change: {reason}")
        self.authority_fault = reason

    def write_succeeded(self, found: VersionedRecord, now_ms: int) -> None:
        """Act on a write of the record that has taken effect."""
        self._is_asking = False
        assert self.proposal is not None
        self._apply_written(self.proposal, found.revision, now_ms)

    def write_refused(self, now_ms: int) -> None:
        """Read the record again: a write was refused, because it had another revision."""
        self._is_asking = False
        self._look_ms = now_ms
        self._order_read(now_ms)

    def _order_write(self, proposal: Proposal) -> None:
        self._is_asking = True
        self._orders.append(orders.WriteRecord(proposal.record, proposal.revision))

    def _apply_written(self, proposal: Proposal, revision: str, now_ms: int) -> None:
        self.proposal = None
        before, self.record, self.revision = self.record, proposal.record, revision
        record = proposal.record
        if self.is_leader:
            assert before is not None
            if before.in_sync.keys() != record.in_sync.keys():
                self._log(f"the group has changed: {record.description}")
            self.copies.set_in_sync(record.in_sync, now_ms)
            return
        me, incarnation = self.state.member, self.state.incarnation
        is_mine = record.is_in_sync(me, incarnation) and record.epoch > self.state.seen
        seen = max(record.epoch, self.state.seen)
        self._change_state(proposal=None, seen=seen, group=record.group)
        self._forced_until_ms = 0
        if is_mine:
            self.is_opening = True
            self.why = ""
            self._followed = None
            self._orders.append(orders.BecomeMaster(record))
        else:  # power was lost after the write
            self.read_soon(now_ms)

    def _drop_proposal(self, now_ms: int) -> None:
        """Drop the promise of a proposal that cannot take effect: the record has another
        revision."""
        self.proposal = None
        self._forced_until_ms = 0
        if self.state.proposal is not None:
            self._change_state(proposal=None)

    # -- being master ------------------------------------------------------------------------

    def begin_epoch(self, log_end: int, now_ms: int) -> None:
        """Begin an epoch as master. The caller has stopped copying; the log ends at `log_end`."""
        record = self.record
        assert self.is_opening
        assert record is not None
        history = self.state.epoch_starts
        if not history and log_end:
            history = with_new_epoch((), 0, 0)  # these messages are older than the group
        self._change_state(history=with_new_epoch(history, record.epoch, log_end), sound_end=-1)
        self.is_opening = False
        self._begun_ms = now_ms
        self.is_leader = True
        self._failed_epoch = 0
        self.copies = CopyStates()
        self.copies.set_in_sync(record.in_sync, now_ms)
        self._look_ms = now_ms + self.terms.leader_look_ms
        self._log(
            f"this member is the master now: {record.description}; the epoch begins at {log_end}"
        )

    def note_opened_as_master(self, now_ms: int) -> None:
        """Record that the broker is open as master: from now on, its copies can be late."""
        if self.is_leader and self._begun_ms >= 0:
            self.copies.ignore_suspension(now_ms - self._begun_ms)
            self._begun_ms, self._woken_ms = -1, now_ms

    @property
    def needed_members(self) -> dict[str, str]:
        """Return the members that must store a record before it is acknowledged: all of the written
        in-sync set, and of one being written. This member's own copy is always needed."""
        assert self.record is not None
        needed = dict(self.record.in_sync)
        if self.is_leader and self.proposal is not None:
            needed |= self.proposal.record.in_sync
        needed.pop(self.state.member, None)
        return needed

    def _update_in_sync_set(self, now_ms: int) -> None:
        """Remove members that have lagged for too long from the in-sync set, and add those that
        have everything. There is one write at a time, which removes all late members."""
        record = self.record
        assert record is not None
        if self.proposal is not None:
            return
        me = self.state.member
        late = self.copies.late_members(record.in_sync, now_ms - self.terms.silence_ms, me=me)
        if late:
            self._log(f"no longer in sync: {', '.join(sorted(late))}")
            in_sync = {m: i for m, i in record.in_sync.items() if m not in late}
        else:
            joining = self.copies.members_caught_up(record.in_sync, now_ms)
            in_sync = record.in_sync | dict(joining)
        if in_sync != record.in_sync:
            self._propose(with_in_sync(record, in_sync, mark=self._mark()))

    def _propose(self, record: GroupRecord) -> None:
        self.proposal = Proposal(self.revision, record)
        if not self._is_asking:
            self._order_write(self.proposal)

    def copy_disconnected(self, member: str, now_ms: int) -> None:
        """Record that a copy's connection was closed."""
        self.copies.note_disconnected(member, silence_ms=self.terms.silence_ms, now_ms=now_ms)

    def expect_successor(self, until_ms: int, now_ms: int) -> None:
        """Read the record soon, because a copy was asked to take over; the others must follow."""
        self._succession_ms = until_ms
        self.read_soon(now_ms)

    def note_later_epoch(self, epoch: int, now_ms: int) -> None:
        """Read the record soon: a member has promised a later epoch, and may have taken over."""
        if self.is_leader and self.record is not None and epoch > self.record.epoch:
            self.read_soon(now_ms)

    # -- having a master ---------------------------------------------------------------------

    def note_master_alive(self, now_ms: int) -> None:
        """Record that something has arrived from the master."""
        self._heard_ms = now_ms
        self._failed_epoch = 0
        self._said.clear()

    def note_master_failed(self, now_ms: int) -> None:
        """Record that the master failed: it closed the connection, and refuses another."""
        if self._followed is not None and self._failed_epoch != self._followed[0]:
            self._failed_epoch = self._followed[0]
            self._look_ms = now_ms

    def take_over_now(self, now_ms: int, *, is_forced: bool = False) -> None:
        """Become master after a hand-over; if `is_forced`, even if this member lags. If that is not
        done in time, the order is forgotten: another member may serve by then."""
        self._forced_until_ms = now_ms + member_timeouts.REBUILD_MS if is_forced else 0
        self._called = (
            0 if self.record is None else self.record.epoch,
            now_ms + member_timeouts.CALLED_MS,
        )
        self._look_ms = now_ms

    def _may_take_over(self, now_ms: int) -> bool:
        record = self.record
        if record is None or self.is_opening or self._is_asking or self.proposal is not None:
            return False
        if self._followed is None or self.authority_fault or self._is_contested:
            return False
        is_called = record.epoch == self._called[0] and now_ms < self._called[1]
        is_urgent = record.epoch == self._failed_epoch or is_called
        if not is_urgent and now_ms - self._heard_ms < self.terms.takeover_ms + self._jitter_ms:
            return False
        return record.is_in_sync(self.state.member, self.state.incarnation)

    def _take_over_by_force(self, record: GroupRecord | None) -> None:
        """Take over by force: an operator accepts the loss of records that this member lacks."""
        group, skipped = self.state.group, epochs_to_skip(self._mark())
        if record is None:
            self._propose_group(group or self._mark(), self.state.seen + 1 + skipped)
        else:
            self.record = replace(record, group=group or record.group, in_sync={record.master: ""})
            self._take_over(skipped)

    def _take_over(self, skipped: int = 0) -> None:
        """Promise, durably, to take no more data of the present epoch; then propose the next."""
        record, state = self.record, self.state
        assert record is not None
        epoch = max(record.epoch, state.seen) + 1 + skipped
        self._propose_to_lead(
            succeeding_record(record, self._as_master(), epoch=epoch, mark=self._mark())
        )

    def _as_master(self) -> NewMaster:
        return NewMaster(self.state.member, self.state.incarnation, *self._addresses)

    def _propose_to_lead(self, record: GroupRecord) -> None:
        self._order_follow(None, "it asks the authority to be the master")
        self.proposal = Proposal(self.revision, record)
        self._change_state(proposal=self.proposal)
        self._order_write(self.proposal)

    def _order_follow(self, record: GroupRecord | None, why: str) -> None:
        aim = None if record is None else (record.epoch, record.master, record.address)
        if aim is None or aim != self._followed or self.is_leader:
            self._orders.append(orders.FollowMaster(record, why))
            self._heard_ms = self._woken_ms
        self.is_leader = False
        self._followed, self.why = aim, why

    def note_log_loss(self, log_offset: int) -> None:
        """Leave the in-sync set: the log was found damaged or incomplete from this offset on, and
        this member may have reported the missing part as stored."""
        sound_end = min(each for each in (log_offset, self.state.sound_end) if each >= 0)
        self._change_state(incarnation=self._mark(), sound_end=sound_end)
        self._log(
            f"the log is damaged, or lacks something, from offset {sound_end} on: it is copied "
            "again from there when there is a master"
        )

    def note_duplicate(self, *, is_certain: bool) -> None:
        """Do not take over until a master lets this member in: another process seems to be the same
        member, and to be the one that copies. If that is certain, leave the in-sync set."""
        self._is_contested = True
        if is_certain and not self._is_duplicate:
            self._is_duplicate = True
            self._change_state(incarnation=self._mark())

    # -- what the record says ----------------------------------------------------------------

    def _apply_record(self, found: VersionedRecord, now_ms: int) -> None:
        if self.is_opening:
            return
        record, fault, has_other_format = decoded_or_fault(found.value)
        if self.is_leader and not has_other_format:
            self._apply_record_as_leader(record, fault, found.revision, now_ms)
            return
        self.record, self.revision = record, found.revision
        if has_other_format:  # a member of another release is the master
            self._order_follow(None, fault)
            self._log_once(fault)
            return
        if now_ms < self._forced_until_ms:
            self._take_over_by_force(record)
            return
        if record is None:
            self._handle_no_record(fault, is_absent=not found.value, now_ms=now_ms)
            return
        why = reason_not_taking_part(record, self.state, has_log=self._has_log)
        if why:
            self._order_follow(None, why)
            self._log_once(why)
            return
        if older := reason_to_distrust_folder(record, self.state):
            self._change_state(incarnation=self._mark())  # it is not in sync
            self._log(older)
        if record.epoch > self.state.seen or self.state.group != record.group:
            self._change_state(seen=record.epoch, group=record.group)
        if record.master != self.state.member:
            self._order_follow(record, "")
            if self._may_take_over(now_ms):
                self._take_over()
            return
        # This member was the master, and was restarted: it continues with a new epoch.
        if record.is_in_sync(self.state.member, self.state.incarnation):
            self._take_over()
            return
        why = reason_after_loss(record, self.state)
        self._order_follow(None, why)
        self._log_once(why)

    def _handle_no_record(self, fault: str, *, is_absent: bool, now_ms: int) -> None:
        state = self.state
        if state.group or not is_absent:
            why = reason_without_record(fault)
            self._order_follow(None, why)
            self._log_once(why)
        elif (
            self._has_log
            or now_ms >= self._born_ms + member_timeouts.CREATE_WAIT_MS + self._jitter_ms
        ):
            self._propose_group(self._mark(), 1)
        else:
            self._order_follow(None, "the group is being made")

    def _propose_group(self, group: str, epoch: int) -> None:
        self._propose_to_lead(
            first_record(group, self._as_master(), epoch=epoch, mark=self._mark())
        )

    def _apply_record_as_leader(
        self, record: GroupRecord | None, fault: str, revision: str, now_ms: int
    ) -> None:
        mine = self.record
        assert mine is not None
        if record == mine:
            self.revision = revision
            self._said.clear()
        elif record is not None and mine.is_replaced_by(record):
            self._log(f"another master was written: {record.description}; this one stops")
            self.is_leader = False
            self.record, self.revision = record, revision
            self._change_state(seen=max(self.state.seen, record.epoch))
            self._apply_record(VersionedRecord(record.encode(), revision), now_ms)
        else:
            self._log_once(reason_to_write_again(record, mine, fault))
            self.revision = revision
            self._propose(replace(mine, mark=self._mark()))

    def _log_once(self, text: str) -> None:
        """Log a text once, until the member works normally again."""
        if text not in self._said:
            self._said.add(text)
            self._log(text)

    # -- what is durable ---------------------------------------------------------------------

    def _change_state(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)
        self._orders.append(orders.KeepState(self.state))

    def adopt_history(self, epoch: int, history: tuple[tuple[int, int], ...]) -> None:
        """Record that the log is now a prefix of the master's, which has this history. It takes
        effect when the order is carried out, before any record of the epoch is taken."""
        self._forced_until_ms = 0  # the master serves: there is nothing to rebuild
        self._is_contested = False
        state = self.state
        assert epoch >= state.promised_epoch, (epoch, state.promised_epoch)
        if (epoch, history, -1) != (state.seen, state.history, state.sound_end):
            self._change_state(seen=epoch, history=history, sound_end=-1)
