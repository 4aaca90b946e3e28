"""A copy's end of the connection to its master."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from escrowmq.errors import RemoteProtocolError
from escrowmq.group.frames import (
    FRAME_SIZE_MAX,
    Challenge,
    FrameReader,
    GroupFrameKind,
    Hello,
    LogPart,
    RefusalFrame,
    TopicDeletion,
    Welcome,
    compute_proof,
    decode_log,
    decode_struct,
    decode_table,
    encode_report,
    encode_struct,
    is_valid_proof,
)
from escrowmq.group.tables import COPIED, QUEUE_ENDS
from escrowmq.replica.appending import LogAppender, SlaveLog

SILENT_MS: Final = 10_000


class CutRequired(Exception):
    """Raised if the copy's log has bytes that the master's does not have. Cut them off, durably,
    before connecting again."""

    def __init__(self, log_offset: int, *, is_anew: bool) -> None:
        super().__init__(f"the log is cut at {log_offset}")
        self.log_offset = log_offset
        self.is_anew = is_anew
        """Whether to remove the whole log; it then begins at the offset."""


class RefusedByMaster(RemoteProtocolError):
    """Raised if the master refuses this copy. The reason must be shown to a person."""

    def __init__(
        self, reason: str, *, is_name_taken: bool = False, is_duplicate: bool = False
    ) -> None:
        super().__init__(reason)
        self.is_name_taken, self.is_duplicate = is_name_taken, is_duplicate


class CopyEffects(Protocol):
    """Carries out the effects of the master's frames, except log data."""

    def adopt_epoch(self, epoch: int, history: tuple[tuple[int, int], ...]) -> None:
        """Note, durably, that the log is now a prefix of the log of this epoch's master."""

    def apply_table(self, path: str, data: bytes) -> None:
        """Write a table that the master sent."""

    def apply_queue_ends(self, data: bytes) -> None:
        """Let queues that have no record in the log continue where the master's do."""

    def apply_topic_deletion(self, gone: TopicDeletion) -> None:
        """Delete a topic that the master has deleted."""

    def become_master(self) -> None:
        """Become master, because the present one hands over."""

    def has_unreplicated_deletions(self, log_offset: int) -> bool:
        """Whether this member has deleted topics that the master still has, when its log ended at
        or after this offset, from which on the two logs differ."""


class CopyConnection:
    """A copy's connection to its master. The caller closes it after RemoteProtocolError or Cut."""

    def __init__(
        self,
        log: SlaveLog,
        beside: CopyEffects,
        *,
        hello: Callable[[], Hello],
        secret: bytes,
        nonce: str,
        now_ms: int,
    ) -> None:
        """`hello` describes this copy and its log; nonce and proof are added here."""
        self._log = log
        self._beside = beside
        self._hello = hello
        self._secret = secret
        self._nonce = nonce
        self._said: Hello | None = None
        self._reader = FrameReader()
        self._appender = LogAppender(log)
        self._at = 0
        self._tables_count = 0
        self._reported = (-1, 0)
        self._heard_ms = now_ms
        self._is_asked = False
        """Whether the master has requested a report, even if there is nothing new."""
        self.is_welcome = False
        self.master_end = self.confirmed = 0
        self.log_begin = 0
        """The offset at which the master's log begins."""

    def receive(self, data: bytes, now_ms: int) -> list[bytes]:
        """Process bytes from the master. Return the bytes to write to it."""
        self._heard_ms = now_ms
        found: list[bytes] = []
        for kind, content in self._reader.read_frames(data):
            if kind is GroupFrameKind.REFUSAL:
                refusal = decode_struct(RefusalFrame, content)
                raise RefusedByMaster(
                    refusal.reason,
                    is_name_taken=refusal.is_name_taken,
                    is_duplicate=refusal.is_duplicate,
                )
            if kind is GroupFrameKind.CHALLENGE and self._said is None:
                found.append(self._answer_challenge(decode_struct(Challenge, content)))
            elif kind is GroupFrameKind.WELCOME and self._said is not None and not self.is_welcome:
                self._process_welcome(self._said, decode_struct(Welcome, content))
            elif self.is_welcome:
                self._process_frame(kind, content)
            else:
                raise RemoteProtocolError(f"{kind.name} is not expected from a master here")
        report = self.next_report()
        return [*found, report] if report else found

    def _answer_challenge(self, challenge: Challenge) -> bytes:
        if challenge.protocol != 1:
            raise RefusedByMaster(
                f"the master uses version {challenge.protocol} of the protocol, and this "
                "member version 1: upgrade this member"
            )
        hello = msgspec.structs.replace(self._hello(), nonce=self._nonce)
        proof = compute_proof(self._secret, "copy", challenge.nonce, hello.proved_content())
        self._said = hello
        return encode_struct(GroupFrameKind.HELLO, msgspec.structs.replace(hello, proof=proof))

    def _process_welcome(self, said: Hello, welcome: Welcome) -> None:
        unproved = msgspec.json.encode(msgspec.structs.replace(welcome, proof=""))
        if not is_valid_proof(self._secret, "master", self._nonce, unproved, welcome.proof):
            raise RefusedByMaster(
                "the master does not know the group's secret (escrowGroupSecretFile)"
            )
        if welcome.epoch < said.promised or said.group not in ("", welcome.group):
            raise RemoteProtocolError(
                f"this is the master of epoch {welcome.epoch} of group {welcome.group}; this "
                f"member has heard of epoch {said.promised} of {said.group}"
            )
        if welcome.is_anew:
            if not self._log.is_empty:
                raise CutRequired(welcome.starts_at, is_anew=True)
            if welcome.starts_at % self._log.segment_size:
                raise RemoteProtocolError(f"no file begins at log offset {welcome.starts_at}")
            self._log.begin_at(welcome.starts_at)
        elif welcome.starts_at != self._log.end_offset or self._beside.has_unreplicated_deletions(
            welcome.starts_at
        ):
            raise CutRequired(welcome.starts_at, is_anew=False)
        self._beside.adopt_epoch(welcome.epoch, welcome.history)
        self._reader.size_max = FRAME_SIZE_MAX
        self._at = self.master_end = welcome.starts_at
        self.is_welcome = self._is_asked = True

    def _process_frame(self, kind: GroupFrameKind, content: bytes) -> None:
        if kind is GroupFrameKind.LOG:
            self._append_log(decode_log(content))
        elif kind is GroupFrameKind.TABLE:
            table = decode_table(content)
            if table.path == QUEUE_ENDS:
                self._beside.apply_queue_ends(table.data)
            elif table.path in COPIED:
                self._beside.apply_table(*table)
            else:
                raise RemoteProtocolError(f"{table.path!r} is not a table that members copy")
            self._tables_count += 1
        elif kind is GroupFrameKind.GONE:
            self._beside.apply_topic_deletion(decode_struct(TopicDeletion, content))
            self._tables_count += 1
        elif kind is GroupFrameKind.HAND_OVER:
            self._beside.become_master()
        else:
            raise RemoteProtocolError(f"{kind.name} is not expected from a master here")

    def _append_log(self, part: LogPart) -> None:
        if part.log_offset != self._at:
            what = "a gap" if part.log_offset > self._at else "an overlap"
            raise RemoteProtocolError(
                f"{what}: the master sends log offset {part.log_offset}, but {self._at} is next"
            )
        self.confirmed, self.log_begin = part.confirmed, part.begin
        self._at += len(part.body)
        self.master_end = self._at
        if part.body:
            self._appender.append(part.body)
        else:
            self._is_asked = True

    def next_report(self) -> bytes:
        """Return the report to send to the master now; empty if there is none."""
        if not self.is_welcome:
            return b""
        now = (self._log.safe_end, self._tables_count)
        if now == self._reported and not self._is_asked:
            return b""
        self._reported, self._is_asked = now, False
        return encode_report(*now)

    def is_master_silent(self, now_ms: int) -> bool:
        """Whether the master has been silent for too long, so that the connection must be
        closed."""
        return now_ms >= self._heard_ms + SILENT_MS
