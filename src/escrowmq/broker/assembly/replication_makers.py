"""Creates the parts that replicate the log. Only a broker with copies loads this module."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.ports import Disk
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.access.access_check import AccessCheck
from escrowmq.broker.assembly.shared_state import BrokerState
from escrowmq.broker.replication.group_copy import GroupCopy
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.broker.replication.rival_detector import RivalDetector
from escrowmq.broker.replication.slave_copy import SlaveCopy
from escrowmq.broker.replication.slave_requests import GROUP_MASTER_ONLY, slave_rows
from escrowmq.broker.replication.slave_streams import SlaveStreams
from escrowmq.broker.replication.table_copier import SendTableRequest, TableCopier
from escrowmq.broker.replication.table_marks import TableMarks
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.group.membership import GroupMembership
from escrowmq.txn.transactions import Transactions

__all__ = [
    "GROUP_MASTER_ONLY",
    "make_group_copy",
    "make_group_master",
    "make_rival_detector",
    "make_slave_copy",
    "make_slaves",
    "slave_rows",
]


def make_slaves(b: BrokerState, replica: ReplicaSettings) -> SlaveStreams:
    """Create the part of a master that sends the log to its slaves."""
    return SlaveStreams(
        replica,
        b.store,
        output=b.output,
        moment=b.moment,
        chance=b.chance,
        release=b.answers.waiting.send_ready,
    )


def make_rival_detector(b: BrokerState, registration: Registration) -> RivalDetector:
    """Create the part that detects other masters with this broker's name."""
    return RivalDetector(b.settings, b.identity, registration)


def make_slave_copy(
    b: BrokerState, replica: ReplicaSettings, registration: Registration
) -> SlaveCopy:
    """Create the part of a slave that copies from its master."""
    log = b.store.become_copy()

    def make_table_copier(ask: SendTableRequest) -> TableCopier:
        return TableCopier(
            store=b.store,
            log=log,
            topics=b.topics,
            groups=b.groups,
            offsets=b.offsets,
            output=b.output,
            ask=ask,
        )

    return SlaveCopy(
        b.settings,
        replica,
        log,
        identity=b.identity,
        registration=registration,
        peers=b.peers,
        output=b.output,
        moment=b.moment,
        tables=make_table_copier,
        drain=b.store.take_arrivals,
    )


def make_group_master(
    b: BrokerState, membership: GroupMembership, disk: Disk, save: Callable[[], None]
) -> GroupMaster:
    """Create the part of a group's master that replicates to the other members."""

    def refuse(reason: str) -> None:
        if reason:
            b.store.write_gate.pause(reason)
        else:
            b.store.write_gate.resume()

    def register_epoch(epoch: int) -> None:
        b.topics.version.state_version = epoch

    master = GroupMaster(
        membership,
        b.store,
        disk,
        output=b.output,
        moment=b.moment,
        release=b.answers.waiting.send_ready,
        refuse=refuse,
        stamp=register_epoch,
        save=save,
    )
    marks = TableMarks(b.store, b.moment)
    b.answers.set_marks(marks, GROUP_MASTER_ONLY)
    master.watch_tables(disk, marks)
    return master


def make_group_copy(
    b: BrokerState,
    membership: GroupMembership,
    disk: Disk,
    access: AccessCheck,
    transactions: Transactions,
) -> GroupCopy:
    """Create the part of a group's member that copies from the master."""
    return GroupCopy(
        membership,
        b.store,
        b.store.become_copy(),
        disk,
        users_replaced=access.reload_users,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        output=b.output,
        transactions=transactions,
    )
