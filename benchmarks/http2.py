"""What a unary gRPC call costs a server's HTTP/2 layer: ours, and the h2 package.

    python benchmarks/http2.py [--calls 2000] [--rounds 7]

The bytes of a client are made beforehand, by hpack's encoder: HEADERS, DATA with END_STREAM, a
WINDOW_UPDATE and now and then a PING. Only the server's end is measured: they go in, and what it
would write comes out. `alike` is a client whose calls all have the same fields; `signed` one of
RocketMQ's, with an id, a time and a signature of each call. A cell is the least of its rounds, in
microseconds of CPU a call.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import struct
import time
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
from hpack import Encoder

from escrowmq.http2 import frames
from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import StreamData
from escrowmq.http2.grpc_connection import ClientDone, GrpcConnection, WholeCall
from escrowmq.http2.grpc_metadata import HEADERS, OK_TRAILERS

REQUEST = struct.pack(">BI", 0, 256) + b"q" * 256
ANSWER = b"a" * 100
FRAMED = struct.pack(">BI", 0, len(ANSWER)) + ANSWER
FIELDS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
    (b":authority", b"127.0.0.1:8081"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", b"grpc-java-netty/1.68.0"),
    (b"grpc-accept-encoding", b"gzip"),
    (b"x-mq-client-id", b"host@4711@0@1795246692580"),
    (b"x-mq-language", b"JAVA"),
    (b"x-mq-protocol", b"v2"),
    (b"grpc-timeout", b"3S"),
]


def fields(number: int, *, is_signed: bool) -> list[tuple[bytes, bytes]]:
    """The fields of one call."""
    if not is_signed:
        return FIELDS
    signature = hashlib.sha1(b"%d" % number).hexdigest().encode()
    return [
        *FIELDS,
        (b"x-mq-request-id", b"%08x-0000-4000-8000-000000000000" % number),
        (b"x-mq-date-time", b"20261122T%06dZ" % (number // 100)),
        (b"authorization", b"MQv2-HMAC-SHA1 Credential=k, Signature=" + signature),
    ]


def conversation(calls: int, *, at_once: int, is_signed: bool) -> list[bytes]:
    """What a client writes: a piece for each time that the server reads."""
    encoder = Encoder()
    hello = frames.PREFACE + frames.encode_settings({}) + frames.encode_window_update(0, 1 << 30)
    pieces = [hello]
    for first in range(0, calls, at_once):
        heads, bodies = [], []
        for number in range(first, first + at_once):
            stream_id = 2 * number + 1
            block = encoder.encode(fields(number, is_signed=is_signed), huffman=True)
            heads.append(frames.encode_headers(stream_id, block, is_end=False))
            bodies.append(
                frames.encode_frame(frames.FrameKind.DATA, REQUEST, flags=1, stream_id=stream_id)
            )
        update = frames.encode_window_update(0, at_once * len(FRAMED))
        ping = frames.encode_frame(frames.FrameKind.PING, b"12345678") if first % 64 == 0 else b""
        if at_once == 1:
            pieces.append(update + heads[0] + bodies[0] + ping)
        else:  # all begin before the first goes on, as they do on a connection that many share
            pieces.append(update + b"".join(heads + bodies) + ping)
    return pieces


def by_h2(pieces: list[bytes]) -> int:
    """The h2 package answers."""
    config = h2.config.H2Configuration(client_side=False, header_encoding=None)
    server = h2.connection.H2Connection(config)
    server.initiate_connection()
    head = [(b":status", b"200"), (b"content-type", b"application/grpc")]
    count = 0
    for piece in pieces:
        for event in server.receive_data(piece):
            if isinstance(event, h2.events.DataReceived):
                server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                server.send_headers(event.stream_id, head)
                server.send_data(event.stream_id, FRAMED)
                server.send_headers(event.stream_id, [(b"grpc-status", b"0")], end_stream=True)
                count += 1
        server.data_to_send()
    return count


def by_frames(pieces: list[bytes]) -> int:
    """Our frames and streams answer: what h2 does, and no more."""
    server, count = Http2Connection(), 0
    for piece in pieces:
        for event in server.receive(piece, 0):
            if type(event) is StreamData and event.is_end:
                server.send_data(
                    event.stream_id, headers=HEADERS, data=FRAMED, trailers=OK_TRAILERS
                )
                count += 1
        b"".join(server.take_bytes())
    return count


def by_calls(pieces: list[bytes]) -> int:
    """Our frames, with gRPC on top: metadata, deadlines, messages."""
    server, count = GrpcConnection(), 0
    for piece in pieces:
        for event in server.receive(piece, 0):
            if type(event) is ClientDone or type(event) is WholeCall:
                server.send_answer(event.call, ANSWER)
                count += 1
        b"".join(server.take_bytes())
    return count


WAYS: dict[str, Callable[[list[bytes]], int]] = {
    "h2": by_h2,
    "ours": by_frames,
    "ours with gRPC": by_calls,
}


def measure(pieces: list[bytes], *, calls: int, rounds: int) -> dict[str, float]:
    """Microseconds a call, by way; the ways take turns."""
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(rounds):
        for name, way in WAYS.items():
            began = time.process_time_ns()
            count = way(pieces)
            took = time.process_time_ns() - began
            assert count == calls, (name, count)
            best[name] = min(best[name], took / calls / 1000)
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1920, help="a multiple of 64")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, h2 {h2.__version__}\n")
    print("| call | h2 | ours | h2 / ours | ours with gRPC |\n|---|---|---|---|---|")
    for is_signed in (False, True):
        for at_once in (1, 64):
            pieces = conversation(args.calls, at_once=at_once, is_signed=is_signed)
            took = measure(pieces, calls=args.calls, rounds=args.rounds)
            name = f"{'signed' if is_signed else 'alike'}, {at_once} at once"
            print(
                f"| {name} | {took['h2']:.1f} | {took['ours']:.1f} |"
                f" {took['h2'] / took['ours']:.1f} | {took['ours with gRPC']:.1f} |"
            )


if __name__ == "__main__":
    main()
