"""The master of a group: it sends log and tables to the other members, and confirms the log up to
what all members in sync have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from escrowmq.base.effects import Close, Effect, Replace
from escrowmq.base.group_report import CopyReport, GroupReport
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.base.measure import MetricFamily, Sample, unlabelled_metric
from escrowmq.base.ports import Disk
from escrowmq.broker.answers.ha_status import describe_connection, master_ha_status
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.output import Output
from escrowmq.broker.part import Part, StartContext
from escrowmq.broker.peer import Peer
from escrowmq.broker.replication.disk_fault_timer import DiskFaultTimer
from escrowmq.broker.replication.log_growth import SAMPLE_MS, LogGrowth
from escrowmq.broker.replication.port_dialogue import ReplicationDialogue
from escrowmq.broker.replication.successor import SWITCH_MS, Successor
from escrowmq.broker.replication.table_frames import TableFrames
from escrowmq.broker.replication.table_marks import TableMarks, WatchedDisk
from escrowmq.errors import SWITCHING_REMARK, RemoteProtocolError, UsageError
from escrowmq.group.copy_stream import CopyRefused, CopyStream, MasterEpoch
from escrowmq.group.copy_streams import CopyStreams
from escrowmq.group.drills import CUT_OFF, SWITCH, decode_fault_order
from escrowmq.group.frames import encode_table
from escrowmq.group.membership import GroupMembership
from escrowmq.group.tables import deletion_key
from escrowmq.store.store import Store

_log = logging.getLogger(__name__)


class GroupMaster(Part):
    """The replication part of a group's master: it sends log and tables to the copies, and is the
    front of its replication port."""

    name = "copies of the group"
    fault = ""

    def __init__(
        self,
        membership: GroupMembership,
        store: Store,
        disk: Disk,
        *,
        output: Output,
        moment: InputTime,
        release: Callable[[], None],
        refuse: Callable[[str], None],
        stamp: Callable[[int], None],
        save: Callable[[], None],
    ) -> None:
        """`release` sends the answers that waited for confirmation. `refuse` sets the reason to
        refuse messages; an empty text ends that. `stamp` adds the epoch to the registration. `save`
        saves the offsets of consumers and of delayed messages now."""
        assert membership.leads is not None
        self._membership = membership
        self._store = store
        self._frames = TableFrames(disk, store)
        self._output = output
        self._moment = moment
        self._release = release
        self._refuse = refuse
        self._stamp = stamp
        self._save = save
        state = membership.member.state
        self._epoch = MasterEpoch(
            membership.cluster,
            membership.broker,
            membership.leads.group,
            membership.leads.epoch,
            state.history,
            state.member,
            membership.secret,
        )
        self._streams = CopyStreams()
        self._growth = LogGrowth()
        self._said = RepeatedErrors()
        self._marks: TableMarks | None = None
        self._needed: dict[str, str] | None = None
        self._heir: Successor | None = None
        self._declined: set[str] = set()
        """Members that were asked to take over and have not done so."""
        self._patience = DiskFaultTimer()
        self._is_ready = False
        store.ends.lead_group(timeout_ms=membership.timeout_ms)
        store.on_deleted = self._queue_deletion
        membership.member.copies.set_has_all(self._has_all_data)

    def watch_tables(self, disk: Disk, marks: TableMarks) -> None:
        """From now on, send each table that is written to this disk to the copies, and mark each
        such change in the log."""
        self._marks = marks
        if isinstance(disk, WatchedDisk):
            disk.watch(self._table_written)

    def _table_written(self, path: str, data: bytes) -> None:
        self.queue_table(path, data)
        if self._marks is not None:
            self._marks.note_table_change()

    def load(self, start: StartContext) -> None:
        """Add the epoch to the registration: name servers prefer the master of the newest one
        (RocketMQ's stateVersion)."""
        self._stamp(self._epoch.epoch)

    # -- connections -------------------------------------------------------------------------

    def create_dialogue(self, peer: Peer) -> ReplicationDialogue:
        """Accept a connection to the replication port, of a copy or of any other client."""
        if self._membership.is_cut_off:
            self._output.add_effect(Close(peer.id, CUT_OFF))
        else:
            crowding = self._streams.peer_to_close()
            if crowding is not None:
                self._close(crowding, "there are too many", self._moment.now_ms)
            stream = CopyStream(
                self._store.log,
                self._epoch,
                nonce=self._membership.nonce(),
                tables=self._all_table_frames,
                now_ms=self._moment.now_ms,
            )
            self._streams.add(peer.id, peer.address, stream)
            self._send_to_copy(peer.id)
        return ReplicationDialogue(peer, self.receive, self.remove_copy)

    def receive(self, peer: Peer, data: bytes, now_ms: int) -> None:
        """Process bytes of a connection."""
        stream = self._streams.by_peer.get(peer.id)
        if stream is None:
            return
        was_known = stream.hello is not None
        try:
            has_reported = stream.receive(data, now_ms)
            if not was_known and stream.hello is not None:
                self._close_previous(self._streams.previous_connections(peer.id, now_ms))
        except CopyRefused as error:
            self._output.send(peer.id, stream.encode_refusal(error))
            self._close(peer.id, error.reason, now_ms)
            self._membership.member.note_later_epoch(error.promised, self._membership.now_ms())
            self._membership.wake_member()
            self.update_confirmed_end()
            return
        except RemoteProtocolError as error:
            self._close(peer.id, str(error), now_ms)
            return
        if has_reported:
            self._report_progress(stream)
        self.update_confirmed_end()
        self._hand_over()

    def _close_previous(self, peers: list[int]) -> None:
        """Close the previous connections of a member that reconnects."""
        for other in peers:
            self._streams.remove(other)
            self._output.add_effect(Close(other, "this copy has connected again"))

    def remove_copy(self, peer: Peer, now_ms: int) -> None:
        """Forget a lost connection, and report the copy as gone."""
        stream = self._streams.remove(peer.id)
        if stream is not None and stream.hello is not None:
            self._membership.member.copy_disconnected(
                stream.hello.member, self._membership.now_ms()
            )

    def _close(self, peer: int, reason: str, now_ms: int) -> None:
        address = self._streams.address(peer)
        stream = self._streams.remove(peer)
        ending = self._said.suppressed_note(address.rpartition(":")[0] + reason, now_ms)
        if ending is not None:
            _log.warning("a copy's connection from %s is closed: %s%s", address, reason, ending)
        self._output.add_effect(Close(peer, reason))
        if stream is not None and stream.hello is not None:
            self._membership.member.copy_disconnected(
                stream.hello.member, self._membership.now_ms()
            )

    # -- the log -----------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return the effects at the end of an input, including log and tables for the copies."""
        if self._marks is not None:
            self._marks.input_ended()
        effects = self._output.take_effects()
        for effect in effects:
            if isinstance(effect, Replace):
                self.queue_table(effect.path, effect.data)
        if self._streams.by_peer:
            self._send_to_copies()
            self._hand_over()
        elif self._has_no_copy_in_sync:
            self.update_confirmed_end()
        return [*effects, *self._output.take_effects()]

    @property
    def _has_no_copy_in_sync(self) -> bool:
        return not self._needed

    def _send_to_copies(self) -> None:
        self._growth.add_sample(self._store.end_offset, self._membership.now_ms())
        if self._heir is not None and self._heir.was_asked:
            return  # records that the successor lacks would be cut off at other members
        for peer in list(self._streams.by_peer):
            self._send_to_copy(peer)

    def _send_to_copy(self, peer: int) -> None:
        now_ms = self._moment.now_ms
        stream = self._streams.by_peer[peer]
        try:
            found = stream.bytes_to_send(
                self._store.ends.confirmed, now_ms, rate=self._rate_limit_of(stream)
            )
        except RemoteProtocolError as error:
            self._close(peer, str(error), now_ms)
            return
        if found:
            self._output.send(peer, *found)

    def _rate_limit_of(self, stream: CopyStream) -> int:
        """Return the most bytes per second to send to a copy; 0: no limit, for copies in sync,
        which senders wait for. Other copies get at least twice the rate at which the log grows, so
        that they catch up."""
        rate, hello = self._membership.catch_up_rate, stream.hello
        if not rate or hello is None or hello.member in (self._needed or ()):
            return 0
        return max(rate, 2 * self._growth.rate(self._store.end_offset, self._membership.now_ms()))

    def _report_progress(self, stream: CopyStream) -> None:
        assert stream.hello is not None
        current_ms = self._membership.now_ms()
        if not stream.has_everything:
            current_ms = self._growth.time_reached_ms(stream.acknowledged)
        hello = stream.hello
        self._membership.member.copies.note_report(
            hello.member, hello.incarnation, current_ms=current_ms
        )

    def _has_all_data(self, member: str, incarnation: str) -> bool:
        """Whether a copy has all records that were acknowledged or visible, and the tables."""
        ends = self._store.ends
        promised = min(self._store.end_offset, max(ends.answerable_end, ends.visible_end))
        stream = self._streams.stream_of(member, incarnation)
        return stream is not None and stream.acknowledged >= promised and stream.has_tables

    def update_confirmed_end(self) -> None:
        """Update up to where the log is confirmed, and send the answers that waited for that."""
        store, ends = self._store, self._store.ends
        member = self._membership.member
        if not member.is_leader:
            return  # no longer the master: it must confirm nothing more
        needed = member.needed_members
        if needed != self._needed:
            self._needed = needed
            ends.set_in_sync(len(needed) + 1)
            store.flusher.end_quiet_time()
            self._refuse_if_too_few_copies()
        seen_until, answered_until = ends.visible_end, ends.answerable_end
        if needed:
            confirmed = min(
                [store.end_offset, *(self._acknowledged_end(*each) for each in needed.items())]
            )
            if confirmed > ends.confirmed:
                ends.set_confirmed(confirmed)
        if ends.visible_end > seen_until:
            store.dispatcher.dispatch_waiting()
        if ends.answerable_end > answered_until or self._has_no_copy_in_sync:
            self._release()
        if not self._is_ready and ends.confirmed >= self._membership.epoch_end:
            self._is_ready = True
            self._membership.admit_clients()

    def _acknowledged_end(self, member: str, incarnation: str) -> int:
        stream = self._streams.stream_of(member, incarnation)
        return 0 if stream is None else stream.acknowledged

    def _refuse_if_too_few_copies(self) -> None:
        copies, least = len(self._needed or ()) + 1, self._membership.min_copies
        if self._heir is not None:
            self._refuse(f"{SWITCHING_REMARK} {self._heir.member}; try again soon")
        elif copies < least:
            self._refuse(
                f"{copies} of the group's members are in sync, and escrowMinCopies={least} wants "
                "as many before messages are taken"
            )
        else:
            self._refuse("")

    # -- tables ------------------------------------------------------------------------------

    def queue_table(self, path: str, data: bytes) -> None:
        """Queue a changed table to be sent to the copies, in order with the log."""
        if self._frames.record_change(path, data) and self._streams.by_peer:
            self._queue_frame(path, encode_table(path, data))

    def _queue_deletion(self, topic: str) -> None:
        if self._streams.by_peer:
            self._queue_frame(deletion_key(topic), self._frames.deletion_frame(topic))

    def _queue_frame(self, path: str, frame: bytes) -> None:
        end = self._store.end_offset
        for stream in self._streams.by_peer.values():
            stream.queue_table(path, frame, end)

    def _all_table_frames(self) -> list[tuple[str, bytes, int]]:
        return self._frames.all_frames(self._store.end_offset)

    # -- time --------------------------------------------------------------------------------

    def wake(self, now_ms: int) -> None:
        """Send keep-alives, close connections from which none came, and check whether to hand
        over."""
        for peer, stream in list(self._streams.by_peer.items()):
            try:
                sign = stream.keep_alive(self._store.ends.confirmed, now_ms)
            except RemoteProtocolError as error:
                self._close(peer, str(error), now_ms)
                continue
            if sign:
                self._output.send(peer, sign)
        self.update_confirmed_end()
        if self._membership.member.is_leader:
            self._check_disk()
        self._hand_over()

    def _check_disk(self) -> None:
        """Start handing over if this member's disk has taken no messages for some time."""
        fault = self._store.disk_fault
        if self._heir is not None or not self._patience.must_hand_over(
            fault, self._membership.now_ms()
        ):
            return
        try:
            heir = self.switch_master("")
        except UsageError as error:
            self._patience.log_once(f"no other member can take over ({error}): {fault}")
        else:
            self._patience.log_once(f"{heir} is asked to take over: {fault}")

    def wake_at_ms(self) -> int:
        """The time at which `wake` must be called next."""
        due_ms = min(
            (s.wake_at_ms() for s in self._streams.by_peer.values()), default=(1 << 62) - 1
        )
        return due_ms if self._heir is None else min(due_ms, self._moment.now_ms + SAMPLE_MS)

    def finish_input(self, now_ms: int) -> None:
        """If no copy is in sync, confirm the log up to what is durable here."""
        if self._has_no_copy_in_sync:
            self.update_confirmed_end()

    # -- questions ---------------------------------------------------------------------------

    def report(self) -> GroupReport:
        """Return the state of the group as its master knows it."""
        membership, store = self._membership, self._store
        ends = store.ends
        return msgspec.structs.replace(
            membership.report(
                is_master=membership.member.is_leader,
                end=store.end_offset,
                confirmed=ends.confirmed,
            ),
            refusal=store.refusal or "",
            copies=[
                CopyReport(
                    member=hello.member,
                    incarnation=hello.incarnation,
                    address=self._streams.address(peer),
                    end=stream.acknowledged,
                    behind=store.end_offset - stream.acknowledged,
                )
                for peer, hello, stream in self._streams.member_streams()
            ],
        )

    def switch_master(self, member: str) -> str:
        """Start handing over to this member: accept no more messages, and let it take over once it
        has the whole log."""
        known = self._membership.member
        if not known.is_leader:
            raise UsageError("this member is no longer the master")
        if known.authority_fault:
            raise UsageError(
                f"the authority does not answer ({known.authority_fault}), so no member can "
                "take over"
            )
        able = self._possible_successors()
        if not able or (member and member not in able):
            raise UsageError(
                f"{member or 'no other member'} is not in sync, so it cannot take over; in sync "
                f"and connected: {', '.join(sorted(able)) or 'none'}"
            )
        heir = member or max(sorted(able), key=lambda m: (m not in self._declined, able[m]))
        self._heir = Successor(heir, until_ms=self._membership.now_ms() + SWITCH_MS)
        self._refuse_if_too_few_copies()
        self._save()  # otherwise the new master would have older offsets of consumers
        return heir

    def _possible_successors(self) -> dict[str, int]:
        """Return the members that can take over, with the end of the log that each has stored."""
        needed = self._membership.member.needed_members
        return {
            hello.member: stream.acknowledged
            for _, hello, stream in self._streams.member_streams()
            if needed.get(hello.member) == hello.incarnation
        }

    def become_master_by_force(self) -> None:
        """Refuse: this member is the master already."""
        raise UsageError("this member is the master, and is running: there is nothing to rebuild")

    def inject_fault(self, fields: Mapping[str, str], *, who: str, at_ms: int) -> dict[str, str]:
        """Inject a fault into this member, for a failover drill."""
        order = decode_fault_order(fields, who=who, at_ms=at_ms)
        if order.fault == SWITCH and not order.is_dry_run:
            self._membership.inject_fault(msgspec.structs.replace(order, is_dry_run=True))
            self.switch_master("")
        answer = self._membership.inject_fault(order)
        if self._membership.is_cut_off:
            for peer in list(self._streams.by_peer):
                self._close(peer, CUT_OFF, self._moment.now_ms)
        return answer

    def _hand_over(self) -> None:
        """Ask the successor to take over once it has the whole log. Cancel the change after a
        timeout."""
        heir = self._heir
        if heir is None or not self._membership.member.is_leader:
            return
        if self._membership.now_ms() >= heir.until_ms:
            _log.warning("%s has not taken over: this member stays the master", heir.member)
            self._declined.add(heir.member)
            if self._possible_successors().keys() - self._declined:
                self._patience.allow_next_request(self._membership.now_ms())
            self._heir = None
            self._refuse_if_too_few_copies()
            return
        for peer, hello, stream in self._streams.member_streams():
            if hello.member == heir.member and stream.has_everything and not heir.was_asked:
                heir.mark_asked()
                self._output.send(peer, stream.encode_hand_over())
                self._membership.member.expect_successor(heir.until_ms, self._membership.now_ms())
                self._membership.wake_member()
                # A member that is about to join the set counts from now on.
                self.update_confirmed_end()

    def metric_families(self) -> list[MetricFamily]:
        """Return the metrics of replication: the lag of each copy, members in sync, the epoch."""
        end = self._store.end_offset
        samples = tuple(
            Sample((hello.member,), end - stream.acknowledged)
            for _, hello, stream in self._streams.member_streams()
        )
        text = "Bytes of the log that a member of the group has not reported as stored."
        member = self._membership.member
        in_sync = len(member.needed_members) + 1 if member.is_leader else 0
        return [
            MetricFamily("escrowmq_member_behind_bytes", "gauge", text, ("member",), samples),
            unlabelled_metric(
                "escrowmq_members_in_sync", "gauge", "In sync, including the master.", in_sync
            ),
            unlabelled_metric(
                "escrowmq_epoch", "gauge", "The epoch of the group.", self._epoch.epoch
            ),
        ]

    def issue_ticket(self, start: int, identity: str, now_ms: int) -> dict[str, str]:
        """Refuse: RocketMQ's slaves and tickets are not for groups."""
        raise UsageError(
            "this broker is a member of a group, which has a replication protocol of its own"
        )

    def ha_status(self) -> dict[str, object]:
        """The replication state in the form of mqadmin's haStatus (HARuntimeInfo)."""
        needed = self._membership.member.needed_members if self._membership.member.is_leader else {}
        end_offset = self._store.end_offset
        connections = [
            describe_connection(
                self._streams.address(peer),
                end_offset=end_offset,
                acknowledged=stream.acknowledged,
                sent_end=stream.sent_end,
                is_in_sync=hello.member in needed,
            )
            for peer, hello, stream in self._streams.member_streams()
        ]
        return master_ha_status(end_offset, connections, in_sync_count=len(needed))
