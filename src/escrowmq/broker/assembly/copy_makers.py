"""Puts together what copies the log: loaded only by a broker that is not alone."""

from __future__ import annotations

from escrowmq.base.ports import Disk
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.access.door import Door
from escrowmq.broker.assembly.shared_state import Broker
from escrowmq.broker.replication.copied_tables import TableMarks
from escrowmq.broker.replication.group_copy import GroupCopy
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.broker.replication.master import Master
from escrowmq.broker.replication.master_tables import Ask, MasterTables
from escrowmq.broker.replication.rivals import Rivals
from escrowmq.broker.replication.slave_requests import OF_A_GROUPS_MASTER, rows_of_slave
from escrowmq.broker.replication.slaves import Slaves
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.group.seat import Seat
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
    """A master's slaves."""
    return Slaves(
        replica,
        b.store,
        output=b.output,
        moment=b.moment,
        chance=b.chance,
        release=b.answers.waiting.release,
    )


def rivals_of(b: Broker, registration: Registration) -> Rivals:
    """Other masters of a master's name."""
    return Rivals(b.settings, b.identity, registration)


def master_of(b: Broker, replica: ReplicaSettings, registration: Registration) -> Master:
    """A slave's master."""

    def tables(ask: Ask) -> MasterTables:
        return MasterTables(
            store=b.store,
            topics=b.topics,
            groups=b.groups,
            offsets=b.offsets,
            output=b.output,
            ask=ask,
        )

    return Master(
        b.settings,
        replica,
        b.store.follow(),
        identity=b.identity,
        registration=registration,
        peers=b.peers,
        output=b.output,
        moment=b.moment,
        tables=tables,
        drain=b.store.take_arrivals,
    )


def group_master_of(b: Broker, seat: Seat, disk: Disk) -> GroupMaster:
    """The master's end of a group."""

    def refuse(reason: str) -> None:
        if reason:
            b.store.standing.pause(reason)
        else:
            b.store.standing.resume()

    def stamp(epoch: int) -> None:
        b.topics.version.state_version = epoch

    master = GroupMaster(
        seat,
        b.store,
        disk,
        output=b.output,
        moment=b.moment,
        release=b.answers.waiting.release,
        refuse=refuse,
        stamp=stamp,
    )
    marks = TableMarks(b.store, b.moment)
    b.answers.wait_for(marks)
    master.watch(disk, marks)
    return master


def group_copy_of(
    b: Broker, seat: Seat, disk: Disk, door: Door, transactions: Transactions
) -> GroupCopy:
    """A copy's end of a group."""
    return GroupCopy(
        seat,
        b.store,
        b.store.follow(),
        disk,
        users_replaced=door.users_replaced,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        output=b.output,
        transactions=transactions,
    )
