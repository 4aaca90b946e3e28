"""Connects a broker with its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.base.group_report import GroupReport
from escrowmq.group.copying import CutRequired
from escrowmq.group.drills import DrillFaults, FaultOrder
from escrowmq.group.member import GroupMember
from escrowmq.group.record import GroupRecord


class GroupMembership:
    """Connects a broker with its member of the group. A new object is made each time the broker is
    opened, as master or as copy."""

    def __init__(  # noqa: PLR0913 - what a member knows and its broker must be told
        self,
        member: GroupMember,
        *,
        cluster: str,
        broker: str,
        secret: bytes,
        nonce: Callable[[], str],
        perform: Callable[[], None],
        now_ms: Callable[[], int],
        timeout_ms: int,
        min_copies: int,
        leads: GroupRecord | None,
        authority: str = "",
    ) -> None:
        """`perform` carries out the member's orders; on its return the state is durable. `now_ms`
        is the member's own clock, which does not jump. `leads`: the record of the epoch in which
        this broker is the master; `authority`: its address, for messages."""
        self.member: Final = member
        self.cluster: Final = cluster
        self.broker: Final = broker
        self.secret: Final = secret
        self.nonce: Final = nonce
        self.perform: Final = perform
        self.now_ms: Final = now_ms
        self.timeout_ms: Final = timeout_ms
        self.min_copies: Final = min_copies
        self.leads: Final = leads
        self.authority: Final = authority
        self.epoch_end = 0
        """The end of a master's log when its epoch began. Clients are admitted once it is
        confirmed."""
        self.start_id = ""
        """A random id of this start of the process, by which the master notices a second process
        with a copied folder; empty: not known."""
        self.before: object = None
        """For a master that was a copy before: its knowledge of pending transactions."""
        self.catch_up_rate = 0
        """Limit of the log's bytes per second to a copy that is not in sync; 0: no limit."""
        self.drills = DrillFaults()
        """The member's faults; they outlive the broker, and continue when the role changes."""
        self._on_ready: Callable[[], None] | None = None
        self.on_cut: Callable[[CutRequired], None] | None = None
        """Callback of a copy whose log has bytes that its master's does not have."""
        self.on_failure: Callable[[], None] | None = None
        """Ends the member, because its broker works only in part."""

    def report(self, *, is_master: bool, end: int, confirmed: int) -> GroupReport:
        """Report the state of the group as this member knows it."""
        member, record = self.member, self.member.record
        return GroupReport(
            cluster=self.cluster,
            broker=self.broker,
            member=member.state.member,
            incarnation=member.state.incarnation,
            group=member.state.group,
            epoch=0 if record is None else record.epoch,
            master="" if record is None else record.master,
            master_address="" if record is None else record.client_address,
            in_sync=[] if record is None else sorted(record.in_sync),
            members=[] if record is None else sorted(record.numbers.keys() | record.in_sync),
            numbers={} if record is None else record.numbers,
            epochs=[(began.epoch, began.log_offset) for began in member.state.epoch_starts],
            is_master=is_master,
            end=end,
            confirmed=confirmed,
            min_copies=self.min_copies,
            why=member.why,
            authority=self.authority,
            authority_fault=member.authority_fault,
            faults=[*self.drills.notes],
        )

    def inject_fault(self, order: FaultOrder) -> dict[str, str]:
        """Inject a fault into this member, and return its name and timeouts. Raises UsageError."""
        member = self.member
        self.drills.inject(order, me=member.state.member, now_ms=self.now_ms())
        return {
            "member": member.state.member,
            "takeoverMs": str(member.terms.takeover_ms),
            "silenceMs": str(member.terms.silence_ms),
        }

    @property
    def is_cut_off(self) -> bool:
        """Whether a drill isolates this member from the others."""
        return self.drills.is_cut_off(self.now_ms())

    def wake_member(self) -> None:
        """Let the member act on a change now, and carry out its orders."""
        self.member.wake(self.now_ms())
        self.perform()

    def set_on_ready(self, on_ready: Callable[[], None]) -> None:
        """Set the function to call once clients may be admitted."""
        self._on_ready = on_ready

    def admit_clients(self) -> None:
        """Admit clients. Called when everything from before this epoch is confirmed."""
        if self._on_ready is not None:
            self._on_ready()
