"""BrokerCore: passes inputs and events to the parts of a broker, and collects their effects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import partial
from typing import TYPE_CHECKING

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.measure import MetricFamily
from escrowmq.base.ports import Disk, RandomSource
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.base.wire import Wire
from escrowmq.broker.assembly.part_order import Assembly
from escrowmq.broker.assembly.shared_state import BrokerState
from escrowmq.broker.front import DialFaultListener, Dialler, Front, TimedFront
from escrowmq.broker.part import Part, save_files
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.on_config import restore_changed_settings
from escrowmq.broker.upkeep.start_checks import StartChecks, resume_time_ms
from escrowmq.store.store import Store

if TYPE_CHECKING:
    from escrowmq.group.membership import GroupMembership

_log = logging.getLogger(__name__)

_UNPROVED = (Wire.HA, Wire.GROUP)
_MORE_SETTLES_MAX = 4
"""How often the end of one input is repeated at most: answers may cause further requests of clients
in this process."""


class BrokerCore:
    """The state machine of one broker, driven by a shell (base.core.Core)."""

    def __init__(
        self,
        disk: Disk,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        *,
        address: tuple[str, int],
        ha_address: str,
        chance: RandomSource,
        mark: str = "",
        boot: str = "",
        accounts: Disk | None = None,
        zone: tzinfo = UTC,
        signs_as: tuple[str, str] | None = None,
        replica: ReplicaSettings | None = None,
        membership: GroupMembership | None = None,
    ) -> None:
        """`replica` configures replication from or to another broker; None: no replication.
        `membership` configures a group that fails over, in place of `replica`."""
        copying = ReplicaSettings() if replica is None else replica
        changes = restore_changed_settings(disk, settings, store_settings, copying)
        store = Store(disk, store_settings, abort_text=mark, boot=boot, zone=zone)
        self._disk = disk
        self.broker = BrokerState(settings, store_settings, store, address=address, chance=chance)
        self.take_effects = self.broker.output.take_effects
        self.rounds = BackgroundRounds()
        # Accounts without a folder of their own are beside the other tables.
        made = self.assembly = Assembly(
            self.broker, self.rounds, disk, changes,
            ha_address=ha_address, accounts=accounts or disk, signs_as=signs_as, replica=replica,
            membership=membership,
        )  # fmt: skip
        self._callers: tuple[Dialler, ...] = (made.registration, *made.copying.callers)
        self.transactions, self.registration = made.transactions, made.registration
        self.serving, self._access = made.serving, made.access
        self._tables = made.tables
        self._parts = made.parts
        self._dispatcher = store.dispatcher
        self._settling = [
            (part.finish_input, part.work)
            for part in made.parts
            if _overrides_event(part, "finish_input")
        ]
        store.retention.keeper = self._carry_forward_halves
        self._fronts: dict[Wire, Front] = {}
        self.remoting = made.remoting
        self.add_front(Wire.REMOTING, self.remoting)
        front, _, keeper = made.copying
        if front is not None:
            self.take_effects = front.take_effects
            self._fronts[Wire.HA if membership is None else Wire.GROUP] = front
        if keeper is not None:
            store.retention.keeper = keeper
        self._save_at_ms = 0
        self.rounds.add("saving", self._save_progress, lambda: self._save_at_ms)

    def _carry_forward_halves(self, until: int, now_ms: int) -> int:
        """Carry forward the pending halves from segments before `until`, which will be deleted.
        Return the offset up to which segments may be deleted: those with delayed messages are kept
        until the messages are delivered."""
        halves_from = self.transactions.carrier.carry(until, now_ms)
        broker = self.broker
        return min(
            halves_from, broker.delays.oldest_needed_offset(), broker.timer.oldest_needed_offset()
        )

    # -- life --------------------------------------------------------------------------------

    def open(self, now_ms: int) -> int:
        """Load the store and the tables. Return the time from which the clock must continue: it is
        later than `now_ms` if the clock was set back after the store's last record."""
        broker = self.broker
        self._access.read_rules(now_ms)
        self.serving.update_is_judging()
        opening = StartChecks(
            store=broker.store,
            topics=broker.topics,
            groups=broker.groups,
            offsets=broker.offsets,
            disk=self._disk,
        )
        # Before the store is opened: the offsets name the queues that groups have read, and the
        # store searches the log for any of these queues that is missing.
        opening.read_tables()
        report = broker.store.open(now_ms)
        now_ms = resume_time_ms(now_ms, broker.store)
        broker.identity.started_ms = now_ms
        opening.reconcile_tables(report, now_ms)
        broker.topics.create_system_topics(now_ms)
        opening.restore_topics(now_ms)
        broker.groups.create_system_groups(now_ms)
        for part in self._parts:
            part.load(opening)
        # After the parts, which may have created topics and groups that the tables lacked.
        self._tables.save_at_start(now_ms)
        broker.topics.unregistered.clear()  # a name server gets all of them when it connects
        self._save_at_ms = now_ms + broker.settings.offsets_flush_ms
        return now_ms

    def close(self, now_ms: int) -> None:
        """Save everything and close the store."""
        save = self._tables.save_at_end
        save("topics and groups", self._tables.save)
        self.broker.store.close(now_ms)
        # After the store is closed: offsets are saved only once the log they refer to is durable.
        for part in self._parts:
            save(part.name, partial(self._save_part_now, part, now_ms))

    def _save_part_now(self, part: Part, now_ms: int) -> None:
        for path, data in part.final_files(now_ms):
            self._disk.replace(path, data)

    def unregister(self) -> None:
        """Unregister this broker at the name servers."""
        self.registration.unregister()

    # -- inputs ------------------------------------------------------------------------------

    def add_front(self, wire: Wire, front: Front) -> None:
        """Add a front; its dialogues pass their requests to `serving`."""
        assert wire not in self._fronts, wire
        self._fronts[wire] = front
        self.rounds.add(f"{wire.value} connections", front.wake, front.wake_at_ms)

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        """Create the peer and the dialogue of a new connection."""
        caller = self._dialler_of(peer)
        known = Peer(peer, host, port)
        # No client can authenticate at the replication port: it has limits of its own.
        known.is_stranger = (
            self._access.requires_authentication and caller is None and wire not in _UNPROVED
        )
        known.dialogue = self._fronts[wire].create_dialogue(known)
        self.broker.peers.by_id[peer] = known
        if caller is not None:
            caller.connected(peer, now_ms)

    def _dialler_of(self, peer: int) -> Dialler | None:
        """Return the part that has dialled this connection; None if the peer has connected to
        us."""
        if peer > 0:
            return None
        return next((caller for caller in self._callers if caller.has_dialled(peer)), None)

    def set_certificate_account(self, peer: int, account: str) -> None:
        """Set the account that a peer's certificate names (base.core.AccountsCore)."""
        if self._access.requires_authentication:
            self.broker.peers.by_id[peer].identity = account

    def is_stranger(self, peer: int) -> bool:
        """Whether a peer still has to prove its identity (base.core.GuardedCore)."""
        if not self._access.requires_authentication:
            return False
        known = self.broker.peers.by_id.get(peer)
        return known is None or known.is_stranger

    def set_writer(self, write: Callable[[int, list[bytes]], None]) -> None:
        """Set the function that writes answers as soon as they may be sent
        (base.core.PromptCore)."""
        self.broker.output.set_writer(write)

    @property
    def requires_authentication(self) -> bool:
        """Whether every peer must prove its identity."""
        return self._access.requires_authentication

    def disconnected(self, peer: int, now_ms: int) -> None:
        """Drop a disconnected peer, and inform the parts that dialled or served it."""
        broker = self.broker
        known = broker.peers.by_id.pop(peer, None)
        broker.output.drop_peer(peer)
        steps = [partial(broker.calls.fail_requests, peer, now_ms)]
        caller = self._dialler_of(peer)
        if caller is not None:
            steps.append(partial(caller.connection_failed, peer, now_ms))
        if known is not None:
            steps.append(partial(known.dialogue.disconnected, now_ms))
            steps += [partial(part.disconnected, known, now_ms) for part in self._parts]
        for step in steps:
            self.rounds.run_guarded("a lost connection", step, now_ms)

    def dial_refused(self, peer: int, now_ms: int) -> None:
        """Report to the dialling part that no server listens at the address
        (base.core.DiallingCore)."""
        for caller in self._callers:
            if caller.has_dialled(peer) and isinstance(caller, DialFaultListener):
                caller.dial_refused(peer, now_ms)

    def dial_tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        """Report to the dialling part that TLS with the server has failed
        (base.core.DiallingCore)."""
        for caller in self._callers:
            if caller.has_dialled(peer) and isinstance(caller, DialFaultListener):
                caller.dial_tls_failed(peer, fault, now_ms)

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        """Process bytes of a peer. They waited at least `waited_ms` to be read."""
        broker = self.broker
        broker.moment.set_time(now_ms, waited_ms)
        known = broker.peers.by_id.get(peer)
        if known is None:
            return
        known.dialogue.receive(data, now_ms)
        if self.serving.needs_finish or self._dispatcher.arrivals:
            self.serving.clear_needs_finish()
            broker.present.account = ""  # from here on nothing counts for an account
            self._finish_input(now_ms)
        else:
            sync = broker.store.next_sync(now_ms)
            if sync is not None:
                broker.output.add_effect(sync)
            if self._tables.has_unsaved_changes:  # changed by a request without further work
                self._tables.save_and_answer(now_ms)

    def _finish_input(self, now_ms: int) -> None:
        """Let the parts finish an input, again if in-process fronts made further requests when they
        got answers: an ack, for example, must be stored by the end of the input that caused it."""
        self._finish_input_of_parts(now_ms)
        for _ in range(_MORE_SETTLES_MAX):
            if not self.serving.needs_finish:
                return
            self.serving.clear_needs_finish()
            self._finish_input_of_parts(now_ms)

    def _finish_input_of_parts(self, now_ms: int) -> None:
        """Let each part finish its work on this input, then sync the log and save changed tables if
        due."""
        for settle, work in self._settling:
            if work is not None and not any(work):
                continue
            try:
                settle(now_ms)
            except Exception as error:  # noqa: BLE001 - one part; the others' turn comes
                self.rounds.count_failure("the end of an input", error, now_ms)
        # After the parts, so that the op records and acks that they append are in the same sync.
        self._sync_if_due(now_ms)
        if self._tables.has_unsaved_changes:
            self._tables.save_and_answer(now_ms)

    def _sync_if_due(self, now_ms: int) -> None:
        sync = self.broker.store.next_sync(now_ms)
        if sync is not None:
            self.broker.output.add_effect(sync)

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        """Note that the log is durable up to an offset, and send the answers that waited for
        that."""
        self.broker.moment.set_time(now_ms)
        self.broker.store.sync_finished(log_offset, now_ms)
        self.broker.answers.waiting.send_ready()
        self._finish_input(now_ms)

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """Handle a failed disk sync: refuse the answers to messages that are not synced."""
        self.broker.store.sync_failed(reason, now_ms)
        self.broker.answers.waiting.refuse_all(reason)
        self._finish_input(now_ms)

    # -- time --------------------------------------------------------------------------------

    def wake(self, now_ms: int) -> None:
        """Do all work that is due."""
        self.broker.moment.set_time(now_ms)
        self.rounds.wake(now_ms)
        self.serving.update_is_judging()
        self._finish_input(now_ms)

    def clock_leapt(self, by_ms: int) -> None:
        """Adjust all parts to a forward jump of the clock. Events at a time of day happen at that
        time; timeouts keep their full length."""
        _log.warning("the clock was set forward by %.1f s", by_ms / 1000)
        self.broker.locks.clock_leapt(by_ms)
        now_ms = self.broker.moment.now_ms
        for part in self._parts:
            step = partial(part.clock_leapt, by_ms)
            self.rounds.run_guarded("a leap of the clock", step, now_ms)
        for front in self._fronts.values():
            if isinstance(front, TimedFront):
                front.clock_leapt(by_ms, now_ms)

    def wake_at_ms(self) -> int:
        """When `wake` has something to do next."""
        return self.rounds.wake_at_ms()

    def _save_progress(self, now_ms: int) -> None:
        """Save consumer offsets and the progress of background work, as far as the log they refer
        to is durable."""
        if now_ms < self._save_at_ms:
            return
        self._save_at_ms = now_ms + self.broker.settings.offsets_flush_ms
        for part in self._parts:
            self.rounds.run_guarded(
                part.name, partial(save_files, part, self.broker.output, now_ms), now_ms
            )

    # -- what is to be done, and to be seen ----------------------------------------------------

    def measure(self, now_ms: int) -> list[MetricFamily]:
        """The metrics of the broker."""
        front = self.assembly.copying.front
        more = [] if front is None else front.metric_families()
        return [*self.assembly.measuring.metric_families(now_ms), *more]

    def write_refusal_reason(self) -> str:
        """Return why no messages are accepted; empty if they are. A slave accepts none, and is
        reported healthy while it copies."""
        copying = self.assembly.copying
        if copying.front is not None and copying.callers:
            return copying.front.fault
        return self.assembly.measuring.write_refusal_reason()


def _overrides_event(part: Part, what: str) -> bool:
    """Whether a part overrides an event method of `Part`."""
    return getattr(type(part), what) is not getattr(Part, what)
