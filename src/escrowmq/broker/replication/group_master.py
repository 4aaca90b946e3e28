"""The master of a group: it sends log and tables to the other members, and confirms what those in
sync have."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from escrowmq.base.effects import Close, Effect, Replace
from escrowmq.base.group_report import CopyReport, GroupReport
from escrowmq.base.log_throttle import Repeats
from escrowmq.base.measure import Family, Sample, one
from escrowmq.base.ports import Disk
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.output import Output
from escrowmq.broker.part import Part, Start
from escrowmq.broker.peer import Peer
from escrowmq.broker.replication.copied_tables import TableMarks, WatchedDisk
from escrowmq.broker.replication.port_dialogue import PortDialogue
from escrowmq.errors import SWITCHING_REMARK, RemoteProtocolError, UsageError
from escrowmq.group.drills import CUT_OFF, SWITCH, read_order
from escrowmq.group.frames import Gone, Hello, Kind, encode_struct, encode_table
from escrowmq.group.leading import CopyStream, Epoch, Turned
from escrowmq.group.seat import Seat
from escrowmq.group.tables import COPIED, gone_key
from escrowmq.store.store import Store

_log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 16
SWITCH_MS: Final = 3_000
"""A planned change of the master that takes longer is cancelled."""

_SAMPLE_MS: Final = 50
_SAMPLES_MAX: Final = 400


class Heir:
    """The member that is to be the next master."""

    def __init__(self, member: str, *, until_ms: int) -> None:
        self.member = member
        self.until_ms = until_ms
        self.was_told = False


class GroupMaster(Part):
    """The front for copies, and a part of the broker (broker.front.CopyFront)."""

    name = "copies of the group"
    fault = ""

    def __init__(
        self,
        seat: Seat,
        store: Store,
        disk: Disk,
        *,
        output: Output,
        moment: InputTime,
        release: Callable[[], None],
        refuse: Callable[[str], None],
        stamp: Callable[[int], None],
    ) -> None:
        """`release` gives the answers that waited; `refuse`: take no messages, and why; empty: take
        them again; `stamp` puts the epoch into what is registered."""
        assert seat.leads is not None
        self._seat = seat
        self._store = store
        self._disk = disk
        self._output = output
        self._moment = moment
        self._release = release
        self._refuse = refuse
        self._stamp = stamp
        state = seat.member.state
        self._epoch = Epoch(
            seat.cluster,
            seat.broker,
            seat.leads.group,
            seat.leads.epoch,
            state.history,
            state.member,
            seat.secret,
        )
        self._streams: dict[int, CopyStream] = {}
        self._addresses: dict[int, str] = {}
        self._samples: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_SAMPLES_MAX)
        """Times, and where the log ended then."""
        self._said = Repeats()
        self._latest: dict[str, bytes] = {}
        self._marks: TableMarks | None = None
        self._needed: dict[str, str] | None = None
        self._heir: Heir | None = None
        self._is_ready = False
        store.ends.lead_group(timeout_ms=seat.timeout_ms)
        store.on_deleted = self._deleted
        seat.member.copies.ask(self._has_all)

    def watch(self, disk: Disk, marks: TableMarks) -> None:
        """Send the tables that are written to this disk to copies."""
        self._marks = marks
        if isinstance(disk, WatchedDisk):
            disk.watch(self._written)

    def _written(self, path: str, data: bytes) -> None:
        self.table(path, data)
        if self._marks is not None:
            self._marks.changed()

    def load(self, start: Start) -> None:
        """Name servers take the master of the newest epoch (RocketMQ's stateVersion)."""
        self._stamp(self._epoch.epoch)

    # -- connections -------------------------------------------------------------------------

    def begin(self, peer: Peer) -> PortDialogue:
        """A copy has connected, or any client that found the port."""
        if self._seat.is_cut:
            self._output.add(Close(peer.id, CUT_OFF))
        elif len(self._streams) >= CONNECTIONS_MAX:
            self._output.add(Close(peer.id, "too many connections of copies"))
        else:
            self._addresses[peer.id] = peer.address
            self._streams[peer.id] = CopyStream(
                self._store.log,
                self._epoch,
                nonce=self._seat.nonce(),
                tables=self._tables,
                now_ms=self._moment.now_ms,
            )
            self._flush(peer.id)
        return PortDialogue(peer, self.receive, self.gone)

    def receive(self, peer: Peer, data: bytes, now_ms: int) -> None:
        """Process bytes of a connection."""
        stream = self._streams.get(peer.id)
        if stream is None:
            return
        was_known = stream.hello is not None
        try:
            has_reported = stream.receive(data, now_ms)
        except Turned as error:
            self._output.send(peer.id, stream.refuse(error.reason))
            self._close(peer.id, error.reason, now_ms)
            self._seat.member.deposed(error.promised, self._seat.now_ms())
            self._seat.act()
            self.confirm()
            return
        except RemoteProtocolError as error:
            self._close(peer.id, str(error), now_ms)
            return
        if not was_known and stream.hello is not None:
            self._only(peer.id, stream.hello.member)
        if has_reported:
            self._note(stream)
        self.confirm()
        self._hand_over()

    def _known(self) -> Iterator[tuple[int, Hello, CopyStream]]:
        """The connections of members that have said who they are, by peer."""
        for peer, stream in self._streams.items():
            if stream.hello is not None:
                yield peer, stream.hello, stream

    def _stream_of(self, member: str, incarnation: str) -> CopyStream | None:
        for _, hello, stream in self._known():
            if (hello.member, hello.incarnation) == (member, incarnation):
                return stream
        return None

    def _only(self, peer: int, member: str) -> None:
        """Close the former connection of a member that connects again."""
        for other, hello, _ in [*self._known()]:
            if other != peer and hello.member == member:
                del self._streams[other]
                self._output.add(Close(other, "this copy has connected again"))

    def gone(self, peer: Peer, now_ms: int) -> None:
        """A connection was lost."""
        stream = self._streams.pop(peer.id, None)
        self._addresses.pop(peer.id, None)
        if stream is not None and stream.hello is not None:
            self._seat.member.copy_gone(stream.hello.member, self._seat.now_ms())

    def _close(self, peer: int, reason: str, now_ms: int) -> None:
        stream = self._streams.pop(peer, None)
        address = self._addresses.pop(peer, f"peer {peer}")
        ending = self._said.ending(address.rpartition(":")[0] + reason, now_ms)
        if ending is not None:
            _log.warning("a copy's connection from %s is closed: %s%s", address, reason, ending)
        self._output.add(Close(peer, reason))
        if stream is not None and stream.hello is not None:
            self._seat.member.copy_gone(stream.hello.member, self._seat.now_ms())

    # -- the log -----------------------------------------------------------------------------

    def take(self) -> list[Effect]:
        """The effects at the end of an input, among them what copies are sent."""
        if self._marks is not None:
            self._marks.input_ended()
        effects = self._output.take()
        for effect in effects:
            if isinstance(effect, Replace):
                self.table(effect.path, effect.data)
        if self._streams:
            self._send()
        elif self._is_alone:
            self.confirm()
        return [*effects, *self._output.take()]

    @property
    def _is_alone(self) -> bool:
        return not self._needed

    def _send(self) -> None:
        now_ms, end = self._seat.now_ms(), self._store.end_offset
        last_ms, last_end = self._samples[-1]
        if end != last_end and now_ms >= last_ms + _SAMPLE_MS:
            self._samples.append((now_ms, end))
        if self._heir is not None and self._heir.was_told:
            return  # what it will not have, another member would have to cut off
        for peer in list(self._streams):
            self._flush(peer)

    def _flush(self, peer: int) -> None:
        now_ms = self._moment.now_ms
        try:
            found = self._streams[peer].sends(self._store.ends.confirmed, now_ms)
        except RemoteProtocolError as error:
            self._close(peer, str(error), now_ms)
            return
        if found:
            self._output.send(peer, *found)

    def _note(self, stream: CopyStream) -> None:
        assert stream.hello is not None
        current_ms = self._seat.now_ms()
        if not stream.is_even:
            acked = stream.acknowledged
            current_ms = next((ms for ms, end in reversed(self._samples) if end <= acked), 0)
        hello = stream.hello
        self._seat.member.copies.report(hello.member, hello.incarnation, current_ms=current_ms)

    def _has_all(self, member: str, incarnation: str) -> bool:
        """Whether a copy has everything that was acknowledged or visible by now, including
        tables."""
        ends = self._store.ends
        promised = min(self._store.end_offset, max(ends.answerable_end, ends.visible_end))
        stream = self._stream_of(member, incarnation)
        return stream is not None and stream.acknowledged >= promised and stream.has_tables

    def confirm(self) -> None:
        """Compute how far the log is confirmed, and release the answers that waited for it."""
        store, ends = self._store, self._store.ends
        member = self._seat.member
        if not member.is_leader:
            return  # deposed: nothing more is confirmed
        needed = member.needed
        if needed != self._needed:
            self._needed = needed
            ends.are_in_sync(len(needed) + 1)
            store.flusher.look_again()
            self._judge()
        seen_until, answered_until = ends.visible_end, ends.answerable_end
        if needed:
            confirmed = min([store.end_offset, *(self._end_of(*each) for each in needed.items())])
            if confirmed > ends.confirmed:
                ends.made_confirmed(confirmed)
        if ends.visible_end > seen_until:
            store.dispatcher.run()
        if ends.answerable_end > answered_until or self._is_alone:
            self._release()
        if not self._is_ready and ends.confirmed >= self._seat.epoch_end:
            self._is_ready = True
            self._seat.ready()

    def _end_of(self, member: str, incarnation: str) -> int:
        stream = self._stream_of(member, incarnation)
        return 0 if stream is None else stream.acknowledged

    def _judge(self) -> None:
        copies, least = len(self._needed or ()) + 1, self._seat.min_copies
        if self._heir is not None:
            self._refuse(f"{SWITCHING_REMARK} {self._heir.member}; try again soon")
        elif copies < least:
            self._refuse(
                f"{copies} of the group's members are in sync, and escrowMinCopies={least} wants "
                "as many before messages are taken"
            )
        else:
            self._refuse("")

    # -- tables ------------------------------------------------------------------------------

    def table(self, path: str, data: bytes) -> None:
        """Send a table that has changed, in its turn."""
        if path in COPIED:
            self._latest[path] = data  # a file may be written later than it is sent
            if self._streams:
                self._add(path, encode_table(path, data))

    def _add(self, path: str, frame: bytes) -> None:
        end = self._store.end_offset
        for stream in self._streams.values():
            stream.table(path, frame, end)

    def _tables(self) -> list[tuple[str, bytes]]:
        found = []
        for path in sorted(COPIED):
            data = self._latest.get(path) or self._disk.read(path)
            if data is not None:
                found.append((path, encode_table(path, data)))
        gone = self._store.deleted.of_topic
        return found + [(gone_key(topic), self._gone(topic)) for topic in gone]

    def _deleted(self, topic: str) -> None:
        if self._streams:
            self._add(gone_key(topic), self._gone(topic))

    def _gone(self, topic: str) -> bytes:
        deletion = self._store.deleted.of_topic[topic]
        return encode_struct(Kind.GONE, Gone(topic, deletion.log_end, deletion.stored_ms))

    # -- time --------------------------------------------------------------------------------

    def wake(self, now_ms: int) -> None:
        """Send signs of life, and close connections that give none."""
        for peer, stream in list(self._streams.items()):
            try:
                sign = stream.wake(self._store.ends.confirmed, now_ms)
            except RemoteProtocolError as error:
                self._close(peer, str(error), now_ms)
                continue
            if sign:
                self._output.send(peer, sign)
        self.confirm()
        self._hand_over()

    def wake_at_ms(self) -> int:
        """When `wake` must be called next."""
        due_ms = min((s.wake_at_ms() for s in self._streams.values()), default=(1 << 62) - 1)
        return due_ms if self._heir is None else min(due_ms, self._moment.now_ms + _SAMPLE_MS)

    def settle(self, now_ms: int) -> None:
        """Confirm what has become durable, if no copy is in sync."""
        if self._is_alone:
            self.confirm()

    # -- questions ---------------------------------------------------------------------------

    def report(self) -> GroupReport:
        """The group as its master knows it."""
        seat, store = self._seat, self._store
        ends = store.ends
        return msgspec.structs.replace(
            seat.report(
                is_master=seat.member.is_leader, end=store.end_offset, confirmed=ends.confirmed
            ),
            refusal=store.refusal or "",
            copies=[
                CopyReport(
                    member=hello.member,
                    incarnation=hello.incarnation,
                    address=self._addresses.get(peer, ""),
                    end=stream.acknowledged,
                    behind=store.end_offset - stream.acknowledged,
                )
                for peer, hello, stream in self._known()
            ],
        )

    def switch(self, member: str) -> str:
        """Hand over to this member: accept no more messages, and let it take over once it has
        everything."""
        known = self._seat.member
        if not known.is_leader:
            raise UsageError("this member is no longer the master")
        if known.authority_fault:
            raise UsageError(
                f"the authority does not answer ({known.authority_fault}), so nobody can take over"
            )
        able = {
            hello.member: stream.acknowledged
            for _, hello, stream in self._known()
            if known.needed.get(hello.member) == hello.incarnation
        }
        if not able or (member and member not in able):
            raise UsageError(
                f"{member or 'no other member'} is not in sync, so it cannot take over; in sync "
                f"and connected: {', '.join(sorted(able)) or 'none'}"
            )
        heir = member or max(sorted(able), key=able.__getitem__)
        self._heir = Heir(heir, until_ms=self._seat.now_ms() + SWITCH_MS)
        self._judge()
        self._hand_over()
        return heir

    def rebuild(self) -> None:
        """A master has nothing to rebuild."""
        raise UsageError("this member is the master, and serves: nothing is to be rebuilt")

    def drill(self, fields: Mapping[str, str], *, who: str, at_ms: int) -> dict[str, str]:
        """Do a fault to this member."""
        order = read_order(fields, who=who, at_ms=at_ms)
        if order.fault == SWITCH and not order.is_dry_run:
            self._seat.drill(msgspec.structs.replace(order, is_dry_run=True))
            self.switch("")
        answer = self._seat.drill(order)
        if self._seat.is_cut:
            for peer in list(self._streams):
                self._close(peer, CUT_OFF, self._moment.now_ms)
        return answer

    def _hand_over(self) -> None:
        """Ask the heir to take over once it has everything; cancel after a timeout."""
        heir = self._heir
        if heir is None:
            return
        if self._seat.now_ms() >= heir.until_ms:
            _log.warning("%s has not taken over: messages are accepted again", heir.member)
            self._heir = None
            self._judge()
            return
        for peer, hello, stream in self._known():
            if hello.member == heir.member and stream.is_even and not heir.was_told:
                heir.was_told = True
                self._output.send(peer, stream.hand_over())
                self._seat.member.expect_successor(heir.until_ms, self._seat.now_ms())
                self._seat.act()

    def families(self) -> list[Family]:
        """Metrics: how far copies are behind."""
        end = self._store.end_offset
        samples = tuple(
            Sample((hello.member,), end - stream.acknowledged) for _, hello, stream in self._known()
        )
        text = "Bytes of the log that a member of the group has not reported as taken."
        in_sync = len(self._seat.member.needed) + 1 if self._seat.member.is_leader else 0
        return [
            Family("escrowmq_member_behind_bytes", "gauge", text, ("member",), samples),
            one("escrowmq_members_in_sync", "gauge", "Members in sync, the master too.", in_sync),
            one("escrowmq_epoch", "gauge", "The epoch of the group.", self._epoch.epoch),
        ]

    def follow(self, start: int, identity: str, now_ms: int) -> dict[str, str]:
        """RocketMQ's slaves and tickets are not for groups."""
        raise UsageError("this broker is in a group: its members copy it by their own protocol")

    def ha_status(self) -> dict[str, object]:
        """As mqadmin's haStatus reads it (HARuntimeInfo)."""
        needed = self._seat.member.needed if self._seat.member.is_leader else {}
        return {
            "haConnectionInfo": [
                {
                    "addr": self._addresses.get(peer, ""),
                    "diff": self._store.end_offset - stream.acknowledged,
                    "inSync": hello.member in needed,
                    "slaveAckOffset": stream.acknowledged,
                    "transferFromWhere": stream.sent_end,
                    "transferredByteInSecond": 0,
                }
                for peer, hello, stream in self._known()
            ],
            "inSyncSlaveNums": len(needed),
            "master": True,
            "masterCommitLogMaxOffset": self._store.end_offset,
        }
