"""A slave's side of replication: it finds its master, copies its log, and requests its tables."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Dial, Effect
from escrowmq.base.measure import MetricFamily, unlabelled_metric
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.wire import Wire
from escrowmq.broker.answers.ha_status import copying_ha_status
from escrowmq.broker.identity import Identity
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.outgoing_requests import OnAnswer
from escrowmq.broker.output import Output
from escrowmq.broker.part import Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.peers import Peers
from escrowmq.broker.replication.port_dialogue import ReplicationDialogue
from escrowmq.broker.replication.table_copier import SendTableRequest, TableCopier
from escrowmq.broker.requests.on_replicas import QUEUE_ENDS
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.codec.large_answers import ACCEPTS_ZLIB
from escrowmq.errors import RemoteProtocolError, StorageError, UsageError
from escrowmq.replica.following import ComparedOverlap, Follower, ForeignLogError, SlaveTimeouts
from escrowmq.store.copied_log import CopiedLog

_log = logging.getLogger(__name__)

LOG_PEER: Final = -1_000_001
TABLES_PEER: Final = -1_000_002
"""The peer numbers of a slave's two connections to its master: for the log, and for requests. Those
of connections to name servers count down from -1."""

RETRY_MS: Final = 5_000
_QUIET_MS: Final = 30_000
"""The pause after the master's log was found to differ: an operator must act first."""

_ANSWER_MS: Final = 3_000
_NEVER_MS: Final = (1 << 62) - 1

_GIVE_UP: Final = (
    "Name the right master; or, to give up what is here, stop this slave, move its folder away and "
    "start it empty"
)

Address = tuple[str, int]


def parse_address(text: str) -> Address | None:
    """Parse HOST:PORT; None for any other text."""
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


class MasterLink:
    """One of the two connections to the master, for the log and for requests."""

    def __init__(self, peer: int, wire: Wire) -> None:
        self.peer = peer
        self.wire = wire
        self.is_dialling = self.is_connected = False
        self.due_ms = 0

    @property
    def is_down(self) -> bool:
        """Whether it is neither connected nor being dialled."""
        return not self.is_dialling and not self.is_connected


class SlaveCopy(Part):
    """The replication part of a slave: it copies the master's log and tables, and is the front of
    its connection to the master."""

    name = "following the master"

    def __init__(
        self,
        settings: BrokerSettings,
        replica: ReplicaSettings,
        log: CopiedLog,
        *,
        identity: Identity,
        registration: Registration,
        peers: Peers,
        output: Output,
        moment: InputTime,
        tables: Callable[[SendTableRequest], TableCopier],
        drain: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._replica = replica
        self._log = log
        self._identity = identity
        self._registration = registration
        self._peers = peers
        self._output = output
        self._moment = moment
        self._tables_link = MasterLink(TABLES_PEER, Wire.REMOTING)
        self._log_link = MasterLink(LOG_PEER, Wire.HA)
        self.tables = tables(self._request_table)
        self._ha_address = parse_address(replica.ha_master)
        self._address: Address | None = None
        self._look_ms = 0
        self._terms = SlaveTimeouts(
            heartbeat_ms=replica.heartbeat_ms, housekeeping_ms=replica.housekeeping_ms
        )
        self._overlap = ComparedOverlap()
        self.follower: Follower | None = None
        self._next: Follower | None = None
        """The `Follower` for the connection that is being dialled; None if none is."""
        self._said = ""
        self.fault = "no name server has told yet who the master is"
        """Why nothing is copied; empty while copying works."""
        self._is_told_of_beginning = False
        self._is_copying = False
        """Whether the present connection was found to lead to the master of this log."""
        self.heard_ms = self.said_ms = 0
        self._drain = drain
        registration.on_accepted = self._learn_master

    # -- who the master is -------------------------------------------------------------------

    def _learn_master(self, ext: dict[str, str]) -> None:
        """Learn the master's address from a name server's answer to the registration, if it
        contains one."""
        ha_address = parse_address(ext.get("haServerAddr", ""))
        address = parse_address(ext.get("masterAddr", ""))
        if address is None:
            return
        if not self._replica.ha_master and ha_address is not None:
            self._ha_address = ha_address
        if address != self._address:
            _log.info("the master of %s is %s:%d", self._settings.name, *address)
            self._address = address
            self._look_ms = self._tables_link.due_ms = self._log_link.due_ms = 0
            for link in (self._tables_link, self._log_link):
                if link.is_connected:
                    self._output.add_effect(Close(link.peer, "the master is another one now"))

    def has_dialled(self, peer: int) -> bool:
        """Whether a connection is one of those to the master."""
        return peer in (LOG_PEER, TABLES_PEER)

    # -- connections -------------------------------------------------------------------------

    def create_dialogue(self, peer: Peer) -> ReplicationDialogue:
        """Start copying over the connection that the master has accepted. Close any other
        connection: a slave has no slaves."""
        if peer.id == LOG_PEER:
            self._log_link.is_connected, self._log_link.is_dialling = True, False
            self.follower, self._next = self._next, None
            self._is_copying = False
            self._report_stored()
        else:
            self._output.add_effect(Close(peer.id, "a slave has no slaves"))
        return ReplicationDialogue(peer, self.receive)

    def connected(self, peer: int, now_ms: int) -> None:
        """Note that the connection for requests is open, and request the tables."""
        if peer == TABLES_PEER:
            self._tables_link.is_connected, self._tables_link.is_dialling = True, False
            self.tables.start_over()
            self.tables.wake(now_ms)
            if self._log_link.is_down:
                self._log_link.due_ms = now_ms

    def connection_failed(self, peer: int, now_ms: int) -> None:
        """Note that a connection is lost, or could not be opened, and dial again later."""
        link = self._log_link if peer == LOG_PEER else self._tables_link
        was_dialling = link.is_dialling
        link.is_dialling = link.is_connected = False
        link.due_ms = max(link.due_ms, now_ms + RETRY_MS)
        if peer == LOG_PEER:
            self.follower = self._next = None
            if self._is_copying or was_dialling:
                self._is_copying = False
                host, port = self._ha_address or ("", 0)
                what = "cannot be reached" if was_dialling else "has gone"
                self._log_fault(
                    f"the master's replication port {host}:{port} {what}; dialled again"
                )
        self._look_ms = min(self._look_ms, now_ms + RETRY_MS)

    def wake(self, now_ms: int) -> None:
        """Connect, send requests and keep-alives, as they are due."""
        if (self._address is None or self._log_link.is_down) and now_ms >= self._look_ms:
            self._look_ms = now_ms + RETRY_MS
            self._registration.register_again(now_ms)
        tables, log = self._tables_link, self._log_link
        if tables.is_down and self._address is not None and now_ms >= tables.due_ms:
            self._dial(tables, self._address, now_ms)
        if tables.is_connected:
            self.tables.wake(now_ms)
        if log.is_down and now_ms >= log.due_ms:
            self._begin_copying(now_ms)
        self._report_stored()

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do."""
        tables, log = self._tables_link, self._log_link
        due_ms = [_NEVER_MS]
        if self._address is None or log.is_down:
            due_ms.append(self._look_ms)
        if tables.is_down and self._address is not None:
            due_ms.append(tables.due_ms)
        if tables.is_connected:
            due_ms.append(self.tables.due_ms)
        if log.is_down and self._ha_address is not None:
            due_ms.append(log.due_ms)
        if self.follower is not None:
            due_ms.append(self.follower.wake_at_ms())
        return min(due_ms)

    def _dial(self, link: MasterLink, address: Address, now_ms: int) -> None:
        link.is_dialling = True
        link.due_ms = now_ms + RETRY_MS
        self._output.add_effect(Dial(link.peer, *address, wire=link.wire))

    # -- the log -----------------------------------------------------------------------------

    def _begin_copying(self, now_ms: int) -> None:
        """Request a ticket for the replication port, and dial the port. Dial without a ticket at a
        RocketMQ master, which has none, or if only the port's address is known."""
        log = self._log
        self._log_link.due_ms = now_ms + RETRY_MS
        if self._ha_address is None:
            return
        start = -1 if log.is_empty else self._overlap.start_offset(log, self.tables.log_begin)
        if not self._tables_link.is_connected:
            if self._address is None:
                self._dial_log(start, now_ms)
            return

        def on_reply(reply: Command | None, now_ms: int) -> None:
            if reply is None or not self._log_link.is_down:
                return
            ext = reply.ext or {}
            if reply.code == Response.SUCCESS and ext.get("ticket", "").isdigit():
                begins_at = int(ext.get("start", "0"))
                self._dial_log(start, now_ms, ticket=int(ext["ticket"]), begins_at=begins_at)
            elif reply.code == Response.REQUEST_CODE_NOT_SUPPORTED:
                self._dial_log(start, now_ms)
            else:
                self._log_fault(f"the master gives this slave nothing: {reply.remark}. {_GIVE_UP}")

        ext = {"start": str(start), "identity": self._identity.address}
        self._send_request(Request.ESCROW_FOLLOW, ext, on_reply)

    def _dial_log(
        self, start: int, now_ms: int, *, ticket: int | None = None, begins_at: int | None = None
    ) -> None:
        assert self._ha_address is not None
        if start < 0 and ticket is None and not self._is_told_of_beginning:
            self._is_told_of_beginning = True
            _log.info(
                "this slave is empty, and begins with the last file of its master's log: "
                "RocketMQ's masters offer nothing else"
            )
        first = max(start, 0) if begins_at is None else begins_at
        self._next = Follower(
            self._log, self._terms, start=first, begins_at=begins_at, ticket=ticket, now_ms=now_ms
        )
        self._dial(self._log_link, self._ha_address, now_ms)

    def receive(self, peer: Peer, data: bytes, now_ms: int) -> None:
        """Process bytes of the master's log."""
        follower = self.follower
        if follower is None or peer.id != LOG_PEER:
            return
        self.heard_ms = now_ms
        try:
            follower.receive(data, now_ms)
        except ForeignLogError as error:
            self._handle_foreign_log(error, now_ms)
        except (RemoteProtocolError, StorageError, OSError) as error:
            self._stop_copying(str(error), now_ms)
        else:
            if follower.is_ahead:
                self._log_fault(self._silence_reason())
            elif follower.is_proved and not self._is_copying:
                self._overlap.note_equal()
                self._log_progress()
        self.tables.create_missing_topics(self._log.take_topics(), now_ms)
        self.tables.apply_fetched()

    def _silence_reason(self) -> str:
        """Return the reason why the master sends keep-alives but no log."""
        begin, end = self.tables.log_begin, self._log.end_offset
        if begin > end:
            return (
                f"the master's log begins at {begin} now, and this one ends at {end}: what is "
                f"between is deleted there. {_GIVE_UP}"
            )
        return (
            f"the master's log ends before this one, which ends at {end}: the master has lost "
            f"something, or is another one. {_GIVE_UP}"
        )

    def _handle_foreign_log(self, error: ForeignLogError, now_ms: int) -> None:
        if not self._overlap.note_difference(self._log, error.log_offset):
            self._close_log_link(str(error), now_ms, retry_ms=now_ms)
            return
        self._log_fault(
            f"the master's log is not this slave's: {error}. Nothing was appended. {_GIVE_UP}"
        )
        self._close_log_link(str(error), now_ms, retry_ms=now_ms + _QUIET_MS)

    def _stop_copying(self, reason: str, now_ms: int) -> None:
        self._log_fault(f"copying has stopped: {reason}")
        self._close_log_link(reason, now_ms, retry_ms=now_ms + RETRY_MS)

    def _close_log_link(self, reason: str, now_ms: int, *, retry_ms: int) -> None:
        self.follower = None
        self._is_copying = False
        self._log_link.due_ms = retry_ms
        self._output.add_effect(Close(LOG_PEER, reason))

    def _log_progress(self) -> None:
        self._is_copying = True
        self.fault = self._said = ""
        _log.info("the master's log is copied from offset %d on", self._log.end_offset)

    def _log_fault(self, fault: str) -> None:
        """Log the reason why nothing is copied, once for all retries."""
        self.fault = fault
        if fault != self._said:
            self._said = fault
            _log.error("%s", fault)

    def finish_input(self, now_ms: int) -> None:
        """Report to the master what is stored by now. Drop arrived messages: no consumer waits at a
        slave."""
        self._drain()
        self._report_stored()

    def _report_stored(self) -> None:
        follower, now_ms = self.follower, self._moment.now_ms
        if follower is None:
            return
        try:
            report = follower.next_report(now_ms)
        except RemoteProtocolError as error:
            self._stop_copying(str(error), now_ms)
            return
        if report:
            self.said_ms = now_ms
            self._output.send(LOG_PEER, report)

    def take_effects(self) -> list[Effect]:
        """Return the effects at the end of an input."""
        if self.follower is not None:
            self._report_stored()
        return self._output.take_effects()

    def keep_segments_from(self, until: int, now_ms: int) -> int:
        """Return the log offset from which on segments must be kept, because the master still has
        them."""
        begin = self.tables.log_begin
        return 0 if begin < 0 else min(until, begin)

    # -- questions ---------------------------------------------------------------------------

    def _request_table(self, code: int, on_reply: OnAnswer) -> None:
        ext = dict(ACCEPTS_ZLIB)
        if not self.tables.has_queue_ends:
            ext[QUEUE_ENDS] = "true"
        self._send_request(code, ext, on_reply)

    def _send_request(self, code: int, ext: dict[str, str], on_reply: OnAnswer) -> None:
        until_ms = self._moment.now_ms + _ANSWER_MS
        ext = self._registration.sign_fields(ext)
        self._peers.send_request(TABLES_PEER, code, ext=ext, on_answer=on_reply, until_ms=until_ms)

    def metric_families(self) -> list[MetricFamily]:
        """Return the metrics of copying: whether it works, and the last known lag."""
        behind = max(self.tables.log_end - self._log.end_offset, 0)
        text = "Bytes of the master's log that are missing here, as of its last message."
        return [
            unlabelled_metric(
                "escrowmq_copying", "gauge", "1 while the master's log is copied.", not self.fault
            ),
            unlabelled_metric("escrowmq_master_behind_bytes", "gauge", text, behind),
        ]

    def issue_ticket(self, start: int, identity: str, now_ms: int) -> dict[str, str]:
        """Refuse: a slave has no slaves."""
        raise UsageError("this broker is a slave itself: ask its master, brokerId 0")

    def ha_status(self) -> dict[str, object]:
        """The replication state in the form of mqadmin's haStatus (HARuntimeInfo)."""
        host, port = self._ha_address or ("", 0)
        return copying_ha_status(
            is_copying=self.follower is not None,
            master_address=f"{host}:{port}" if host else "",
            master_end=max(self.tables.log_end, 0),
            end_offset=self._log.end_offset,
            fault=self.fault,
            heard_ms=self.heard_ms,
            said_ms=self.said_ms,
        )
