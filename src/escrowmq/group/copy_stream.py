"""The master's end of the connection to one copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.errors import RemoteProtocolError
from escrowmq.group.catch_up_rate import CatchUpRate
from escrowmq.group.frames import (
    Challenge,
    FrameReader,
    GroupFrameKind,
    Hello,
    RefusalFrame,
    Welcome,
    compute_proof,
    decode_report,
    decode_struct,
    encode_frame,
    encode_log_head,
    encode_struct,
    is_valid_proof,
)
from escrowmq.group.history import EpochStart, common_end
from escrowmq.group.tables import QUEUE_ENDS, PendingTables
from escrowmq.replica.sending import MasterLog, send_window_end

AHEAD_MAX: Final = 8 * 1024 * 1024
"""Limit of the bytes in flight to a copy, and so of the memory of its connection."""

BATCH_SIZE: Final = 256 * 1024
IN_FLIGHT_MAX: Final = 1
"""Limit of the log's parts in flight to a copy. Records stored meanwhile follow together in one
part, once the copy has reported an earlier part; so many producers cause few turns of both
processes. (With a limit of two, the cost with 64 connections was a fifth to a half higher.) A full
batch never waits."""

HEARTBEAT_MS: Final = 500
SILENT_MS: Final = 10_000
"""A connection on which nothing arrives for this long is closed."""

ALIVE_MS: Final = 3 * HEARTBEAT_MS
"""A copy that was heard within this time is alive."""

CLAIM_MS: Final = 2 * HEARTBEAT_MS
"""A process that is heard this long after another one has claimed to be the same member has not
been replaced by it: both run."""

HANDSHAKE_MS: Final = 3_000
"""Timeout in ms in which a connection must prove that it is a member's."""

_TLS: Final = b"\x16\x03"
"""The first bytes of a TLS connection; as a frame's size they would be far too large."""


class MasterEpoch(msgspec.Struct, frozen=True):
    """The epoch in which this member is master."""

    cluster: str
    broker: str
    group: str
    epoch: int
    history: tuple[tuple[int, int], ...]
    member: str
    secret: bytes


class CopyRefused(Exception):
    """Raised to refuse a copy: send the reason, and close the connection."""

    def __init__(
        self,
        reason: str,
        *,
        promised: int = 0,
        is_name_taken: bool = False,
        is_duplicate: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_name_taken, self.is_duplicate = is_name_taken, is_duplicate
        self.promised = promised
        """The epoch that the copy has promised, if it is later than this master's."""


class CopyStream:
    """One connection of a copy. The caller closes it after RemoteProtocolError or CopyRefused."""

    def __init__(
        self,
        log: MasterLog,
        epoch: MasterEpoch,
        *,
        nonce: str,
        tables: Callable[[], list[tuple[str, bytes, int]]],
        now_ms: int,
    ) -> None:
        """`tables` returns all tables: the path, the frame, and the log offset after which it is
        sent."""
        self._log = log
        self._epoch = epoch
        self._nonce = nonce
        self._tables = tables
        self._reader = FrameReader()
        self._pending = PendingTables()
        self.hello: Hello | None = None
        self.sent_end = self.acknowledged = self._start_at = 0
        self._in_flight: deque[int] = deque()
        """The end of each part of the log that the copy has not reported yet. Only parts that end
        where the log ended are listed, because a copy does not report part of a record."""
        self._catch_up_rate = CatchUpRate()
        self._is_held_back = False
        """Whether the catch-up rate delays something that could be sent."""
        self._sent_tables = self._known_tables = 0
        self._claims: dict[str, int] = {}
        """When each other process that claims to be the same member was first seen, by its id."""
        self._began_ms = self._heard_ms = self._written_ms = now_ms
        self._greeting: list[bytes] = [encode_struct(GroupFrameKind.CHALLENGE, Challenge(nonce))]

    def receive(self, data: bytes, now_ms: int) -> bool:
        """Process bytes from the copy. Return whether it has reported something."""
        self._heard_ms = now_ms
        if self.hello is None and data.startswith(_TLS):
            raise RemoteProtocolError(
                "it uses TLS, and this member does not: set escrowGroupTls at all members, "
                "or at none"
            )
        has_reported = False
        for kind, content in self._reader.read_frames(data):
            if self.hello is None and kind is GroupFrameKind.HELLO:
                self._admit_copy(decode_struct(Hello, content))
            elif self.hello is not None and kind is GroupFrameKind.REPORT:
                self._process_report(*decode_report(content))
                has_reported = True
            else:
                raise RemoteProtocolError(f"{kind.name} is not expected from a copy here")
        return has_reported

    def _process_report(self, end: int, tables_count: int) -> None:
        if not 0 <= end <= self.sent_end or not 0 <= tables_count <= self._sent_tables:
            raise RemoteProtocolError(
                f"it reports log offset {end} and {tables_count} tables, and was sent "
                f"{self.sent_end} and {self._sent_tables}"
            )
        self.acknowledged = max(self.acknowledged, end)
        while self._in_flight and self._in_flight[0] <= end:
            self._in_flight.popleft()
        self._known_tables = max(self._known_tables, tables_count)

    def _admit_copy(self, hello: Hello) -> None:
        mine, log = self._epoch, self._log
        content = hello.proved_content()
        if not is_valid_proof(mine.secret, "copy", self._nonce, content, hello.proof):
            raise CopyRefused("the secret is not the group's (escrowGroupSecretFile)")
        if (hello.cluster, hello.broker) != (mine.cluster, mine.broker):
            raise CopyRefused(
                f"this is the master of {mine.broker} in {mine.cluster}, and the copy is of "
                f"{hello.broker} in {hello.cluster}"
            )
        if hello.member == mine.member:
            raise CopyRefused(f"the master itself is member {hello.member}: names must differ")
        if hello.group not in ("", mine.group):
            raise CopyRefused(f"this is group {mine.group}, and the copy is of group {hello.group}")
        if hello.promised > mine.epoch:
            raise CopyRefused(
                f"this is the master of epoch {mine.epoch}, and the copy has heard of "
                f"{hello.promised}",
                promised=hello.promised,
            )
        if hello.segment_size != log.segment_size:
            raise CopyRefused(
                f"mappedFileSizeCommitLog is {log.segment_size} here and "
                f"{hello.segment_size} at the copy: it must be the same"
            )
        self._reader.size_max = 1024
        start, is_anew = self._copy_start(hello)
        self.hello = hello
        self.sent_end = self._start_at = start
        # No part of the log counts as copied before the copy itself has reported it, after its cut.
        self.acknowledged = 0
        welcome = Welcome(mine.group, mine.epoch, mine.history, start, is_anew)
        proof = compute_proof(mine.secret, "master", hello.nonce, msgspec.json.encode(welcome))
        proved = msgspec.structs.replace(welcome, proof=proof)
        self._greeting.append(encode_struct(GroupFrameKind.WELCOME, proved))
        for path, frame, place in self._tables():
            if path != QUEUE_ENDS or hello.takes_queue_ends is True:
                self._pending.add(path, frame, max(place, start))

    def _copy_start(self, hello: Hello) -> tuple[int, bool]:
        """Return the offset at which the two logs begin to differ, from which the copy gets the
        log. Return also whether the copy must remove its whole log."""
        log, low = self._log, self._log.min_offset
        theirs = tuple(EpochStart(*began) for began in hello.history)
        ours = tuple(EpochStart(*began) for began in self._epoch.history)
        start = common_end(ours, log.end_offset, theirs, hello.log_end)
        is_anew = start <= hello.log_begin or start < low
        return (low if is_anew else start), is_anew

    def encode_refusal(self, error: CopyRefused) -> bytes:
        """Encode the refusal of a copy, with its reason."""
        refusal = RefusalFrame(
            error.reason, self._epoch.epoch, error.is_name_taken, error.is_duplicate
        )
        return encode_struct(GroupFrameKind.REFUSAL, refusal)

    def is_alive(self, now_ms: int) -> bool:
        """Whether something has arrived lately: a copy answers each keep-alive."""
        return now_ms < self._heard_ms + ALIVE_MS

    def is_heard_after_claim(self, start_id: str, now_ms: int) -> bool:
        """Note that another process claims to be this member. Return whether the process of this
        connection was still heard some time after that."""
        first_ms = self._claims.setdefault(start_id, now_ms)
        return self._heard_ms >= first_ms + CLAIM_MS

    def reject(self) -> None:
        """Take back the admission of the copy: nothing more is sent to it."""
        self.hello = None
        self._greeting.clear()

    def queue_table(self, path: str, frame: bytes, log_end: int) -> None:
        """Queue a changed table. It is sent in its turn among the log's bytes (see
        `tables.PendingTables`)."""
        if self.hello is not None:
            self._pending.add(path, frame, log_end)

    def encode_hand_over(self) -> bytes:
        """Encode the frame that asks the copy to take over now."""
        return encode_frame(GroupFrameKind.HAND_OVER, b"")

    def bytes_to_send(self, confirmed: int, now_ms: int, *, rate: int = 0) -> list[bytes]:
        """Return the bytes to write to the copy now. `rate` limits the log's bytes per second; 0:
        no limit."""
        found, self._greeting = self._greeting, []
        if self.hello is None:
            return found
        log, pending = self._log, self._pending
        begin = self.sent_end
        until = send_window_end(log, max(self.acknowledged, self._start_at), AHEAD_MAX)
        if len(self._in_flight) >= IN_FLIGHT_MAX and until - begin < BATCH_SIZE:
            until = begin
        self._is_held_back = False
        if rate:
            allowed = begin + self._catch_up_rate.allowed_bytes(rate, now_ms)
            self._is_held_back = allowed < until
            until = min(until, allowed)
        while True:
            place = pending.first_due_offset()
            if place is not None and place <= self.sent_end:
                frames = pending.take_due(self.sent_end)
                self._sent_tables += len(frames)
                found += frames
                continue
            stop = until if place is None else min(until, place)
            if self.sent_end >= stop:
                break
            body = log.read(self.sent_end, min(stop - self.sent_end, BATCH_SIZE))
            if not body:
                raise RemoteProtocolError(
                    f"the log has nothing to read at offset {self.sent_end}, where this copy is; "
                    f"it begins at {log.min_offset} now"
                )
            head = encode_log_head(self.sent_end, confirmed, log.min_offset, len(body))
            found += (head, body)
            self.sent_end += len(body)
        if self.sent_end > begin:
            if self.sent_end == log.end_offset:
                self._in_flight.append(self.sent_end)
            if rate:
                self._catch_up_rate.count_sent(self.sent_end - begin, rate)
        if found:
            self._written_ms = now_ms
        return found

    def keep_alive(self, confirmed: int, now_ms: int) -> bytes:
        """Return a keep-alive frame; empty if none is due. Raises RemoteProtocolError if the copy
        is silent for too long."""
        if self.hello is None and now_ms >= self._began_ms + HANDSHAKE_MS:
            raise RemoteProtocolError(f"no member has named itself for {HANDSHAKE_MS / 1000:g} s")
        if now_ms >= self._heard_ms + SILENT_MS:
            raise RemoteProtocolError(f"nothing has come for {SILENT_MS / 1000:g} s")
        if self.hello is None or now_ms < self._written_ms + HEARTBEAT_MS:
            return b""
        self._written_ms = now_ms
        return encode_log_head(self.sent_end, confirmed, self._log.min_offset, 0)

    def wake_at_ms(self) -> int:
        """Return when `keep_alive` must be called next."""
        if self.hello is None:
            return self._began_ms + HANDSHAKE_MS
        silent_ms = self._heard_ms + SILENT_MS
        if self._is_held_back:
            silent_ms = min(silent_ms, self._catch_up_rate.next_allowed_ms)
        return min(silent_ms, self._written_ms + HEARTBEAT_MS)

    @property
    def has_everything(self) -> bool:
        """Whether the copy has everything, including tables."""
        return (
            self.hello is not None and self.acknowledged == self._log.end_offset and self.has_tables
        )

    @property
    def has_tables(self) -> bool:
        """Whether the copy has the current version of every table."""
        return self._known_tables == self._sent_tables and self._pending.first_due_offset() is None
