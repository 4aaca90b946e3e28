"""Creates the parts of a broker: each gets what it needs, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.ports import Disk
from escrowmq.broker.access.access_check import AccessCheck, ListPollTables
from escrowmq.broker.access.audit_log import DenialLog
from escrowmq.broker.access.on_acl1 import BrokerLookup
from escrowmq.broker.access.quotas import Quotas
from escrowmq.broker.assembly.shared_state import BrokerState
from escrowmq.broker.figures.consumer_gauges import ConsumerGauges
from escrowmq.broker.figures.metrics import BrokerMetrics
from escrowmq.broker.figures.store_gauges import StoreGauges
from escrowmq.broker.figures.waiting_gauges import WaitingGauges
from escrowmq.broker.reads.pop_reader import QueuePopper
from escrowmq.broker.requests.on_ack import AckHandlers
from escrowmq.broker.requests.on_assignment import AssignmentHandlers
from escrowmq.broker.requests.on_epoch import EpochHandlers
from escrowmq.broker.requests.on_heartbeats import HeartbeatHandlers, OnProducer
from escrowmq.broker.requests.on_peek import PeekHandlers
from escrowmq.broker.requests.on_pop import PopHandlers
from escrowmq.broker.requests.on_pull import PullHandlers
from escrowmq.broker.requests.on_send import SendHandlers
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.broker.requests.pop_part import FreedListeners, PopPart
from escrowmq.broker.sends.batches import BatchSends
from escrowmq.broker.sends.destinations import Destinations
from escrowmq.broker.sends.half_rules import HalfRules
from escrowmq.broker.sends.incoming_halves import IncomingHalves
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.broker.sends.message_from_request import MessageMaker
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.broker.upkeep.offset_saver import OffsetSaver
from escrowmq.broker.upkeep.start_checks import OFFSETS_FILE
from escrowmq.delivery.existing_queues import ExistingQueues
from escrowmq.delivery.orderly_pops import OrderlyBatches
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.delivery.pops_of_rocketmq import PopsOfRocketMQ
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.transactions import Transactions

if TYPE_CHECKING:
    from escrowmq.group.membership import GroupMembership


def make_transactions(
    b: BrokerState, rules: HalfRules, membership: GroupMembership | None
) -> Transactions:
    """Create the transaction engine with the broker's rules for halves."""
    before = None if membership is None else membership.before
    assert before is None or isinstance(before, Transactions)
    return Transactions(
        b.store,
        b.settings,
        b.store_settings,
        host=b.identity.packed,
        chance=b.chance,
        as_delivered=rules.record_to_deliver,
        members=rules.producers_of,
        before=before,
    )


def make_registration(
    b: BrokerState, *, ha_address: str, signs_as: tuple[str, str] | None
) -> Registration:
    """Create the part that registers the broker at the name servers."""
    return Registration(
        settings=b.settings,
        topics=b.topics,
        identity=b.identity,
        peers=b.peers,
        output=b.output,
        ha_address=ha_address,
        signs_as=signs_as,
    )


def make_end_handlers(
    b: BrokerState, putter: MessageStorer, transactions: Transactions
) -> EndHandlers:
    """Create the handlers that end and check transactions."""
    return EndHandlers(
        settings=b.settings,
        store=b.store,
        topics=b.topics,
        clients=b.clients,
        peers=b.peers,
        answers=b.answers,
        putter=putter,
        transactions=transactions,
    )


def make_epoch_handlers(
    b: BrokerState, putter: MessageStorer, engine: TransactionEngine
) -> EpochHandlers:
    """Create the handlers of requests about batches of streaming queries."""
    return EpochHandlers(
        store=b.store,
        topics=b.topics,
        identity=b.identity,
        peers=b.peers,
        answers=b.answers,
        putter=putter,
        engine=engine,
    )


def make_pull_handlers(b: BrokerState) -> PullHandlers:
    """Create the handlers of pulls."""
    return PullHandlers(
        settings=b.settings,
        store_settings=b.store_settings,
        store=b.store,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        clients=b.clients,
        stats=b.stats,
        polls_counts=b.polls_counts,
        answers=b.answers,
    )


def make_client_handlers(b: BrokerState, *, on_producer: OnProducer) -> HeartbeatHandlers:
    """Create the handlers of heartbeats, which register the members of groups."""
    return HeartbeatHandlers(
        settings=b.settings,
        topics=b.topics,
        groups=b.groups,
        clients=b.clients,
        poppers=b.poppers,
        locks=b.locks,
        queues=ExistingQueues(b.settings, b.topics, b.store),
        peers=b.peers,
        on_producer=on_producer,
    )


def make_send_handlers(
    b: BrokerState,
    putter: MessageStorer,
    transactions: Transactions,
    rules: HalfRules,
    access: AccessCheck,
) -> SendHandlers:
    """Create the handlers that store producers' messages."""
    maker = MessageMaker(b.settings, b.frames, b.identity, b.chance)
    destinations = Destinations(b.settings, b.topics, b.groups, b.locks)
    batches = BatchSends(
        store=b.store,
        stats=b.stats,
        identity=b.identity,
        putter=putter,
        maker=maker,
        destinations=destinations,
    )
    halves = IncomingHalves(
        clients=b.clients,
        present=b.present,
        putter=putter,
        transactions=transactions,
        rules=rules,
    )
    return SendHandlers(
        shedding=b.shedding,
        destinations=destinations,
        maker=maker,
        putter=putter,
        halves=halves,
        batches=batches,
        stats=b.stats,
        identity=b.identity,
        present=b.present,
        requesters=b.requesters,
        may_store_again=access.may_store_again,
    )


def make_access_check(
    b: BrokerState,
    transactions: Transactions,
    *,
    disk: Disk,
    accounts: Disk,
    denials: DenialLog,
    polls: ListPollTables,
) -> AccessCheck:
    """Create the access check, which judges every request."""
    places = BrokerLookup(
        settings=b.settings,
        store=b.store,
        topics=b.topics,
        offsets=b.offsets,
        requesters=b.requesters,
        transactions=transactions,
    )
    quotas = Quotas(
        settings=b.settings,
        topics=b.topics,
        groups=b.groups,
        polls_counts=b.polls_counts,
        output=b.output,
        pending=transactions.engine.halves.pending,
    )
    return AccessCheck(
        settings=b.settings,
        chance=b.chance,
        identity=b.identity,
        present=b.present,
        peers=b.peers,
        answers=b.answers,
        disk=disk,
        transactions=transactions,
        places=places,
        quotas=quotas,
        accounts=accounts,
        denials=denials,
        polls=polls,
    )


def make_pop_part(
    b: BrokerState, putter: MessageStorer, registration: Registration, disk: Disk
) -> PopPart:
    """Create the parts for pop consumption."""
    orders, freed = OrderlyBatches(b.peers.is_reachable), FreedListeners()
    ledger = PopLedger(
        b.store,
        b.settings,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        host=b.identity.packed,
        rocketmq=PopsOfRocketMQ(b.settings, b.timer, putter.store_message, host=b.identity.packed),
        is_there=b.peers.is_reachable,
    )
    pops, peeks = _make_pop_handlers(b, ledger, orders, freed)
    freed.add(pops.serve_freed_queues)
    freed.add(peeks.serve_freed_queues)
    assignments = AssignmentHandlers(
        settings=b.settings,
        topics=b.topics,
        groups=b.groups,
        clients=b.clients,
        peers=b.peers,
        answers=b.answers,
        disk=disk,
        name_server=registration.connected_server,
    )
    return PopPart(
        ledger=ledger,
        orders=orders,
        pops=pops,
        peeks=peeks,
        acks=_make_ack_handlers(b, ledger, orders, freed),
        assignments=assignments,
        saver=_make_offset_saver(b, ledger, orders),
    )


def _make_pop_handlers(
    b: BrokerState, ledger: PopLedger, orders: OrderlyBatches, freed: FreedListeners
) -> tuple[PopHandlers, PeekHandlers]:
    popper = QueuePopper(
        settings=b.settings,
        store_settings=b.store_settings,
        store=b.store,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        chance=b.chance,
        ledger=ledger,
        orders=orders,
    )
    pops = PopHandlers(
        settings=b.settings,
        store=b.store,
        offsets=b.offsets,
        clients=b.clients,
        poppers=b.poppers,
        stats=b.stats,
        polls_counts=b.polls_counts,
        answers=b.answers,
        popper=popper,
        orders=orders,
        on_freed=freed,
    )
    peeks = PeekHandlers(
        settings=b.settings,
        stats=b.stats,
        polls_counts=b.polls_counts,
        answers=b.answers,
        popper=popper,
        pops=pops,
    )
    return pops, peeks


def _make_ack_handlers(
    b: BrokerState, ledger: PopLedger, orders: OrderlyBatches, freed: FreedListeners
) -> AckHandlers:
    return AckHandlers(
        store=b.store,
        topics=b.topics,
        offsets=b.offsets,
        answers=b.answers,
        ledger=ledger,
        orders=orders,
        on_freed=freed,
    )


def _make_offset_saver(b: BrokerState, ledger: PopLedger, orders: OrderlyBatches) -> OffsetSaver:
    return OffsetSaver(
        store=b.store,
        topics=b.topics,
        groups=b.groups,
        offsets=b.offsets,
        output=b.output,
        ledger=ledger,
        orders=orders,
        path=OFFSETS_FILE,
    )


def make_metrics(
    b: BrokerState,
    transactions: Transactions,
    *,
    access: AccessCheck,
    rounds: BackgroundRounds,
    ledger: PopLedger,
) -> BrokerMetrics:
    """Create the metrics."""
    gauges = StoreGauges(
        store=b.store,
        topics=b.topics,
        groups=b.groups,
        delays=b.delays,
        timer=b.timer,
    )
    return BrokerMetrics(
        settings=b.settings,
        store=b.store,
        clients=b.clients,
        stats=b.stats,
        shedding=b.shedding,
        latency=b.latency,
        peers=b.peers,
        transactions=transactions,
        access=access,
        rounds=rounds,
        gauges=gauges,
        reader_gauges=ConsumerGauges(store=b.store, offsets=b.offsets, ledger=ledger),
        later_gauges=WaitingGauges(b.settings, b.store, b.timer, ledger),
        droppers=(b.delays.deliverer, b.timer.deliverer, ledger),
    )
