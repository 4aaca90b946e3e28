"""Creates the parts that replicate the log. Only a broker with copies loads this module."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.ports import Disk
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.access.door import Door
from escrowmq.broker.assembly.shared_state import Broker
from escrowmq.broker.replication.group_copy import GroupCopy
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.broker.replication.master import Master
from escrowmq.broker.replication.master_tables import Ask, MasterTables
from escrowmq.broker.replication.rivals import Rivals
from escrowmq.broker.replication.slave_requests import OF_A_GROUPS_MASTER, rows_of_slave
from escrowmq.broker.replication.slaves import Slaves
from escrowmq.broker.replication.table_marks import TableMarks
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.group.membership import GroupMembership
from escrowmq.txn.transactions import Transactions

__all__ = [
    "OF_A_GROUPS_MASTER",
    "group_copy_of",
    "group_master_of",
    "master_of",
    "rivals_of",
    "rows_of_slave",
    "slaves_of",
]


def slaves_of(b: Broker, replica: ReplicaSettings) -> Slaves:
    """Create the part of a master that sends the log to its slaves."""
    return Slaves(
        replica,
        b.store,
        output=b.output,
        moment=b.moment,
        chance=b.chance,
        release=b.answers.waiting.release,
    )


def rivals_of(b: Broker, registration: Registration) -> Rivals:
    """Create the part that detects other masters with this broker's name."""
    return Rivals(b.settings, b.identity, registration)


def master_of(b: Broker, replica: ReplicaSettings, registration: Registration) -> Master:
    """Create the part of a slave that copies from its master."""
    log = b.store.become_copy()

    def tables(ask: Ask) -> MasterTables:
        return MasterTables(
            store=b.store,
            deletions=log.deletions,
            topics=b.topics,
            groups=b.groups,
            offsets=b.offsets,
            output=b.output,
            ask=ask,
        )

    return Master(
        b.settings,
        replica,
        log,
        identity=b.identity,
        registration=registration,
        peers=b.peers,
        output=b.output,
        moment=b.moment,
        tables=tables,
        drain=b.store.take_arrivals,
    )


def group_master_of(
    b: Broker, membership: GroupMembership, disk: Disk, save: Callable[[], None]
) -> GroupMaster:
    """Create the part of a group's master that replicates to the other members."""

    def refuse(reason: str) -> None:
        if reason:
            b.store.write_gate.pause(reason)
        else:
            b.store.write_gate.resume()

    def stamp(epoch: int) -> None:
        b.topics.version.state_version = epoch

    master = GroupMaster(
        membership,
        b.store,
        disk,
        output=b.output,
        moment=b.moment,
        release=b.answers.waiting.release,
        refuse=refuse,
        stamp=stamp,
        save=save,
    )
    marks = TableMarks(b.store, b.moment)
    b.answers.wait_for(marks)
    master.watch(disk, marks)
    return master


def group_copy_of(
    b: Broker, membership: GroupMembership, disk: Disk, door: Door, transactions: Transactions
) -> GroupCopy:
    """Create the part of a group's member that copies from the master."""
    return GroupCopy(
        membership,
        b.store,
        b.store.become_copy(),
        disk,
        users_replaced=door.users_replaced,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        output=b.output,
        transactions=transactions,
    )
