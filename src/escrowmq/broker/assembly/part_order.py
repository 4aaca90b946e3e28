"""Assembles a broker: its parts, what each part needs, and the order in which the parts are called.
This is the only module that knows all parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.ports import Disk
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.access.access_check import PollTable
from escrowmq.broker.access.audit_log import DenialLog
from escrowmq.broker.access.operator_addresses import OwnConsole
from escrowmq.broker.assembly.part_makers import (
    make_access_check,
    make_client_handlers,
    make_end_handlers,
    make_epoch_handlers,
    make_metrics,
    make_pop_part,
    make_pull_handlers,
    make_registration,
    make_send_handlers,
    make_transactions,
)
from escrowmq.broker.assembly.shared_state import BrokerState
from escrowmq.broker.fast.end_replies import EndReplies
from escrowmq.broker.fast.fast_ends import FastEnds
from escrowmq.broker.fast.fast_path import FastPath
from escrowmq.broker.fast.fast_pulls import FastPulls
from escrowmq.broker.fast.fast_puts import FastPuts
from escrowmq.broker.fast.plain_sends import PlainSends
from escrowmq.broker.fast.publish_grants import PublishGrants
from escrowmq.broker.figures.transaction_metrics_file import HalfCountsFile
from escrowmq.broker.front import CopyFront, Dialler
from escrowmq.broker.part import Part, save_files
from escrowmq.broker.remoting import RemotingFront
from escrowmq.broker.requests.arrivals import ArrivalServer
from escrowmq.broker.requests.on_config import ConfigHandlers
from escrowmq.broker.requests.on_connections import ConnectionHandlers
from escrowmq.broker.requests.on_controller import ControllerHandlers
from escrowmq.broker.requests.on_dead_letters import DeadLetterHandlers
from escrowmq.broker.requests.on_group_members import GroupMemberHandlers
from escrowmq.broker.requests.on_groups import GroupHandlers
from escrowmq.broker.requests.on_offsets import OffsetHandlers
from escrowmq.broker.requests.on_operator_offsets import OperatorOffsetHandlers
from escrowmq.broker.requests.on_pending import PendingHandlers
from escrowmq.broker.requests.on_query import QueryHandlers
from escrowmq.broker.requests.on_recall import RecallHandlers
from escrowmq.broker.requests.on_relay import RelayHandlers
from escrowmq.broker.requests.on_replicas import ReplicaHandlers
from escrowmq.broker.requests.on_reply import ReplyHandlers
from escrowmq.broker.requests.on_route import RouteHandlers
from escrowmq.broker.requests.on_send_back import SendBackHandlers
from escrowmq.broker.requests.on_statistics import StatisticsHandlers
from escrowmq.broker.requests.on_topics import TopicHandlers
from escrowmq.broker.requests.pop_part import PopPart
from escrowmq.broker.requests.request_server import RequestServer
from escrowmq.broker.sends.half_rules import HalfRules
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.broker.upkeep.delay_part import DelayPart
from escrowmq.broker.upkeep.offset_saver import HalfProgressSaver
from escrowmq.broker.upkeep.table_saving import TableSaver
from escrowmq.codec.changed_settings import ChangedSettings
from escrowmq.delivery import delay_queues, timer_file, timer_snapshot
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.delivery.retry_topics import RetryTopics
from escrowmq.txn.transaction_counters import TransactionMeter

if TYPE_CHECKING:
    from escrowmq.group.membership import GroupMembership


class ReplicationParts(NamedTuple):
    """The parts that replicate the log to or from other brokers. A broker without copies has
    none."""

    front: CopyFront | None = None
    callers: tuple[Dialler, ...] = ()
    keeper: Callable[[int, int], int] | None = None
    """For a slave: returns the log offset from which on segments must be kept, because its master
    still has them (store/retention)."""


class Assembly:
    """All parts of one broker, and the requests that it serves with them."""

    def __init__(
        self,
        broker: BrokerState,
        rounds: BackgroundRounds,
        disk: Disk,
        changes: ChangedSettings,
        *,
        ha_address: str,
        accounts: Disk,
        signs_as: tuple[str, str] | None,
        replica: ReplicaSettings | None,
        membership: GroupMembership | None,
    ) -> None:
        b = broker
        putter = MessageStorer(b.settings, b.store_settings, b.store, b.stats, b.delay_rules)
        rules = HalfRules(b.settings, b.delay_rules, b.topics, b.clients, b.peers.is_reachable)
        denials = DenialLog()
        self.registration = make_registration(b, ha_address=ha_address, signs_as=signs_as)
        self.transactions = make_transactions(b, rules, membership)
        self.ends = make_end_handlers(b, putter, self.transactions)
        self.epochs = make_epoch_handlers(b, putter, self.transactions.engine)
        self.pulls = make_pull_handlers(b)
        self.pops = make_pop_part(b, putter, self.registration, disk)
        self.clients = make_client_handlers(b, on_producer=self.ends.resume_parked_checks)
        self.access = make_access_check(
            b, self.transactions, disk=disk, accounts=accounts, denials=denials,
            polls=self._poll_tables,
        )  # fmt: skip
        members = ReplicaHandlers(b.settings, b.store, b.topics, b.groups, b.offsets, b.timer)
        self.group_end = GroupMemberHandlers()
        sync_state = ControllerHandlers(b.settings, self.group_end)
        pending = self._make_pending_handlers(b, denials)
        meter = self.transactions.engine.halves.meter
        handlers = (
            make_send_handlers(b, putter, self.transactions, rules, self.access),
            *(*_make_storing_handlers(b, putter), *_make_reading_handlers(b)),
            *_make_operator_handlers(b, putter, disk, changes, self.pops, meter),
            *(pending, members, self.group_end, sync_state),
            *(self.ends, self.epochs, self.pulls, self.clients),
            *(*self.pops.handlers, *self.access.handlers),
        )
        self.tables = TableSaver(
            b.topics, b.groups, disk=disk, registration=self.registration, answers=b.answers
        )
        self.serving = RequestServer(
            present=b.present, calls=b.calls, tables=self.tables, access=self.access, rounds=rounds,
            handlers=handlers,
        )  # fmt: skip
        self.arrivals = self._make_arrivals(b, rounds)
        is_copy = membership is not None and membership.leads is None
        is_slave = is_copy or (replica is not None and replica.is_slave)
        self.remoting = self._make_remoting_front(b, is_slave=is_slave)
        self.measuring = make_metrics(
            b, self.transactions, access=self.access, rounds=rounds, ledger=self.pops.ledger
        )
        self.parts = self._ordered_parts(b)
        self.copying = self._make_replication(
            b, members, disk, replica=replica, membership=membership
        )
        self._add_rounds(b, rounds)

    def _make_arrivals(self, b: BrokerState, rounds: BackgroundRounds) -> ArrivalServer:
        return ArrivalServer(
            store=b.store,
            delays=b.delays,
            timer=b.timer,
            rounds=rounds,
            present=b.present,
            pulls=self.pulls,
            pops=self.pops,
        )

    def _make_replication(
        self,
        b: BrokerState,
        members: ReplicaHandlers,
        disk: Disk,
        *,
        replica: ReplicaSettings | None,
        membership: GroupMembership | None,
    ) -> ReplicationParts:
        if membership is not None:
            return self._make_group_member(b, membership, disk, members)
        return (
            ReplicationParts()
            if replica is None
            else self._make_master_or_slave(b, replica, members)
        )

    def _make_master_or_slave(
        self, b: BrokerState, replica: ReplicaSettings, members: ReplicaHandlers
    ) -> ReplicationParts:
        from escrowmq.broker.assembly import replication_makers as make

        if not replica.is_slave:
            slaves = make.make_slaves(b, replica)
            self.parts = (*self.parts, slaves, make.make_rival_detector(b, self.registration))
            members.set_replication(slaves)
            return ReplicationParts(slaves)
        master = make.make_slave_copy(b, replica, self.registration)
        members.set_replication(master)
        self.serving.replace_rows(partial(make.slave_rows, replica=replica, pulls=self.pulls))
        self._keep_parts_of_copy(b, master)
        return ReplicationParts(master, (master,), master.keep_segments_from)

    def _save_progress(self, b: BrokerState) -> None:
        """Save the files of all parts that are saved periodically."""
        for part in self.parts:
            save_files(part, b.output, b.moment.now_ms)

    def _make_group_member(
        self, b: BrokerState, membership: GroupMembership, disk: Disk, members: ReplicaHandlers
    ) -> ReplicationParts:
        """Add the replication part of a group member: the master's or a copy's."""
        from escrowmq.broker.assembly import replication_makers as make

        if membership.leads is not None:
            master = make.make_group_master(b, membership, disk, partial(self._save_progress, b))
            self.parts = (*self.parts, master)
            members.set_replication(master)
            self.group_end.set_role(master)
            return ReplicationParts(master)
        copy = make.make_group_copy(b, membership, disk, self.access, self.transactions)
        members.set_replication(copy)
        self.group_end.set_role(copy)
        self.serving.replace_rows(
            partial(
                make.slave_rows,
                replica=ReplicaSettings(),
                pulls=self.pulls,
                master_only=make.GROUP_MASTER_ONLY,
                advice=copy.master_advice,
            )
        )
        self._keep_parts_of_copy(b, copy)
        return ReplicationParts(copy, (copy,), copy.keep_segments_from)

    def _keep_parts_of_copy(self, b: BrokerState, copy: Part) -> None:
        """Keep only the parts that a copy needs: none that stores, checks or delivers messages on
        its own."""
        self.parts = (
            *(copy, self.pulls, self.clients, self.registration, self.access),
            b.answers.waiting,
        )

    def _make_pending_handlers(self, b: BrokerState, denials: DenialLog) -> PendingHandlers:
        return PendingHandlers(
            settings=b.settings,
            console=OwnConsole(b.settings, b.identity, chance=b.chance),
            store=b.store,
            transactions=self.transactions,
            ends=self.ends,
            denials=denials,
        )

    def _make_remoting_front(self, b: BrokerState, *, is_slave: bool) -> RemotingFront:
        """Create the remoting front. A slave has no fast path, because it serves little."""
        run, log_ends = b.store.run_for(b.identity.packed), b.store.ends
        replies = EndReplies(
            ends=self.ends,
            serving=self.serving,
            output=b.output,
            latency=b.latency,
            run_answers=b.run_answers,
            log_ends=log_ends,
        )
        ends = FastEnds(
            run=run, log=b.store.log, engine=self.ends.engine, replies=replies, log_ends=log_ends
        )
        puts = FastPuts(
            settings=b.settings,
            store=b.store,
            topics=b.topics,
            clients=b.clients,
            stats=b.stats,
            frames=b.frames,
            transactions=self.transactions,
            run=run,
            ends=ends,
        )
        fast_path = FastPath(
            settings=b.settings,
            frames=b.frames,
            identity=b.identity,
            moment=b.moment,
            shedding=b.shedding,
            latency=b.latency,
            output=b.output,
            serving=self.serving,
            puts=puts,
            grants=PublishGrants(self.access, self.serving),
            run_answers=b.run_answers,
            ends=log_ends,
        )
        self.plain_sends = PlainSends(latency=b.latency, fast_path=fast_path, puts=puts)
        return RemotingFront(
            store_settings=b.store_settings,
            store=b.store,
            frames=b.frames,
            output=b.output,
            serving=self.serving,
            fast_path=None if is_slave else fast_path,
            pulls=None
            if is_slave
            else FastPulls(
                store=b.store,
                offsets=b.offsets,
                stats=b.stats,
                judge=self.pulls.judge,
                output=b.output,
                latency=b.latency,
            ),
        )

    def _poll_tables(self) -> tuple[PollTable, ...]:
        return (self.pulls.holds, *self.pops.poll_tables)

    def drop_held_request(self, peer: int, opaque: int) -> None:
        """Drop a held request whose peer no longer waits, so that it takes no messages."""
        for table in self._poll_tables():
            for held in table.polls_of(peer):
                if held.question.request.command.opaque == opaque:
                    table.remove(held)

    def _ordered_parts(self, b: BrokerState) -> tuple[Part, ...]:
        """Return the parts in the order in which they are loaded, settled, woken and saved. Pending
        transactions precede the parts that depend on them; acks precede the parts that hand
        messages to waiting consumers."""
        delays, times = b.delays, b.timer
        return (
            HalfProgressSaver(b.offsets, self.transactions),
            self.ends,
            self.epochs,
            HalfCountsFile(b.settings, b.output, self.transactions.engine.halves.meter),
            DelayPart("delay levels", delay_queues.PATH, delays, delays.load),
            DelayPart(
                "the timer",
                timer_file.PATH,
                times,
                lambda data, _: times.load(data),
                is_in_log=True,
                snapshot=(timer_snapshot.PATH, times.snapshot_to_save),
            ),
            self.pulls,
            self.pops,
            self.arrivals,
            self.clients,
            self.registration,
            self.access,
            b.answers.denial_marks,
            b.answers.waiting,
        )

    def _add_rounds(self, broker: BrokerState, rounds: BackgroundRounds) -> None:
        store, stats, calls = broker.store, broker.stats, broker.calls
        rounds.add("the store", store.wake, store.wake_at_ms)
        rounds.add("statistics", stats.wake, stats.wake_at_ms)
        rounds.add("requests to clients", calls.wake, calls.wake_at_ms)
        for part in self.parts:
            if type(part).wake is not Part.wake:
                rounds.add(part.name, part.wake, part.wake_at_ms)


def _make_storing_handlers(b: BrokerState, putter: MessageStorer) -> tuple[object, ...]:
    """Create the parts that store messages on the broker's own behalf."""
    return (
        SendBackHandlers(
            settings=b.settings,
            store=b.store,
            topics=b.topics,
            groups=b.groups,
            stats=b.stats,
            identity=b.identity,
            chance=b.chance,
            putter=putter,
        ),
        DeadLetterHandlers(
            settings=b.settings,
            store=b.store,
            topics=b.topics,
            retries=RetryTopics(b.topics, b.groups, b.offsets),
            poppers=b.poppers,
            identity=b.identity,
            putter=putter,
        ),
        RelayHandlers(b.store, b.clients, b.peers, b.answers),
        ReplyHandlers(
            settings=b.settings,
            topics=b.topics,
            clients=b.clients,
            identity=b.identity,
            present=b.present,
            requesters=b.requesters,
            peers=b.peers,
            answers=b.answers,
            putter=putter,
        ),
        RecallHandlers(b.settings, b.topics, b.identity, putter, b.timer, b.timer_quotas),
    )


def _topic_forgetters(
    b: BrokerState, pops: PopPart, meter: TransactionMeter
) -> tuple[Callable[[str], None], ...]:
    """Return the functions that forget a deleted topic."""
    return b.stats.forget_topic, pops.forget_topic, b.timer.forget_topic, meter.remove_topic


def _make_operator_offset_handlers(
    b: BrokerState, putter: MessageStorer, ledger: PopLedger
) -> OperatorOffsetHandlers:
    """Create the handlers of offsets that operators set."""
    return OperatorOffsetHandlers(
        settings=b.settings,
        store=b.store,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        clients=b.clients,
        readers=b.readers,
        delays=b.delays,
        peers=b.peers,
        putter=putter,
        store_reset=ledger.store_reset,
    )


def _make_operator_handlers(
    b: BrokerState,
    putter: MessageStorer,
    disk: Disk,
    changes: ChangedSettings,
    pops: PopPart,
    meter: TransactionMeter,
) -> tuple[object, ...]:
    """Create the handlers that show and change the broker's state, for operators."""
    return (
        ConfigHandlers(
            settings=b.settings,
            store_settings=b.store_settings,
            store=b.store,
            topics=b.topics,
            stats=b.stats,
            identity=b.identity,
            disk=disk,
            changes=changes,
            peers=b.peers,
        ),
        TopicHandlers(
            settings=b.settings,
            store=b.store,
            topics=b.topics,
            offsets=b.offsets,
            clients=b.clients,
            forgetters=_topic_forgetters(b, pops, meter),
        ),
        GroupHandlers(
            settings=b.settings,
            topics=b.topics,
            groups=b.groups,
            offsets=b.offsets,
            clients=b.clients,
            forgetters=(b.stats.forget_group, pops.forget_group),
        ),
        _make_operator_offset_handlers(b, putter, pops.ledger),
        ConnectionHandlers(clients=b.clients, readers=b.readers),
        StatisticsHandlers(
            settings=b.settings,
            store=b.store,
            topics=b.topics,
            groups=b.groups,
            offsets=b.offsets,
            clients=b.clients,
            poppers=b.poppers,
            readers=b.readers,
            stats=b.stats,
            identity=b.identity,
        ),
    )


def _make_reading_handlers(b: BrokerState) -> tuple[object, ...]:
    """Create the handlers that only read existing data."""
    return (
        OffsetHandlers(
            settings=b.settings,
            store_settings=b.store_settings,
            store=b.store,
            topics=b.topics,
            groups=b.groups,
            offsets=b.offsets,
            answers=b.answers,
        ),
        RouteHandlers(b.settings, b.topics, b.identity),
        QueryHandlers(b.settings, b.store),
    )
