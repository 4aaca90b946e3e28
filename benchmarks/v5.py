"""SendMessage over gRPC: EscrowMQ, and RocketMQ's proxy with its broker, in one run.

    python benchmarks/v5.py [--only ghz,java] [--brokers escrowmq,java] [--seconds 10] [--warm 5]
                            [--connections 4] [--concurrency 64]
    python benchmarks/v5.py --core [--burst 16]     # our core alone: frames in, frames out

Loaded by ghz (a Go module, built by the first run) and by the official Java client of RocketMQ 5,
each broker right after the other. CPU is that of the broker's processes a call: of EscrowMQ's one,
of RocketMQ's proxy and broker together. Needs Go, Java and Maven; `--core` needs nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
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
from tests.interop.servers import free_port
from tests.v5.clients import java_library

from escrowmq.base.wire import Wire
from escrowmq.broker.guests import Guests
from escrowmq.http2 import frames
from escrowmq.http2.frames import Kind, Setting
from escrowmq.proxy.front import GrpcFront
from escrowmq.proxy.gen import v2
from escrowmq.proxy.shared import Options

HERE = Path(__file__).parent
TOPIC = "BenchV5"
BODY = b"x" * 128
CELLS = ("ghz", "java")
SEND = "/apache.rocketmq.v2.MessagingService/SendMessage"
CORE_CALLS = 6_000
CORE_ROUNDS = 9


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


LOADS = {"ghz": load_by_ghz, "java": load_by_java}


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
                rows.append({
                    "load": cell, "broker": name, "calls/s": f"{found['rate']:,.0f}",
                    "cpu us/call": f"{found['cpu_us']:.0f}", "p50 ms": f"{found['p50']:.2f}",
                    "p99 ms": f"{found['p99']:.2f}", "failed": found["failed"],
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
        yield frames.frame(Kind.HEADERS, block, flags=frames.END_HEADERS, stream_id=number)
        yield frames.frame(Kind.DATA, framed, flags=frames.END_STREAM, stream_id=number)


class GrpcRig(Rig):
    """A broker with a connection of a v5 client."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        front = GrpcFront(
            Guests(self.core), Options(endpoint=("127.0.0.1", 8081), body_size_max=4 << 20)
        )
        self.core.speaks(Wire.GRPC, front)
        self.core.lost(1, self.now_ms)
        self.core.connected(1, "127.0.0.1", 40_001, self.now_ms, Wire.GRPC)
        self.core.broker.topics.create_from(
            TOPIC, template="TBW102", queues_count=8, is_unit=False, now_ms=self.now_ms
        )
        room = frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 30})
        self.feed(frames.PREFACE + room + frames.window_update(0, 1 << 30))


def core_alone(burst: int) -> None:
    """CPU time of one thread a call."""
    rows = []
    for name, is_signed in (("alike", False), ("signed", True)):
        pieces = list(calls(is_signed=is_signed))
        bursts = [b"".join(pieces[at : at + 2 * burst]) for at in range(0, len(pieces), 2 * burst)]
        spans = []
        for _ in range(CORE_ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                rig = GrpcRig(folder)
                begin = time.process_time()
                for each in bursts:
                    rig.feed(each)
                spans.append((time.process_time() - begin) / CORE_CALLS * 1e6)
                assert b"".join(rig.heard).count(b"grpc-status\x010") == CORE_CALLS
        spans.sort()
        rows.append({
            "headers": name, "burst": burst, "least us": f"{spans[0]:.1f}",
            "median us": f"{spans[len(spans) // 2]:.1f}",
        })  # fmt: skip
    print(table(rows))


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", action="store_true")
    parser.add_argument("--burst", type=int, default=16)
    parser.add_argument("--only", default=",".join(CELLS))
    parser.add_argument("--brokers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    if options.core:
        core_alone(options.burst)
    else:
        side_by_side(options)


if __name__ == "__main__":
    main()
