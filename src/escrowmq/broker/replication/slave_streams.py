"""A master's side of RocketMQ's replication port: it sends the log, and learns how much of it each
slave has stored."""

from __future__ import annotations

import logging
from collections.abc import Callable

from escrowmq.base.effects import Close, Effect
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.base.measure import MetricFamily, Sample, unlabelled_metric
from escrowmq.base.ports import RandomSource
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.answers.ha_status import describe_connection, master_ha_status
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.output import Output
from escrowmq.broker.part import Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.replication.port_dialogue import ReplicationDialogue
from escrowmq.errors import RemoteProtocolError, UsageError
from escrowmq.replica.replicas import Replicas
from escrowmq.replica.sending import SendingLimits, Ticket
from escrowmq.replica.tickets import Tickets
from escrowmq.store.store import Store

_log = logging.getLogger(__name__)


class SlaveStreams(Part):
    """The replication part of a master: it sends the log to its slaves, and is the front of its
    replication port."""

    name = "slaves"
    fault = ""

    def __init__(
        self,
        replica: ReplicaSettings,
        store: Store,
        *,
        output: Output,
        moment: InputTime,
        chance: RandomSource,
        release: Callable[[], None],
    ) -> None:
        self._settings = replica
        self._store = store
        self._output = output
        self._moment = moment
        self._release = release
        """Sends the answers that waited for copies."""
        terms = SendingLimits(
            batch_size=replica.batch_size,
            heartbeat_ms=replica.heartbeat_ms,
            housekeeping_ms=replica.housekeeping_ms,
            needs_ticket=replica.needs_ticket,
        )
        self.replicas = Replicas(store.log, terms, gap_max=replica.gap_size_max)
        self._tickets = Tickets(chance)
        self._said = RepeatedErrors()
        if replica.copies > 1:
            timeout_ms = replica.slave_timeout_ms
            store.ends.wait_for_copies(timeout_ms=timeout_ms, copies=replica.copies)

    # -- connections -------------------------------------------------------------------------

    def create_dialogue(self, peer: Peer) -> ReplicationDialogue:
        """Accept a connection to the replication port, of a slave or of any other client."""
        now_ms = self._moment.now_ms
        host, _, port = peer.address.rpartition(":")
        doomed = self.replicas.add(peer.id, host, int(port), self._redeem_ticket, now_ms)
        if doomed is not None:
            self._output.add_effect(Close(doomed, "too many connections of slaves"))
        return ReplicationDialogue(peer, self.receive, self.remove_copy)

    def _redeem_ticket(self, number: int) -> Ticket | None:
        return self._tickets.redeem(number, self._moment.now_ms)

    def receive(self, peer: Peer, data: bytes, now_ms: int) -> None:
        """Process what a slave reports as stored, and send the answers that waited for it."""
        try:
            self.replicas.receive(peer.id, data, now_ms)
        except RemoteProtocolError as error:
            self._close(peer.id, str(error), now_ms)
        if self._update_confirmed_end():
            self._release()

    def remove_copy(self, peer: Peer, now_ms: int) -> None:
        """Remove a disconnected slave, which no longer counts as a copy."""
        if peer.id in self.replicas.peers:
            self.replicas.remove(peer.id)

    def _close(self, peer: int, reason: str, now_ms: int) -> None:
        address = self.replicas.address(peer)
        self.replicas.remove(peer)
        ending = self._said.suppressed_note(address.rpartition(":")[0], now_ms)
        if ending is not None:
            _log.warning("a slave's connection from %s is closed: %s%s", address, reason, ending)
        self._output.add_effect(Close(peer, reason))

    # -- the log -----------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return the effects at the end of an input, including log for the slaves."""
        if len(self.replicas):
            self._send_to_slaves()
        return self._output.take_effects()

    def _send_to_slaves(self) -> None:
        """Send new records to each slave."""
        replicas, now_ms = self.replicas, self._moment.now_ms
        if replicas.has_lag():
            for peer in replicas.peers:
                try:
                    found = replicas.transfers(peer, now_ms)
                except RemoteProtocolError as error:
                    self._close(peer, str(error), now_ms)
                    continue
                if found:
                    self._output.send(peer, *found)

    def _update_confirmed_end(self) -> bool:
        """Confirm the log up to what enough slaves have. Return whether this moved the confirmed
        end."""
        ends, copies = self._store.ends, self._settings.copies
        if copies <= 1:
            return False
        confirmed = self.replicas.confirmed_offset(copies)
        if confirmed <= ends.confirmed:
            return False
        ends.set_confirmed(confirmed)
        return True

    def wake(self, now_ms: int) -> None:
        """Send keep-alives, and close connections from which none came."""
        for peer in self.replicas.peers:
            try:
                sign = self.replicas.keep_alive(peer, now_ms)
            except RemoteProtocolError as error:
                self._close(peer, str(error), now_ms)
                continue
            if sign:
                self._output.send(peer, sign)

    def wake_at_ms(self) -> int:
        """The time at which `wake` must be called next."""
        return self.replicas.wake_at_ms()

    # -- requests ----------------------------------------------------------------------------

    def issue_ticket(self, start: int, identity: str, now_ms: int) -> dict[str, str]:
        """Return a ticket for a slave that wants to copy the log from an offset, or all of it (-1).
        Raises UsageError with the reason if it cannot."""
        low, end = self._store.min_log_offset, self._store.end_offset
        begins = low if start < 0 else start
        if begins > end:
            raise UsageError(
                f"the slave asks for the log from {start} on, and this master's log ends at "
                f"{end}: the slave has more than its master"
            )
        if begins < low:
            raise UsageError(
                f"the slave asks for the log from {start} on, and this master's log begins "
                f"at {low} now: the part between was deleted"
            )
        ticket = self._tickets.issue(Ticket(start=begins, identity=identity), now_ms)
        return {"ticket": str(ticket), "start": str(begins), "end": str(end)}

    def metric_families(self) -> list[MetricFamily]:
        """Return the metrics of replication: the lag of each slave."""
        slaves = self.replicas.slaves_progress()
        text = "Bytes of the log that a slave has not reported as stored."
        samples = tuple(Sample((slave.address,), slave.behind_size) for slave in slaves)
        count = self.replicas.in_sync_count
        return [
            MetricFamily("escrowmq_slave_behind_bytes", "gauge", text, ("slave",), samples),
            unlabelled_metric("escrowmq_slaves_in_sync", "gauge", "Slaves in sync.", count),
        ]

    def ha_status(self) -> dict[str, object]:
        """The replication state in the form of mqadmin's haStatus (HARuntimeInfo)."""
        end_offset = self._store.end_offset
        connections = [
            describe_connection(
                slave.address,
                end_offset=end_offset,
                acknowledged=slave.acknowledged,
                sent_end=slave.sent_end,
                is_in_sync=slave.is_in_sync,
                bytes_per_s=slave.bytes_per_s,
            )
            for slave in self.replicas.slaves_progress()
        ]
        in_sync_count = self.replicas.in_sync_count
        return master_ha_status(end_offset, connections, in_sync_count=in_sync_count)
