"""SendMessage over gRPC: EscrowMQ, and RocketMQ's proxy with its broker, in one run.

    python benchmarks/v5.py [--only ghz,java,ready] [--brokers escrowmq,java] [--seconds 10]
                            [--warm 5] [--connections 4] [--concurrency 64]
    python benchmarks/v5.py --core [--burst 16]     # our core alone: frames in, frames out
    python benchmarks/v5.py --core --against ../other/src    # beside the code of another checkout

Loaded by ghz (a Go module, built by the first run), by the official Java client of RocketMQ 5, and
by calls that lie ready as bytes (`ready`: a load that is no limit; on each connection its share of
the concurrency is in flight), each broker right after the other. CPU is that of the broker's
processes a call: of EscrowMQ's one, of RocketMQ's proxy and broker together; `a second and core`
is what one core could do at that cost. Needs Go, Java and Maven; `--core` needs nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core import Rig
from google.protobuf import descriptor_pb2
from hpack import Encoder
from peers import BUILD, Ours, Peer, Proxied, Usage, is_open, wait_until
from side_by_side import table
from tests.interop import jars, wire
from tests.interop.ports import free_port
from tests.v5.clients import java_library
from whole import Line, drive

from escrowmq.base.wire import Wire
from escrowmq.broker.guests import GuestClients
from escrowmq.http2 import frames
from escrowmq.http2.frames import FrameKind, Http2Setting
from escrowmq.proxy.front import GrpcFront
from escrowmq.proxy.gen import v2
from escrowmq.proxy.service_context import FrontOptions

HERE = Path(__file__).parent
TOPIC = "BenchV5"
BODY = b"x" * 128
CELLS = ("ghz", "java", "ready")
SEND = "/apache.rocketmq.v2.MessagingService/SendMessage"
CORE_CALLS = 6_000
CORE_ROUNDS = 9
GREETING = (
    frames.PREFACE
    + frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: 1 << 30})
    + frames.encode_window_update(0, 1 << 30)
)
"""What a client says first; it lets answers come without a word in between."""

STORED = b"\x08" + bytes((20_000 & 0x7F | 0x80, 20_000 >> 7 & 0x7F | 0x80, 20_000 >> 14))
"""Status.code = OK, as it stands in an answer."""

KINDS = ("alike", "signed")
"""Of header blocks: all the same, or each with an id of its own."""


class OursV5(Ours):
    """`escrowmq serve` with its gRPC port."""

    def __init__(self) -> None:
        self.grpc = f"127.0.0.1:{free_port()}"
        super().__init__(grpcServerPort=self.grpc.split(":")[1])

    def start(self) -> None:
        """Start, and wait for the gRPC port too."""
        super().start()
        wait_until("the front listens", lambda: is_open(self.grpc))

    def usages(self) -> list[Usage]:
        """Whose CPU a call costs."""
        return [self.usage]


class JavaV5(Proxied):
    """RocketMQ's broker with its proxy."""

    @property
    def grpc(self) -> str:
        """Where clients come to."""
        return self.proxy

    def usages(self) -> list[Usage]:
        """Whose CPU a call costs: the proxy's, which was started last, and the broker's."""
        return [self.usage, Usage(self._children[-1].pid)]


Row = dict[str, Any]
V5 = OursV5 | JavaV5
PEERS: dict[str, type[OursV5 | JavaV5]] = {"escrowmq": OursV5, "java": JavaV5}


def create_topic(peer: Peer) -> None:
    """A topic of type NORMAL."""
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
        "attributes": "+message.type=NORMAL",
    }  # fmt: skip
    assert wire.ask(peer.broker, 17, fields).code == 0
    wait_until("a route", lambda: wire.ask(peer.nameserver, 105, {"topic": TOPIC}).code == 0)


# -- loads ---------------------------------------------------------------------------------------


def ghz() -> Path:
    """The program, built once."""
    folder = HERE / "ghz"
    program = BUILD / f"ghz-{jars.digest(*sorted(folder.iterdir()))}"
    if not program.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        tool = "github.com/bojand/ghz/cmd/ghz"
        jars.run(["go", "build", "-C", str(folder), "-mod=readonly", "-o", str(program), tool])
    return program


def described() -> Path:
    """The service for ghz, whose reader of protos knows no optional fields."""
    found = descriptor_pb2.FileDescriptorSet()
    for file in (*v2.DESCRIPTOR.dependencies, v2.DESCRIPTOR):
        file.CopyToProto(found.file.add())
    path = BUILD / "v2.protoset"
    path.write_bytes(found.SerializeToString())
    return path


def one_message() -> v2.Message:
    """What ghz sends, again and again."""
    message = v2.Message(body=BODY)
    message.topic.name = TOPIC
    system = message.system_properties
    system.message_id = f"01{'0' * 30}"
    system.message_type, system.body_encoding = v2.NORMAL, v2.IDENTITY
    system.born_timestamp.FromMilliseconds(1_800_000_000_000)
    system.born_host = "bench"
    return message


def load_by_ghz(peer: V5, seconds: int, options: argparse.Namespace) -> Row:
    """One run of ghz."""
    request = BUILD / "send.bin"
    request.write_bytes(v2.SendMessageRequest(messages=[one_message()]).SerializeToString())
    command = [
        str(ghz()), "--insecure", "--protoset", str(described()),
        "--call", "apache.rocketmq.v2.MessagingService.SendMessage", "-B", str(request),
        "-m", '{"x-mq-client-id": "ghz", "x-mq-language": "GO"}', "-z", f"{seconds}s",
        "--connections", str(options.connections), "-c", str(options.concurrency),
        "--duration-stop", "wait", "-O", "json", peer.grpc,
    ]  # fmt: skip
    begin = [usage.cpu_s() for usage in peer.usages()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent = sum(usage.cpu_s() for usage in peer.usages()) - sum(begin)
    found: dict[str, Any] = json.loads(done.stdout)
    well = found["statusCodeDistribution"].get("OK", 0)
    shares = {each["percentage"]: each["latency"] / 1e6 for each in found["latencyDistribution"]}
    return {
        "rate": found["rps"], "p50": shares[50], "p99": shares[99], "cpu_us": spent / well * 1e6,
        "failed": found["count"] - well,
    }  # fmt: skip


def java_load() -> list[str]:
    """The command of the Java client's load."""
    source, library = HERE / "java" / "V5Load.java", java_library()
    folder = BUILD / f"v5-{jars.digest(source)}"
    if not folder.exists():
        made = folder.with_suffix(".new")
        made.mkdir(parents=True, exist_ok=True)
        jars.run(["javac", "-d", str(made), "-cp", f"{library}/*", str(source)])
        made.rename(folder)
    flags = ["-Xms512m", "-Xmx512m", f"-Drocketmq.log.root={BUILD}"]
    return ["java", *flags, "-cp", f"{library}/*:{folder}", "V5Load"]


def load_by_java(peer: V5, seconds: int, options: argparse.Namespace) -> Row:
    """One run of the official Java client."""
    command = [*java_load(), peer.grpc, TOPIC, str(seconds), str(options.concurrency)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        begin = end = 0.0
        row: Row = {}
        for line in child.stdout:
            now = sum(usage.cpu_s() for usage in peer.usages())
            if line.startswith("go"):
                begin = now
            elif line.startswith("end"):
                end = now
            elif line.startswith("{"):
                row = json.loads(line)
    row["cpu_us"] = (end - begin) / max(1, row.pop("messages")) * 1e6
    return row


class GrpcLine(Line):
    """A connection of calls."""

    well_count = 0
    """Answers that say that the message is stored."""

    def answers(self, data: bytes) -> tuple[int, int]:
        """Streams that were ended, each by a frame of header fields."""
        at = count = 0
        while len(data) - at >= frames.FRONT_SIZE:
            size_kind, flags, _ = frames.FRAME_HEADER.unpack_from(data, at)
            end = at + frames.FRONT_SIZE + (size_kind >> 8)
            if end > len(data):
                break
            kind = size_kind & 0xFF
            if kind == FrameKind.DATA:
                self.well_count += data.count(STORED, at, end) == 2  # in all, and of the message
            count += kind == FrameKind.HEADERS and bool(flags & frames.END_STREAM)
            at = end
        return at, count


def load_by_ready_calls(peer: V5, seconds: int, options: argparse.Namespace) -> Row:
    """Connections of some thousand calls each, one set after the other."""
    pieces = list(calls(is_signed=False))
    ready = [pieces[at] + pieces[at + 1] for at in range(0, len(pieces), 2)]
    ready[0] = GREETING + ready[0]
    window = max(1, options.concurrency // options.connections)
    ways: list[GrpcLine] = []
    before = sum(usage.cpu_s() for usage in peer.usages())
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        begun = [GrpcLine(peer.grpc, ready, window) for _ in range(options.connections)]
        drive(begun)
        ways += begun
    span_s = time.perf_counter() - begin
    spent = sum(usage.cpu_s() for usage in peer.usages()) - before
    well = sum(way.well_count for way in ways)
    shares = statistics.quantiles([each for way in ways for each in way.took_s], n=100)
    return {
        "rate": well / span_s, "p50": shares[49] * 1e3, "p99": shares[98] * 1e3,
        "cpu_us": spent / max(1, well) * 1e6, "failed": len(ready) * len(ways) - well,
    }  # fmt: skip


LOADS = {"ghz": load_by_ghz, "java": load_by_java, "ready": load_by_ready_calls}


def side_by_side(options: argparse.Namespace) -> None:
    """All cells, each broker in turn."""
    brokers = [name for name in PEERS if name in options.brokers.split(",")]
    peers = {name: PEERS[name]() for name in brokers}
    rows = []
    try:
        for peer in peers.values():
            peer.start()
            create_topic(peer)
        for cell in CELLS:
            if cell not in options.only.split(","):
                continue
            for name, peer in peers.items():
                LOADS[cell](peer, options.warm, options)
                found = LOADS[cell](peer, options.seconds, options)
                cpu_us = found["cpu_us"]
                rows.append({
                    "load": cell, "broker": name, "calls/s": f"{found['rate']:,.0f}",
                    "cpu us/call": f"{cpu_us:.0f}", "a second and core": f"{1e6 / cpu_us:,.0f}",
                    "p50 ms": f"{found['p50']:.2f}", "p99 ms": f"{found['p99']:.2f}",
                    "failed": found["failed"],
                })  # fmt: skip
    finally:
        for peer in peers.values():
            peer.stop()
    print(table(rows))


# -- the core alone ------------------------------------------------------------------------------


def calls(*, is_signed: bool) -> Iterator[bytes]:
    """Frames of calls: all with one block of header fields, or each with a block of its own."""
    encoder = Encoder()
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", SEND), (":authority", "127.0.0.1:8081"),
        ("content-type", "application/grpc"), ("user-agent", "grpc-java-netty/1.68.0"),
        ("te", "trailers"), ("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "JAVA"),
    ]  # fmt: skip
    message = one_message()
    for nth in range(CORE_CALLS):
        own = [
            ("x-mq-date-time", f"20261122T{nth // 100:06d}Z"),
            ("x-mq-request-id", f"{nth:08x}-aaaa-bbbb-cccc-dddddddddddd"),
            ("authorization", f"MQv2-HMAC-SHA1 Credential=, Signature={nth // 100:040X}"),
        ]
        block = encoder.encode(fields + own if is_signed else fields)
        message.system_properties.message_id = f"01{nth:030X}"
        data = v2.SendMessageRequest(messages=[message]).SerializeToString()
        framed = b"\0" + len(data).to_bytes(4, "big") + data
        number = 2 * nth + 1
        yield frames.encode_frame(
            FrameKind.HEADERS, block, flags=frames.END_HEADERS, stream_id=number
        )
        yield frames.encode_frame(FrameKind.DATA, framed, flags=frames.END_STREAM, stream_id=number)


class GrpcRig(Rig):
    """A broker with a connection of a v5 client."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        front = GrpcFront(
            GuestClients(self.core),
            FrontOptions(endpoint=("127.0.0.1", 8081), body_size_max=4 << 20),
        )
        self.core.speaks(Wire.GRPC, front)
        self.core.disconnected(1, self.now_ms)
        self.core.connected(1, "127.0.0.1", 40_001, self.now_ms, Wire.GRPC)
        self.core.broker.topics.create_from_template(
            TOPIC, template="TBW102", queues_count=8, is_unit=False, now_ms=self.now_ms
        )
        self.feed(GREETING)


def one_round(kind: str, burst: int) -> float:
    """CPU time of one thread a call, in microseconds."""
    pieces = list(calls(is_signed=kind == "signed"))
    bursts = [b"".join(pieces[at : at + 2 * burst]) for at in range(0, len(pieces), 2 * burst)]
    with tempfile.TemporaryDirectory() as folder:
        rig = GrpcRig(folder)
        gc.collect()
        gc.disable()
        begin = time.thread_time()
        for each in bursts:
            rig.feed(each)
        took = time.thread_time() - begin
        gc.enable()
        assert b"".join(rig.heard).count(b"grpc-status\x010") == CORE_CALLS
    return took / CORE_CALLS * 1e6


def in_process(source: str, kind: str, burst: int) -> float:
    """The same of the code in a source folder."""
    command = [sys.executable, __file__, "--core", "--one", kind, "--burst", str(burst)]
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def core_alone(burst: int, against: str | None) -> None:
    """A table of our core; beside that of another checkout, whose rounds take turns with ours."""
    sources = {"": str(HERE.parent / "src")}
    if against is not None:
        sources["other "] = str(Path(against).resolve())
    rows = []
    for kind in KINDS:
        spans: dict[str, list[float]] = {name: [] for name in sources}
        for _ in range(CORE_ROUNDS):
            for name, source in sources.items():
                spans[name].append(in_process(source, kind, burst))
        row: Row = {"headers": kind, "burst": burst}
        for name, found in spans.items():
            row[f"{name}least us"] = f"{min(found):.1f}"
            row[f"{name}median us"] = f"{statistics.median(found):.1f}"
        if against is not None:
            row["ratio"] = f"{min(spans['']) / min(spans['other ']):.2f}"
        rows.append(row)
    print(table(rows))


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", action="store_true")
    parser.add_argument("--burst", type=int, default=16)
    parser.add_argument("--against", metavar="SRC", help="the src folder of another checkout")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--only", default=",".join(CELLS))
    parser.add_argument("--brokers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args()
    if options.one:
        print(one_round(options.one, options.burst))
        return
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    if options.core:
        core_alone(options.burst, options.against)
    else:
        side_by_side(options)


if __name__ == "__main__":
    main()
