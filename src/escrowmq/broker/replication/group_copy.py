"""A member of a group that is not the master (a copy): it copies the master's log and tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from escrowmq.base.effects import Close, Dial, Effect
from escrowmq.base.group_report import GroupReport
from escrowmq.base.measure import MetricFamily, unlabelled_metric
from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk, former_path
from escrowmq.base.wire import Wire
from escrowmq.broker.answers.ha_status import copying_ha_status
from escrowmq.broker.output import Output
from escrowmq.broker.part import Part, StartContext
from escrowmq.broker.peer import Peer
from escrowmq.broker.replication.port_dialogue import ReplicationDialogue
from escrowmq.broker.replication.slave_copy import parse_address
from escrowmq.delivery.groups import TRANSACTION_GROUP, GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import EscrowMQError, RemoteProtocolError, StorageError, UsageError
from escrowmq.group.copying import CopyConnection, CutRequired, RefusedByMaster
from escrowmq.group.drills import CUT_OFF, SWITCH, decode_fault_order
from escrowmq.group.frames import Hello, TopicDeletion
from escrowmq.group.membership import GroupMembership
from escrowmq.group.record import GroupRecord
from escrowmq.store.copied_log import CopiedLog
from escrowmq.store.store import Store
from escrowmq.txn.transactions import Transactions

_log = logging.getLogger(__name__)

_USERS: Final = "config/auth.json"
_PRIVATE: Final = ("config/escrowKeys.json", _USERS)
COPY_PEER: Final = -1_000_003
_RETRY_MS: Final = 200
_QUIET_MS: Final = 5_000
_CLAIM_MS: Final = 1_000
"""The pause before a member whose name is taken dials again. Until it is let in it does not take
over, so this is short: it may be the only member, and its former connection still open."""

_DISTRUST_MS: Final = 1_000
"""The pause before a repeated dial after a failed TLS handshake, which costs the master more than
other failures."""

_WARM_MS: Final = 100
_NEVER_MS: Final = (1 << 62) - 1


class GroupCopy(Part):
    """The replication part of a group's copy: it copies the master's log and tables, and is the
    front of its connection to the master."""

    name = "copying the group's master"

    def __init__(
        self,
        membership: GroupMembership,
        store: Store,
        log: CopiedLog,
        disk: Disk,
        *,
        users_replaced: Callable[[], None],
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        output: Output,
        transactions: Transactions,
    ) -> None:
        self._membership = membership
        self._offsets = offsets
        self.transactions = transactions
        self._warmed_ms = 0
        self._store = store
        self._log = log
        self._disk = disk
        self._taking: dict[str, Callable[[bytes], object]] = {
            "config/topics.json": lambda data: topics.replace_with(data, lambda _: False),
            "config/subscriptionGroup.json": groups.replace_with,
            "config/consumerOffset.json": offsets.replace_with,
            _USERS: lambda _: users_replaced(),
        }
        self._tables = (topics, groups, offsets)
        self._output = output
        self._record: GroupRecord | None = None
        self._copy: CopyConnection | None = None
        self._is_dialling = self._is_connected = False
        self._is_distrusted = False
        """Whether TLS has failed on the connection whose loss `connection_failed` will report."""
        self._was_welcome = False
        """Whether this master has accepted this member before. A new master may not have opened its
        port yet."""
        self._due_ms = 0
        self._now_ms = 0
        self._said = ""
        self.fault = "no master is known yet"

    def load(self, start: StartContext) -> None:
        """Read the pending transactions, because a copy that takes over has no time for it. Report
        a damaged log, so that this member does not take over."""
        if start.lost_from is not None:
            self._membership.member.note_log_loss(start.lost_from)
            self._membership.perform()
        self.transactions.load_copy(
            start.now_ms,
            half_offset=self._offsets.get(TRANSACTION_GROUP, Topic.HALF, 0),
            op_offset=self._offsets.get(TRANSACTION_GROUP, Topic.OP, 0),
            is_sound=start.is_sound,
        )

    # -- whom it follows ---------------------------------------------------------------------

    def follow_record(self, record: GroupRecord | None, why: str, now_ms: int) -> None:
        """Copy from the master that this record names; without a record, from none. `why`: the
        reason to report if it copies nothing."""
        self._record = record
        self._was_welcome = False
        self.fault = why or "the master has not let this member in yet"
        self._now_ms = self._due_ms = now_ms
        self._drop_copy("the master is another one now")

    def _drop_copy(self, reason: str) -> None:
        self._copy = None
        if self._is_connected:
            self._output.add_effect(Close(COPY_PEER, reason))

    def has_dialled(self, peer: int) -> bool:
        """Whether this is the connection to the master."""
        return peer == COPY_PEER

    def create_dialogue(self, peer: Peer) -> ReplicationDialogue:
        """Start copying over the connection that the master has accepted."""
        if peer.id != COPY_PEER:
            self._output.add_effect(Close(peer.id, "a copy has no copies"))
            return ReplicationDialogue(peer, self.receive)
        self._is_connected, self._is_dialling = True, False
        if self._record is not None:
            self._copy = CopyConnection(
                self._log,
                self,
                hello=self._hello,
                secret=self._membership.secret,
                nonce=self._membership.nonce(),
                now_ms=self._now_ms,
            )
        else:
            self._output.add_effect(Close(COPY_PEER, "there is no master now"))
        return ReplicationDialogue(peer, self.receive)

    def _hello(self) -> Hello:
        membership, log_end = self._membership, self._log.end_offset
        state = membership.member.state
        if state.sound_end >= 0:
            log_end = min(log_end, state.sound_end)
        return Hello(
            cluster=membership.cluster,
            broker=membership.broker,
            group=state.group,
            member=state.member,
            incarnation=state.incarnation,
            promised=state.promised_epoch,
            history=state.history,
            log_begin=self._log.min_offset,
            log_end=log_end,
            segment_size=self._log.segment_size,
            nonce="",
            start_id=membership.start_id or msgspec.UNSET,
            takes_queue_ends=True,
        )

    def connected(self, peer: int, now_ms: int) -> None:
        """Do nothing more: `create_dialogue` has started the copying already."""
        self._now_ms = now_ms

    def dial_refused(self, peer: int, now_ms: int) -> None:
        """Report that the master's process has ended, because its host refused the connection. A
        master that has not accepted this member yet may just not have opened its port."""
        if self._record is not None and self._was_welcome:
            self._membership.member.note_master_failed(self._membership.now_ms())
            self._membership.wake_member()

    def dial_tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        """Log that TLS with the master has failed, and dial again later."""
        self._is_distrusted = True
        self._due_ms = now_ms + _DISTRUST_MS
        if self._record is not None:
            self._log_fault(
                f"the master {self._record.master} at {self._record.address} gives this member "
                f"nothing: {fault}"
            )

    def connection_failed(self, peer: int, now_ms: int) -> None:
        """Note that the connection is lost, or could not be opened, and dial again later."""
        was_connected = self._is_connected
        was_distrusted, self._is_distrusted = self._is_distrusted, False
        self._is_dialling = self._is_connected = False
        self._copy = None
        # After a lost connection dial immediately: a refusal shows that the master has ended.
        self._due_ms = max(self._due_ms, now_ms if was_connected else now_ms + _RETRY_MS)
        if self._record is not None and self._was_welcome and not was_distrusted:
            self._log_fault(
                f"the master {self._record.master} at {self._record.address} is not reached"
            )

    def wake(self, now_ms: int) -> None:
        """Connect to the master if it is time."""
        self._now_ms = now_ms
        if self._copy is not None and self._copy.is_master_silent(now_ms):
            self._stop_copying("the master has sent nothing for too long", now_ms)
        if self._membership.is_cut_off:
            self._drop_copy(CUT_OFF)  # also a connection that was being opened when the fault began
            self._due_ms = now_ms + _RETRY_MS
            return
        record = self._record
        if record is None or self._is_dialling or self._is_connected or now_ms < self._due_ms:
            return
        address = parse_address(record.address)
        if address is None:
            self._log_fault(f"the master's address {record.address!r} in the record is none")
            self._due_ms = now_ms + _QUIET_MS
            return
        self._is_dialling = True
        self._due_ms = now_ms + _RETRY_MS
        self._output.add_effect(Dial(COPY_PEER, *address, wire=Wire.GROUP))

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do."""
        if self._record is None:
            return _NEVER_MS
        if self._is_dialling or self._is_connected:
            return self._now_ms + 1_000
        return self._due_ms

    # -- what comes --------------------------------------------------------------------------

    def receive(self, peer: Peer, data: bytes, now_ms: int) -> None:
        """Process bytes of the master."""
        if peer.id != COPY_PEER:
            return
        self._now_ms = now_ms
        copy = self._copy
        if copy is None:
            return
        self._membership.member.note_master_alive(self._membership.now_ms())
        try:
            for chunk in copy.receive(data, now_ms):
                self._output.send(COPY_PEER, chunk)
        except CutRequired as cut:
            self._copy = None
            self._output.add_effect(Close(COPY_PEER, "this copy has more than its master"))
            self._record = None
            assert self._membership.on_cut is not None
            self._membership.on_cut(cut)
            return
        except RefusedByMaster as error:
            is_undecided = error.is_name_taken and not error.is_duplicate
            again_ms = _CLAIM_MS if is_undecided else _QUIET_MS
            self._stop_copying(f"the master gives this member nothing: {error}", now_ms, again_ms)
            if error.is_name_taken:
                self._membership.member.note_duplicate(is_certain=error.is_duplicate)
            self._membership.member.read_soon(self._membership.now_ms())
            self._membership.wake_member()
            return
        except (RemoteProtocolError, StorageError, OSError) as error:
            self._stop_copying(f"copying has stopped: {error}", now_ms, _QUIET_MS)
            return
        self._was_welcome |= copy.is_welcome
        if copy.is_welcome and self.fault:
            self.fault = self._said = ""
            _log.info("the master's log is copied from offset %d on", self._log.end_offset)

    def _stop_copying(self, fault: str, now_ms: int, again_ms: int = _RETRY_MS) -> None:
        self._log_fault(fault)
        self._copy = None
        self._due_ms = now_ms + again_ms
        self._output.add_effect(Close(COPY_PEER, fault))

    def _log_fault(self, fault: str) -> None:
        self.fault = fault
        if fault != self._said:
            self._said = fault
            _log.warning("%s", fault)

    # -- beside the log (group.copying.CopyEffects) -----------------------------------------------

    def adopt_epoch(self, epoch: int, history: tuple[tuple[int, int], ...]) -> None:
        """Record that the log of this epoch's master begins with the whole log of this member."""
        self._membership.member.adopt_history(epoch, history)
        self._membership.perform()

    def apply_table(self, path: str, data: bytes) -> None:
        """Save and apply a table that the master sent. Empty data means that the master has no such
        table."""
        if data:
            self._disk.replace(path, data, is_private=path in _PRIVATE)
        else:
            for each in filter(None, (path, former_path(path))):
                self._disk.remove(each)
        take = self._taking.get(path)
        if take is None or not (data or path == _USERS):
            return
        try:
            take(data)
        except (EscrowMQError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RemoteProtocolError(f"{path} of the master cannot be read: {error}") from None
        for table in self._tables:
            table.mark_saved()

    def apply_queue_ends(self, data: bytes) -> None:
        """Let queues continue where the master's do, if all their records are deleted there."""
        try:
            ends = msgspec.json.decode(data, type=dict[str, dict[int, int]])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"ends of queues cannot be read: {error}") from None
        self._log.continue_queues(ends)

    def apply_topic_deletion(self, gone: TopicDeletion) -> None:
        """Delete a topic that the master has deleted."""
        if not self._log.deletions.apply_deletion(gone.topic, gone.log_end, gone.stored_ms):
            raise RemoteProtocolError(
                f"{gone.topic} was deleted at log offset {gone.log_end}, and this log ends at "
                f"{self._log.end_offset}"
            )
        if not self._store.are_deletions_saved:
            # A start that reads the log would bring the messages back, so this must not be
            # reported as stored.
            raise StorageError(f"the deletion of {gone.topic} cannot be recorded")

    def has_unreplicated_deletions(self, log_offset: int) -> bool:
        """Whether this member has deleted topics after this log offset that the group has not: it
        was master then, and did not know that it had been replaced."""
        return self._store.deleted.has_own_after(log_offset)

    def become_master(self) -> None:
        """Become master, because the present one hands over. Refuse if this member's disk takes no
        messages: the master's request then times out, and it asks another member."""
        if fault := self._store.disk_fault:
            _log.warning("this member does not take over from the master: %s", fault)
            return
        self._membership.member.take_over_now(self._membership.now_ms())
        self._membership.wake_member()

    def finish_input(self, now_ms: int) -> None:
        """Report to the master what is stored by now. Drop arrived messages: no consumer waits at a
        copy."""
        self._store.take_arrivals()
        self._log.take_topics()
        if now_ms >= self._warmed_ms + _WARM_MS:
            self._warmed_ms = now_ms
            self.transactions.read_appended(now_ms)
        if self._copy is not None and (report := self._copy.next_report()):
            self._output.send(COPY_PEER, report)

    def take_effects(self) -> list[Effect]:
        """Return the effects at the end of an input."""
        return self._output.take_effects()

    def keep_segments_from(self, until: int, now_ms: int) -> int:
        """Return the log offset from which on segments must be kept, because the master still has
        them."""
        begin = 0 if self._copy is None else self._copy.log_begin
        return min(until, begin)

    # -- questions ---------------------------------------------------------------------------

    def metric_families(self) -> list[MetricFamily]:
        """Return the metrics of copying: whether it works, and the lag."""
        behind = 0 if self._copy is None else self._copy.master_end - self._log.end_offset
        return [
            unlabelled_metric(
                "escrowmq_copying", "gauge", "1 while the master's log is copied.", not self.fault
            ),
            unlabelled_metric(
                "escrowmq_master_behind_bytes",
                "gauge",
                "Bytes of the master's log that are missing here, as of its last message.",
                max(behind, 0),
            ),
        ]

    def issue_ticket(self, start: int, identity: str, now_ms: int) -> dict[str, str]:
        """Refuse: RocketMQ's slaves and tickets are not for groups."""
        raise UsageError(
            "this broker is a member of a group, which has a replication protocol of its own"
        )

    def master_advice(self) -> str:
        """Return the master's address, as advice to clients."""
        member = self._membership.member
        record, authority = member.record, self._membership.authority or "the authority"
        if record is None or record.master == member.state.member:
            return f"{authority} names no other master now"
        return f"the master is {record.master}, {record.client_address}, as {authority} says"

    def report(self) -> GroupReport:
        """The state of the group as this member knows it."""
        confirmed = -1 if self._copy is None else self._copy.confirmed
        return msgspec.structs.replace(
            self._membership.report(is_master=False, end=self._log.end_offset, confirmed=confirmed),
            why=self._membership.member.why or self.fault,
        )

    def switch_master(self, member: str) -> str:
        """Refuse: only a master can hand over."""
        record = self._membership.member.record
        where = "" if record is None else f"; ask {record.master}, {record.client_address}"
        raise UsageError(f"this member is not the master{where}")

    def inject_fault(self, fields: Mapping[str, str], *, who: str, at_ms: int) -> dict[str, str]:
        """Inject a fault into this member, for a failover drill."""
        order = decode_fault_order(fields, who=who, at_ms=at_ms)
        if order.fault == SWITCH:
            self.switch_master("")
        answer = self._membership.inject_fault(order)
        if self._membership.is_cut_off:
            self.wake(self._now_ms)
        return answer

    def become_master_by_force(self) -> None:
        """Become master by force; records that only other members have are lost."""
        member = self._membership.member
        if self._copy is not None and self._copy.is_welcome and member.record is not None:
            raise UsageError(
                f"this member copies {member.record.master}, which is running: there is "
                "nothing to rebuild"
            )
        if member.authority_fault:
            raise UsageError(
                f"the authority does not answer ({member.authority_fault}), so this member cannot "
                "become the master"
            )
        member.take_over_now(self._membership.now_ms(), is_forced=True)
        self._membership.wake_member()

    def ha_status(self) -> dict[str, object]:
        """The replication state in the form of mqadmin's haStatus (HARuntimeInfo)."""
        record, copy = self._record, self._copy
        return copying_ha_status(
            is_copying=copy is not None and copy.is_welcome,
            master_address="" if record is None else record.address,
            master_end=0 if copy is None else copy.master_end,
            end_offset=self._log.end_offset,
            fault=self.fault,
            heard_ms=self._now_ms,
            said_ms=self._now_ms,
        )
