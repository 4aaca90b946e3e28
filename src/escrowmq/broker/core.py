"""BrokerCore: routes requests to handlers and gathers what is to be done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, tzinfo
from functools import partial
from typing import Final

import msgspec

from escrowmq.base.answer import HELD, Refusal, Reply
from escrowmq.base.codes import Flag, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Effect, Hold, Replace, Send
from escrowmq.base.limits import ANSWERS_AHEAD_MAX, KEYS_AT_ONCE_MAX, READS_AT_ONCE_MAX
from escrowmq.base.measure import Family
from escrowmq.base.message import Message, Topic
from escrowmq.base.ports import Chance, Disk
from escrowmq.base.rounds import Rounds
from escrowmq.base.settings import BrokerSettings, StoreSettings
from escrowmq.broker import half_counts
from escrowmq.broker.asked import Asked, Long, Question
from escrowmq.broker.auditing import Denials, note_operation
from escrowmq.broker.door import Door, Table
from escrowmq.broker.gauges import refusal
from escrowmq.broker.half_counts import HalfCounts
from escrowmq.broker.half_rules import HalfRules, transactions_of
from escrowmq.broker.measuring import Measuring
from escrowmq.broker.on_back import BackHandlers
from escrowmq.broker.on_clients import ClientHandlers
from escrowmq.broker.on_config import ConfigHandlers, restore
from escrowmq.broker.on_end import EndHandlers
from escrowmq.broker.on_epoch import EpochHandlers
from escrowmq.broker.on_members import MemberHandlers
from escrowmq.broker.on_offsets import OffsetHandlers
from escrowmq.broker.on_pending import PendingHandlers
from escrowmq.broker.on_pull import PullHandlers
from escrowmq.broker.on_query import QueryHandlers
from escrowmq.broker.on_recall import RecallHandlers
from escrowmq.broker.on_relay import RelayHandlers
from escrowmq.broker.on_resets import ResetHandlers
from escrowmq.broker.on_send import SendHandlers
from escrowmq.broker.on_topics import TopicHandlers
from escrowmq.broker.on_views import ViewHandlers
from escrowmq.broker.opening import GROUPS_FILE, OFFSETS_FILE, TOPICS_FILE, Opening, going_on
from escrowmq.broker.peer import Peer
from escrowmq.broker.pops import Pops
from escrowmq.broker.putting import Putter
from escrowmq.broker.registration import Registration
from escrowmq.broker.requests import UNKNOWN, bound
from escrowmq.broker.saving import keep_progress
from escrowmq.broker.state import Broker
from escrowmq.codec.headers import read_header
from escrowmq.delivery import delay, timer
from escrowmq.delivery.delay import DelayQueues
from escrowmq.delivery.progress import NEVER_MS
from escrowmq.delivery.subscriptions import TRANSACTION_GROUP
from escrowmq.delivery.timer import TimerQueue
from escrowmq.errors import EscrowMQError, StorageError
from escrowmq.store.store import Put, Store

_log = logging.getLogger(__name__)

_SAVE_AGAIN_MS: Final = 1_000
_LOOK_EVERY: Final = 16
"""After so many requests of one input, and each that reads, it counts what they have cost."""


class BrokerCore:
    """One broker, fed by a shell (base.ports.Core)."""

    def __init__(  # noqa: PLR0913 - what a process knows and a core must be told
        self,
        disk: Disk,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        *,
        address: tuple[str, int],
        ha_address: str,
        chance: Chance,
        mark: str = "",
        boot: str = "",
        accounts: Disk | None = None,
        zone: tzinfo = UTC,
        signs_as: tuple[str, str] | None = None,
    ) -> None:
        changes = restore(disk, settings, store_settings)
        store = Store(disk, store_settings, abort_text=mark, boot=boot, zone=zone)
        self._disk = disk
        self.broker = Broker(settings, store_settings, store, address=address, chance=chance)
        broker = self.broker
        putter = Putter(broker)
        self.registration = Registration(broker, ha_address=ha_address, signs_as=signs_as)
        self._delays = DelayQueues(store, store_settings, self._put_delayed)
        self._timer = TimerQueue(store, settings, self._put_delayed)
        broker.delays, broker.timer = self._delays, self._timer
        for courier in (self._delays.courier, self._timer.courier):
            broker.set_aside_counts.append(partial(getattr, courier, "dropped_count"))
        self._clients = ClientHandlers(broker)
        rules = HalfRules(broker)
        self.transactions = transactions_of(broker, rules)
        self._ends = EndHandlers(broker, putter, self.transactions)
        store.retention.keeper = self._carry
        self._epochs = EpochHandlers(broker, putter, self.transactions.engine)
        self._half_counts = HalfCounts(broker, self.transactions.engine.halves.meter)
        self._pulls = PullHandlers(broker)
        self._pops = Pops(broker, putter, self.registration, offsets_path=OFFSETS_FILE)
        denials = Denials()
        # Without a folder of their own the accounts lie beside the other tables.
        folder = accounts or disk
        self._entrance = Door(
            broker, disk, self.transactions, accounts=folder, denials=denials, polls=self._polls
        )
        self.rounds = Rounds()
        pops = self._pops.ledger
        self._measuring = Measuring(broker, self.transactions, self._entrance, self.rounds, pops)
        self._rows = bound(
            (
                SendHandlers(broker, putter, self.transactions, rules),
                ConfigHandlers(broker, disk, changes),
                PendingHandlers(broker, self.transactions, self._ends, denials),
                *self._handlers(putter),
            )
        )
        self._door: Door | None = None
        self._save_at_ms = 0
        self._save_again_ms = 0
        self._add_rounds()

    def _handlers(self, putter: Putter) -> Iterator[object]:
        """Those who serve requests and have something to do besides, and then those who keep
        nothing of their own."""
        yield from (self._ends, self._epochs, self._pulls, self._clients)
        yield from (*self._pops.handlers, *self._entrance.handlers, *_others(self.broker, putter))

    def _add_rounds(self) -> None:
        broker, add = self.broker, self.rounds.add
        add("the store", broker.store.wake, broker.store.wake_at_ms)
        add("statistics", broker.stats.wake, broker.stats.wake_at_ms)
        add("requests to clients", broker.calls.wake, broker.calls.wake_at_ms)
        add("transactions", self._ends.wake, self._ends.wake_at_ms)
        add("counts of halves", self._half_counts.wake, self._half_counts.wake_at_ms)
        add("delay levels", self._delays.wake, self._delays.wake_at_ms)
        add("the timer", self._timer.wake, self._timer.wake_at_ms)
        add("long polls", self._pulls.wake, self._pulls.wake_at_ms)
        add("pops", self._pops.wake, self._pops.wake_at_ms)
        add("clients", self._clients.wake, self._clients.wake_at_ms)
        add("registration", self.registration.wake, self.registration.wake_at_ms)
        add("access control", self._entrance.wake, self._entrance.wake_at_ms)
        add("waiting answers", self._answer_late, self._late_at_ms)
        add("saving", self._save, lambda: self._save_at_ms)

    def _carry(self, until: int, now_ms: int) -> int:
        """Segments are to go: carry forward what waits in them. What is to be delivered later
        keeps its segment till then."""
        halves_from = self.transactions.carrier.carry(until, now_ms)
        return min(halves_from, self._delays.needed_from(), self._timer.needed_from())

    def _put_delayed(self, message: Message, now_ms: int) -> Put:
        """Store a message whose time has come, where somebody reads it."""
        broker = self.broker
        message.queue_id = broker.topics.queue_read(message.topic, message.queue_id)
        return broker.store.put(message, now_ms)

    def _polls(self) -> tuple[Table, ...]:
        return (self._pulls.holds, *self._pops.polls)

    # -- life --------------------------------------------------------------------------------

    def open(self, now_ms: int) -> int:
        """Load the store and the tables. The time from which on the clock is to count: a store
        whose last record is of a later one than this was kept by a clock that was set back since,
        and what is due would be due at the wrong time."""
        broker = self.broker
        self._entrance.load(now_ms)
        self._door = self._entrance if self._entrance.is_needed else None
        opening = Opening(broker, self._disk)
        opening.tables()
        report = broker.store.open(now_ms)
        now_ms = going_on(now_ms, broker.store)
        broker.started_ms = now_ms
        opening.agree(report, now_ms)
        opening.take(delay.PATH, lambda data: self._delays.load(data, now_ms))
        opening.take(timer.PATH, self._timer.load)
        self.transactions.load(
            now_ms,
            half_offset=broker.offsets.get(TRANSACTION_GROUP, Topic.HALF, 0),
            op_offset=broker.offsets.get(TRANSACTION_GROUP, Topic.OP, 0),
            is_sound=not report.damaged,
        )
        self._epochs.load(self._disk, now_ms)
        self._half_counts.load(self._disk.read(half_counts.PATH))
        broker.topics.create_system_topics(now_ms)
        opening.restore_topics(now_ms)
        broker.groups.create_system_groups(now_ms)
        self._pops.load(opening.take_lesser, now_ms, is_sound=not report.damaged)
        self._save_tables(now_ms)
        broker.topics.unregistered.clear()  # a name server is told of all when it is connected
        self._save_at_ms = now_ms + broker.settings.offsets_flush_ms
        return now_ms

    def close(self, now_ms: int) -> None:
        """Save everything; the store is whole afterwards."""
        self._save_tables(now_ms)
        self._pops.ledger.note_progress(now_ms)
        self.broker.store.close(now_ms)
        keep_progress(self.broker, self.transactions, now_ms)
        self._epochs.note_progress()
        saved = self._pops.saver.last(now_ms) + self._progress(now_ms)
        for path, data in saved + self._half_counts.last(now_ms) + self._entrance.quotas.last():
            self._disk.replace(path, data)

    def farewell(self) -> None:
        """Tell the name servers that this broker leaves."""
        self.registration.farewell()

    def _progress(self, now_ms: int) -> list[tuple[str, bytes]]:
        """How far delayed messages are delivered, as far as the deliveries are durable."""
        saved = (
            (delay.PATH, self._delays.save(now_ms)),
            (timer.PATH, self._timer.save(now_ms)),
        )
        return [(path, data) for path, data in saved if data is not None]

    def _save_tables(self, now_ms: int) -> None:
        """Topics and groups are saved before anybody is told of their change."""
        broker = self.broker
        if broker.topics.is_changed:
            self._disk.replace(TOPICS_FILE, broker.topics.save())
            broker.topics.is_changed = False
        if broker.groups.is_changed:
            self._disk.replace(GROUPS_FILE, broker.groups.save())
            broker.groups.is_changed = False

    def _save_changed(self, now_ms: int) -> None:
        """Save the tables; whoever changed them is not answered when that fails. All others are,
        and it is tried again in a while: a full disk must not keep transactions from ending."""
        is_again = self._save_again_ms > 0
        if is_again and now_ms < self._save_again_ms:
            return
        try:
            self._save_tables(now_ms)
        except StorageError:
            self._save_again_ms = now_ms + _SAVE_AGAIN_MS
            if not is_again:
                raise
            return
        self._save_again_ms = 0
        self.registration.tell_changes(now_ms)

    # -- inputs ------------------------------------------------------------------------------

    def connected(self, peer: int, host: str, port: int, now_ms: int) -> None:
        """A peer is there."""
        is_name_server = self.registration.is_name_server(peer)
        is_stranger = self._entrance.judges and not is_name_server
        self.broker.meet(peer, host, port, is_stranger=is_stranger)
        if is_name_server:
            self.registration.connected(peer, now_ms)

    def proved(self, peer: int, account: str) -> None:
        """A peer's certificate stands for an account (base.ports.Proving)."""
        if self._entrance.judges:
            self.broker.peers[peer].identity = account

    def lost(self, peer: int, now_ms: int) -> None:
        """A peer is gone."""
        broker = self.broker
        known = broker.peers.pop(peer, None)
        if known is not None:
            known.reader.leave()
            self._entrance.quotas.left(known)
        broker.outbox.pop(peer, None)
        broker.calls.lost(peer, now_ms)
        if self.registration.is_name_server(peer):
            self.registration.lost(peer, now_ms)
        else:
            self._ends.lost(peer, now_ms)
            self._pulls.holds.lost(peer)
            self._pops.lost(peer)
            self._clients.lost(peer)

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        """Bytes of a peer, which had to wait for at least so long to be read."""
        self.broker.now_ms, self.broker.waited_ms = now_ms, waited_ms
        known = self.broker.peers.get(peer)
        if known is None:
            return
        reader = known.reader
        left = reader.feed(data)
        if known.long is not None:
            self._go_on(known, known.long, now_ms)
        if known.long is None:
            left = self._serve_some(known, left, now_ms)
        self.broker.present.account = ""  # what happens from here on is nobody's
        if left or known.long is not None:
            reader.keep(left)
            self.broker.effects.append(Hold(peer))
        elif reader.broken is not None:
            self.broker.effects.append(Close(peer, str(reader.broken)))
        self._settle(now_ms)

    def _serve_some(self, peer: Peer, commands: list[Command], now_ms: int) -> list[Command]:
        """Serve commands of one input until the others have their turn; what is left of them."""
        reads_count, index = 0, self.broker.store.dispatcher
        keys_max = index.keys_count + KEYS_AT_ONCE_MAX
        for nth, command in enumerate(commands, 1):
            if command.flag & Flag.REPLY:
                answered = partial(self.broker.calls.answered, peer.id, command, now_ms)
                self.rounds.guard("the answer of a client", answered, now_ms)
                continue
            self._serve(peer, command, now_ms)
            if peer.long is not None:
                return commands[nth:]
            is_read = self._rows.get(command.code, UNKNOWN).is_read
            reads_count += is_read
            if is_read or nth % _LOOK_EVERY == 0:
                size = sum(map(len, self.broker.outbox.get(peer.id, ())))
                is_much = size > ANSWERS_AHEAD_MAX or index.keys_count > keys_max
                if is_much or reads_count == READS_AT_ONCE_MAX:
                    return commands[nth:]
        return []

    def _serve(self, peer: Peer, command: Command, now_ms: int) -> None:
        row = self._rows.get(command.code, UNKNOWN)
        asked: Question = Asked(peer, row, command, None, now_ms)
        reply: Reply | None
        try:
            reply = None if self._door is None else self._door.judge(asked)
            if reply is None:
                if row.header is not None:
                    asked.header = read_header(row.header, command.ext)
                reply = row.serve(asked)
                if row.is_audited:
                    note_operation(asked, reply)
        except Exception as error:  # noqa: BLE001 - one request; it is answered with code 1
            reply = self._failed(asked, error)
        if reply is not HELD:
            self.broker.answer(asked, reply)

    def _go_on(self, peer: Peer, long: Long, now_ms: int) -> None:
        """Serve the next part of a request that takes many turns."""
        asked, long.asked.now_ms = long.asked, now_ms
        self.broker.present.account = asked.account
        try:
            reply = next(long.parts)
        except Exception as error:  # noqa: BLE001 - one request, as above
            reply = self._failed(asked, error)
        if reply is not HELD:
            peer.long = None
            self.broker.answer(asked, reply)

    def _failed(self, asked: Question, error: Exception) -> Refusal:
        if isinstance(error, EscrowMQError):
            _log.debug("request %d of %s: %s", asked.command.code, asked.peer.address, error)
            refusal = Refusal(Response.SYSTEM_ERROR, str(error))
        else:
            _log.error(
                "request %d of %s failed", asked.command.code, asked.peer.address, exc_info=error
            )
            refusal = Refusal(Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if asked.row.is_audited:
            note_operation(asked, refusal)
        return refusal

    def _settle(self, now_ms: int) -> None:
        """What every input may have caused: messages that arrived, tables that changed."""
        broker = self.broker
        try:
            self._ends.seal(now_ms)
            self._epochs.settle(now_ms)
            self._pops.settle(now_ms)
            self._note_arrivals(now_ms)
        except Exception as error:  # noqa: BLE001 - one part; the others' turn comes all the same
            self.rounds.failed("the end of an input", error, now_ms)
            for part in (self._epochs.settle, self._pops.settle, self._note_arrivals):
                self.rounds.guard("the end of an input", partial(part, now_ms), now_ms)
        sync = broker.store.sync_wanted(now_ms)
        if sync is not None:
            broker.effects.append(sync)
        if broker.topics.is_changed or broker.groups.is_changed:
            self._save_changed(now_ms)

    def _note_arrivals(self, now_ms: int) -> None:
        """Wake who waits for what arrived. Nobody waits for most queues, and nobody begins to
        while this goes on: asked once for all messages of a batch."""
        unawaited: tuple[str, int] | None = None
        for arrival in self.broker.store.take_arrivals():
            topic = arrival.topic
            if unawaited is not None and unawaited == (topic, arrival.queue_id):
                continue
            try:
                if topic == Topic.SCHEDULE:
                    self._delays.arrived(arrival, now_ms)
                elif topic == Topic.TIMER:
                    self._timer.arrived(arrival)
                elif self._pulls.awaits(topic, arrival.queue_id) or self._pops.awaits(topic):
                    self._pulls.arrived(arrival, now_ms)
                    self._pops.arrived(arrival, now_ms)
                else:
                    unawaited = (topic, arrival.queue_id)
            except Exception as error:  # noqa: BLE001 - one message; those behind it are told of
                self.rounds.failed("the arrival of a message", error, now_ms)

    def synced(self, log_offset: int, now_ms: int) -> None:
        """The log is durable up to an offset: answer who waited for it."""
        broker = self.broker
        broker.now_ms = now_ms
        broker.store.synced(log_offset, now_ms)
        durable = broker.store.durable_offset
        while broker.waiting and broker.waiting[0].answer.log_end <= durable:
            waiting = broker.waiting.popleft()
            broker.answer(waiting.asked, waiting.answer)
        self._settle(now_ms)

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """The disk could not keep what was written: nobody is told that it did."""
        broker = self.broker
        broker.store.sync_failed(reason, now_ms)
        while broker.waiting:
            asked = broker.waiting.popleft().asked
            remark = f"not stored durably: {reason}"
            broker.answer(asked, Refusal(Response.SERVICE_NOT_AVAILABLE, remark))
        self._settle(now_ms)

    # -- time --------------------------------------------------------------------------------

    def wake(self, now_ms: int) -> None:
        """Whatever is due."""
        self.broker.now_ms = now_ms
        self.rounds.wake(now_ms)
        # A limit may have been set meanwhile.
        self._door = self._entrance if self._entrance.is_needed else None
        self._settle(now_ms)

    def wake_at_ms(self) -> int:
        """When `wake` has something to do next."""
        return self.rounds.wake_at_ms()

    def _answer_late(self, now_ms: int) -> None:
        """Tell those whose messages are not durable in time."""
        broker = self.broker
        while broker.waiting and broker.waiting[0].deadline_ms <= now_ms:
            waiting = broker.waiting.popleft()
            answer = waiting.answer
            late = msgspec.structs.replace(answer, code=answer.late_code, remark=None, log_end=0)
            broker.answer(waiting.asked, late)

    def _late_at_ms(self) -> int:
        waiting = self.broker.waiting
        return waiting[0].deadline_ms if waiting else NEVER_MS

    def _save(self, now_ms: int) -> None:
        """Keep offsets and progress, each as far as it is durable."""
        if now_ms < self._save_at_ms:
            return
        broker, guard = self.broker, self.rounds.guard
        self._save_at_ms = now_ms + broker.settings.offsets_flush_ms
        guard(
            "progress of halves", partial(keep_progress, broker, self.transactions, now_ms), now_ms
        )
        guard("progress of epochs", self._epochs.note_progress, now_ms)
        guard("saving of offsets", partial(self._pops.saver.note, now_ms), now_ms)
        for path, data in self._progress(now_ms):
            broker.effects.append(Replace(path, data))

    def measure(self, now_ms: int) -> list[Family]:
        """Figures for whoever watches the broker."""
        return self._measuring.families(now_ms)

    def refusal(self) -> str:
        """Why no messages are taken; empty when they are."""
        return refusal(self.broker)

    def take_effects(self) -> list[Effect]:
        """Hand over what is to be done, one write a peer."""
        broker, effects = self.broker, self.broker.effects
        if broker.outbox:
            effects = [Send(peer, chunks) for peer, chunks in broker.outbox.items()] + effects
            broker.outbox = {}
        if effects:
            broker.effects = []
        return effects


def _others(broker: Broker, putter: Putter) -> list[object]:
    """Those who keep nothing of their own."""
    return [
        OffsetHandlers(broker),
        QueryHandlers(broker),
        BackHandlers(broker, putter),
        RelayHandlers(broker, putter),
        RecallHandlers(broker, putter),
        TopicHandlers(broker),
        ResetHandlers(broker),
        ViewHandlers(broker),
        MemberHandlers(broker),
    ]
