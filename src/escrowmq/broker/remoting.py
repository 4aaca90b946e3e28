"""The front of RocketMQ's remoting protocol: reads frames, serves their requests and writes the
replies."""

from __future__ import annotations

from typing import Final

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Hold
from escrowmq.base.fixed_limits import (
    ANSWERS_AHEAD_MAX,
    FRAME_SIZE_MAX,
    HALF_FRAMES_SIZE_MAX,
    HEADER_SIZE_MAX,
    KEYS_AT_ONCE_MAX,
    SERVED_AT_ONCE_MAX,
    STRANGERS_FRAME_SLACK,
    STRANGERS_HALF_FRAMES_SIZE_MAX,
)
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.answers.answer_frames import AnswerFrames
from escrowmq.broker.fast.fast_path import FastPath
from escrowmq.broker.fast.fast_pulls import FastPulls
from escrowmq.broker.fast.known_requests import KnownRequests
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.request_server import RequestServer
from escrowmq.codec.command import decode_header, encode_request
from escrowmq.codec.frame import FrameReader, FrameTimeouts, PartialFrames
from escrowmq.codec.repeated_requests import RepeatedRequests, repeated_command
from escrowmq.store.store import Store

_SCAN_MS: Final = 10_000
"""The time between checks for connections that do not complete a frame."""


class RemotingFront:
    """The remoting connections, and the memory for their incomplete frames."""

    def __init__(
        self,
        *,
        store_settings: StoreSettings,
        store: Store,
        frames: AnswerFrames,
        output: Output,
        serving: RequestServer,
        fast_path: FastPath | None,
        pulls: FastPulls | None,
    ) -> None:
        self._store_settings = store_settings
        self.store = store
        self.frames = frames
        self.output = output
        self.serving = serving
        self.fast_path: FastPath | None = fast_path
        """The fast path for sends and ENDs; without it, everything takes the general path."""
        self.pulls: FastPulls | None = pulls
        """The fast path for pulls; None if there is none."""
        self.served_at_once_max = SERVED_AT_ONCE_MAX
        """The most requests of one connection that the general path serves in a turn."""
        self.half_frames = PartialFrames(HALF_FRAMES_SIZE_MAX)
        self.strangers_half_frames = PartialFrames(STRANGERS_HALF_FRAMES_SIZE_MAX)
        self._watch = FrameTimeouts()
        self._readers: dict[int, FrameReader] = {}
        self._scan_at_ms = 0

    def create_dialogue(self, peer: Peer) -> RemotingDialogue:
        """Create the dialogue with a new connection. While the peer is a stranger, its frames must
        be small."""
        largest, room = FRAME_SIZE_MAX, self.half_frames
        if peer.is_stranger:
            size_max = self._store_settings.body_size_max
            largest = min(size_max + HEADER_SIZE_MAX + STRANGERS_FRAME_SLACK, FRAME_SIZE_MAX)
            room = self.strangers_half_frames
        reader = self._readers[peer.id] = FrameReader(room, frame_size_max=largest)
        return RemotingDialogue(self, peer, reader)

    def forget_peer(self, peer: int) -> None:
        """Forget a disconnected peer's reader and its incomplete frame."""
        self._readers.pop(peer).release_space()

    def wake(self, now_ms: int) -> None:
        """Close the connections that did not complete a frame in time."""
        if now_ms < self._scan_at_ms:
            return
        self._scan_at_ms = now_ms + _SCAN_MS
        for peer in self._watch.overdue_peers(self._readers.items(), now_ms):
            self.output.add_effect(Close(peer, "a frame was begun and not ended"))

    def wake_at_ms(self) -> int:
        """The time of the next check for incomplete frames."""
        return self._scan_at_ms


class RemotingDialogue:
    """The dialogue with one remoting connection (broker.dialogue.Dialogue)."""

    __slots__ = ("_front", "_known", "_output", "_peer", "_repeated", "_serving", "reader")

    def __init__(self, front: RemotingFront, peer: Peer, reader: FrameReader) -> None:
        self._front = front
        self._output = front.output
        self._serving = front.serving
        self._peer = peer
        self._known = KnownRequests()
        self._repeated = RepeatedRequests()
        self.reader = reader

    def receive(self, data: bytes, now_ms: int) -> None:
        """Serve the complete frames in these bytes. What exceeds one turn is kept for the next."""
        reader, peer = self.reader, self._peer
        data, at = reader.bytes_to_read(data), 0
        fast_path = self._front.fast_path
        if fast_path is not None and peer.long is None and self._known.may_take_fast_path(data, 0):
            at = fast_path.serve(peer, self._known, reader, data, 0, now_ms)
            if at and fast_path.is_cut:
                at = fast_path.serve(peer, self._known, reader, data, at, now_ms)
            if at == len(data):
                return
        if peer.long is not None:
            self._serving.serve_next_step(peer, peer.long, now_ms)
        if peer.long is None:
            at = self._serve_until_limit(data, at, now_ms)
        if at < len(data) or peer.long is not None:
            reader.put_back(data, at)
            self._output.add_effect(Hold(peer.id))
        elif reader.broken is not None:
            self._output.add_effect(Close(peer.id, str(reader.broken)))

    def _serve_until_limit(self, data: bytes, at: int, now_ms: int) -> int:
        """Serve requests of one input until the turn's limits are reached. Return the position of
        the first that was not served."""
        peer, serving = self._peer, self._serving
        # Requests are judged by their fields as they were received.
        repeated, pulls = None if serving.is_judging else self._repeated, self._front.pulls
        count, count_max = 0, self._front.served_at_once_max
        index = self._front.store.dispatcher
        keys_max = index.keys_count + KEYS_AT_ONCE_MAX
        while True:
            count += 1
            match = None if repeated is None else repeated.find(data, at)
            if (
                match is not None
                and pulls is not None
                and pulls.serve(peer, match, len(data) - match[-1] + at, now_ms)
            ):
                at = match[-1]
                self.reader.count += 1
            else:
                if match is None:
                    decode = decode_header if serving.is_judging else self._repeated.decode
                    found = self.reader.next_command(data, at, decode)
                    if found is None:
                        return len(data)
                    command, at = found
                else:
                    command, at = repeated_command(match, data, at), match[-1]
                    self.reader.count += 1
                if command.flag & Flag.REPLY:
                    serving.pass_answer(peer, command, now_ms)
                    continue
                serving.serve(peer, command, now_ms)
                if peer.long is not None:
                    return at
            if at == len(data) or count >= count_max:
                return at
            size = sum(map(len, self._output.frames.get(peer.id, ())))
            if size > ANSWERS_AHEAD_MAX or index.keys_count > keys_max:
                return at
            if self._known.may_take_fast_path(data, at):
                at = self._serve_by_fast_path(data, at, now_ms)

    def _serve_by_fast_path(self, data: bytes, at: int, now_ms: int) -> int:
        """Serve requests from a position on by the fast path. Return the position after them."""
        fast_path = self._front.fast_path
        if fast_path is None:
            return at
        return fast_path.serve(self._peer, self._known, self.reader, data, at, now_ms)

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Write an answer, unless the request is one-way."""
        if not question.flag & Flag.ONE_WAY:
            self._output.send(self._peer.id, *self._front.frames.frames_of(question, reply))

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Write a request of the broker to the peer."""
        frame = encode_request(code, opaque, ext=ext, body=body, is_one_way=is_one_way)
        self._output.send(self._peer.id, frame)

    def lift_stranger_limits(self) -> None:
        """Allow frames of the usual size: the peer is no longer a stranger."""
        self.reader.lift_stranger_limits(self._front.half_frames)

    def disconnected(self, now_ms: int) -> None:
        """Release the memory of the disconnected peer's incomplete frame."""
        self._front.forget_peer(self._peer.id)
