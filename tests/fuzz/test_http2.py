"""Whatever a client writes, calls do not raise, keep no more than they may, and write whole frames;
header blocks mean what the hpack package says, or nothing."""

from __future__ import annotations

import random
import struct

import pytest
from hpack import Decoder, Encoder, HPACKError

from escrowmq.http2 import frames
from escrowmq.http2.frames import ConnectionFault, ErrorCode, FrameKind, Http2Setting
from escrowmq.http2.grpc_connection import (
    CallCancelled,
    CallDrained,
    CallEvent,
    CallMessage,
    CallStarted,
    ClientDone,
    GrpcConnection,
    WholeCall,
)
from escrowmq.http2.grpc_metadata import GrpcStatus
from escrowmq.http2.header_blocks import HeaderBlockDecoder
from escrowmq.http2.limits import Http2Limits

from .frames import SEED, TALLY, spoil, tries

LIMITS = Http2Limits(
    streams_max=8,
    stream_window=20_000,
    connection_window=70_000,
    message_size_max=30_000,
    partial_size_max=50_000,
    unsent_size_max=60_000,
    overhead_max=60,
    resets_max=30,
)
REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a/B"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
MORE = [
    (b"grpc-timeout", b"9m"),
    (b"grpc-timeout", b"soon"),
    (b"grpc-encoding", b"gzip"),
    (b"content-length", b"7"),
    (b"X", b"y"),
    (b"x-mq-client-id", b"me" * 40),
    (b":path", b"/twice"),
    (b"connection", b"close"),
]
SIZES = (0, 1, 5, 100, 16_000, 16_384)


class Client:
    """Writes frames that are mostly right, on streams that mostly are there."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.encoder = Encoder()
        self.last = 1

    def stream_id(self) -> int:
        chance = self.chance
        if chance.random() < 0.03:
            return chance.randrange(1 << 31)
        return max(1, self.last - 2 * chance.randrange(6))

    def headers(self) -> bytes:
        chance = self.chance
        stream_id = self.last
        if chance.random() < 0.9:
            self.last += 2
            stream_id = self.last
        fields = REQUEST + [each for each in MORE if chance.random() < 0.04]
        block = self.encoder.encode(fields, huffman=chance.random() < 0.5)
        end = frames.END_STREAM if chance.random() < 0.2 else 0
        if chance.random() < 0.7:
            return frames.encode_headers(stream_id, block, is_end=bool(end))
        at = chance.randrange(len(block))
        first = frames.encode_frame(FrameKind.HEADERS, block[:at], flags=end, stream_id=stream_id)
        rest = frames.encode_frame(
            FrameKind.CONTINUATION, block[at:], flags=frames.END_HEADERS, stream_id=stream_id
        )
        return first + rest

    def data(self) -> bytes:
        chance = self.chance
        size = chance.choice(SIZES)
        front = struct.pack(">BI", chance.random() < 0.03, chance.choice((size, *SIZES, 1 << 30)))
        payload = (front + bytes(size))[: frames.FRAME_SIZE]
        flags = chance.choice((0, 0, 0, frames.END_STREAM, frames.PADDED))
        return frames.encode_frame(FrameKind.DATA, payload, flags=flags, stream_id=self.stream_id())

    def control(self) -> bytes:
        chance = self.chance
        size = chance.choice((0, 1, 100, 70_000, 1 << 20, (1 << 31) - 1))
        return chance.choice(
            (
                frames.encode_window_update(chance.choice((0, self.stream_id())), size),
                frames.encode_window_update(0, 40_000),
                frames.encode_window_update(self.stream_id(), 40_000),
                frames.encode_reset(self.stream_id(), ErrorCode.CANCEL),
                frames.encode_frame(FrameKind.PING, bytes(8), flags=chance.randrange(2)),
                frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: min(size, 70_000)}),
                frames.encode_frame(FrameKind.PRIORITY, bytes(5), stream_id=self.stream_id()),
                frames.encode_frame(FrameKind.GOAWAY, bytes(8)),
                frames.FRAME_HEADER.pack(3 << 8 | chance.randrange(256), 0, 0) + b"abc",
            )
        )

    def piece(self) -> bytes:
        kind = self.chance.random()
        if kind < 0.35:
            return self.headers()
        return self.data() if kind < 0.75 else self.control()


class Owner:
    """Answers as it likes; knows which calls it may hear of."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.is_unary = chance.random() < 0.5
        self.calls = GrpcConnection(LIMITS, unary_paths=["/a/B"] if self.is_unary else [])
        self.known: set[int] = set()
        self.ended: set[int] = set()
        self.decoder = Decoder()

    def hear(self, events: list[CallEvent]) -> None:
        for event in events:
            if isinstance(event, CallStarted | WholeCall):
                assert event.call not in self.known
                self.known.add(event.call)
            is_of_unreported = self.is_unary and isinstance(event, CallCancelled)
            assert event.call in self.known or is_of_unreported
            assert event.call not in self.ended, event
            match event:
                case CallCancelled():
                    self.ended.add(event.call)
                case WholeCall() | ClientDone() | CallMessage() | CallDrained() if (
                    self.calls.is_open(event.call)
                ):
                    self.act(event.call)
                case _:
                    pass

    def act(self, call: int) -> None:
        size = self.chance.choice((*SIZES, 50_000))
        match self.chance.randrange(6):
            case 0 | 1:
                self.calls.send_answer(call, bytes(size))
            case 2:
                self.calls.send_message(call, bytes(size))
            case 3:
                self.calls.end_call(call, GrpcStatus.INTERNAL, "x" * size)
            case 4:
                self.calls.abort_call(call)
            case _:
                pass

    def judge(self) -> None:
        """What is kept is bounded; what is written is whole, and can be read."""
        assert self.calls.open_count <= LIMITS.streams_max
        assert self.calls.buffered_size <= LIMITS.partial_size_max + LIMITS.unsent_size_max
        of_calls = self.calls._calls.values()
        kept = sum(
            len(call.partial) + len(call.held.data if call.held else b"") for call in of_calls
        )
        assert self.calls._partial_size == kept
        connection = self.calls._connection
        assert len(connection._held) < frames.FRAME_SIZE + frames.FRONT_SIZE
        assert len(connection._block) <= LIMITS.header_list_size_max
        out = b"".join(self.calls.take_bytes())
        at = 0
        while at < len(out):
            size_kind, flags, _ = frames.FRAME_HEADER.unpack_from(out, at)
            stop = at + frames.FRONT_SIZE + (size_kind >> 8)
            if size_kind & 0xFF == FrameKind.HEADERS:
                assert flags & frames.END_HEADERS
                self.decoder.decode(out[at + frames.FRONT_SIZE : stop], raw=True)
            at = stop
        assert at == len(out)


def run(chance: random.Random) -> None:
    client, owner = Client(chance), Owner(chance)
    now_ms = 0
    data = frames.PREFACE + frames.encode_settings({})
    for _ in range(chance.randrange(1, 60)):
        if chance.random() < 0.02:
            data = spoil(data, chance)
        cut = chance.randrange(len(data) + 1)
        for part in (data[:cut], data[cut:]):
            TALLY["http2"] += 1
            owner.hear(owner.calls.receive(part, now_ms))
            owner.judge()
        if chance.random() < 0.02:
            owner.calls.shut_down()
        now_ms += chance.randrange(10)
        owner.hear(owner.calls.wake(now_ms))
        if owner.calls.is_over:
            break
        data = b"".join(client.piece() for _ in range(chance.randrange(1, 8)))
    owner.hear(owner.calls.end_all())
    assert owner.calls.open_count == 0
    assert owner.calls.buffered_size <= LIMITS.unsent_size_max


def test_calls_stand_whatever_a_client_writes() -> None:
    chance = random.Random(f"http2 {SEED}")
    for _ in tries(100):
        run(chance)


def test_header_blocks_mean_what_the_package_says() -> None:
    chance = random.Random(f"blocks {SEED}")
    for _ in tries(300, share=0.5):
        encoder, decoder = Encoder(), Decoder(1 << 14)
        reader = HeaderBlockDecoder(list_size_max=1 << 14)
        for _ in range(20):
            fields = [(chance.randbytes(chance.randrange(9)), chance.randbytes(30))
                      for _ in range(chance.randrange(4))]  # fmt: skip
            block = encoder.encode(REQUEST + fields, huffman=chance.random() < 0.7)
            if chance.random() < 0.3:
                block = spoil(block, chance)
            if len(block) > LIMITS.header_list_size_max:
                break
            TALLY["http2 blocks"] += 1
            try:
                found = reader.decode_block(block)
            except ConnectionFault as fault:
                # These two limits are ours alone.
                if "too long" not in str(fault) and "new sizes of the table" not in str(fault):
                    with pytest.raises(HPACKError):
                        decoder.decode(block, raw=True)
                break
            assert found == [tuple(field) for field in decoder.decode(block, raw=True)]
