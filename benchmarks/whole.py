"""What a whole broker takes for a message, kernel and all, from a load that is no limit: frames
that lie ready, so many of them in flight on each connection.

    python benchmarks/whole.py [--cells send,rich,batch,half,drain,...] [--windows 1,16,64]
                               [--rounds 5] [--connections 1] [--java] [--spin 200] [--nothing]
                               [--against ../before/src]

CPU of the broker's process a message, least of the rounds, with the native lane and without it
(ESCROWMQ_PURE=1); both brokers live through the whole run and take turns. `a second` is what one
core could do at that cost. `--java` adds Apache RocketMQ's broker, `--spin` one of ours that looks
so many microseconds for the next request before it sleeps, `--against` the broker of another tree.
`--nothing` adds two servers that do nothing but take requests in and answer as many bytes as the
broker does, one on its event loop and one in C (which needs `cc`): no broker can take less. A
transaction is a half, and once that is answered an END that wants no answer; the next half follows
at once. A drain is pulls of 32 messages, counted as messages. `trip` is the median from a part that
is sent to its last answer, of each in turn.
"""

from __future__ import annotations

import argparse
import platform
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core import READY, backlog, end_of
from peers import Java, Ours, Peer, Usage, is_open, wait_until

from escrowmq.codec.frame import FrameReader

_HERE = Path(__file__).parent
_WAIT_S = 60
_READ_SIZE = 1 << 20


class Pure(Ours):
    """Without the native lane."""

    name = "pure"

    def _spawn(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        return super()._spawn(command, **environment, ESCROWMQ_PURE="1")


class Spinning(Ours):
    """It looks for the next request before it sleeps."""

    name = "spinning"


class Before(Ours):
    """Of another tree."""

    name = "before"
    source = ""

    def _spawn(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        return super()._spawn(command, **environment, PYTHONPATH=self.source)


class Nothing(Peer):
    """No broker at all, on its event loop."""

    name = "nothing"

    def start(self) -> None:
        """Start, and wait until it lets somebody in."""
        self.usage = Usage(self._spawn(self._command()).pid)
        wait_until("the server that does nothing", lambda: is_open(self.broker))

    def _command(self) -> list[str]:
        return [sys.executable, str(_HERE / "nothing.py"), self.broker]


class NothingInC(Nothing):
    """No broker at all, and no Python."""

    name = "nothing-c"

    def _command(self) -> list[str]:
        made = self.folder / "nothing"
        subprocess.run(["cc", "-O2", "-o", str(made), str(_HERE / "nothing.c")], check=True)
        return [str(made), self.broker.rpartition(":")[2]]


def asking_for(size: int, frame: bytes) -> bytes:
    """What `Nothing` is to get for a frame: as long, and answered by so many bytes."""
    return frame[:4] + size.to_bytes(4, "big") + frame[8:]


class Line:
    """One connection, and the requests that go over it, so many at a time."""

    def __init__(self, address: str, frames: list[bytes], window: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parts = [frames[at : at + window] for at in range(0, len(frames), window)]
        self._sent = self._left = 0
        self._heard = b""
        self._sent_at = 0.0
        self.took_s: list[float] = []
        """From each part to its last answer."""
        self.heard_size = 0

    def send(self) -> bool:
        """Send the next part; False when there is none."""
        if self._sent == len(self._parts):
            return False
        part = self._parts[self._sent]
        self._sent += 1
        self._left = len(part)
        self._sent_at = time.perf_counter()
        self.socket.sendall(b"".join(part))
        return True

    def hear(self) -> bool:
        """Take in what came; whether the part is answered."""
        data = self._heard + self._receive()
        at, count = self.answers(data)
        self._heard = data[at:]
        self._left -= count
        if not self._left:
            self.took_s.append(time.perf_counter() - self._sent_at)
        return not self._left

    def _receive(self) -> bytes:
        data = self.socket.recv(_READ_SIZE)
        self.heard_size += len(data)
        return data

    def answers(self, data: bytes) -> tuple[int, int]:
        """Where the last whole answer ends, and how many there are."""
        at = count = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            at = end
            count += 1
        return at, count


class Transactions(Line):
    """Halves, each of which is ended once it is answered."""

    def __init__(self, address: str, frames: list[bytes], window: int) -> None:
        super().__init__(address, frames, window)
        self._reader = FrameReader()

    def hear(self) -> bool:
        """Take in what came, and end what is there."""
        replies = self._reader.read_commands(self._receive())
        self._left -= len(replies)
        if not self._left:
            self.took_s.append(time.perf_counter() - self._sent_at)
        self.socket.sendall(b"".join([end_of(reply, is_one_way=True) for reply in replies]))
        return not self._left


def drive(ways: Sequence[Line]) -> None:
    """Send all of it, and hear all answers."""
    with selectors.DefaultSelector() as selector:
        for line in ways:
            if line.send():
                selector.register(line.socket, selectors.EVENT_READ, line)
        while selector.get_map():
            ready = selector.select(_WAIT_S)
            if not ready:
                raise SystemExit(f"no answer within {_WAIT_S} s")
            for key, _ in ready:
                line = key.data
                if line.hear() and not line.send():
                    selector.unregister(line.socket)
                    line.socket.close()


def measure(
    peers: list[Peer], cell: str, window: int, given: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Microseconds of CPU a message, and of a trip, of each."""
    make, count = READY["half" if cell == "transaction" else cell]
    frames = list(make())
    messages = len(frames) * count * given.repeats
    if cell == "drain":
        for peer in peers:
            if not isinstance(peer, Nothing):
                drive([Line(peer.broker, list(backlog()), 64)])
    least = [float("inf")] * len(peers)
    trips: list[list[float]] = [[] for _ in peers]
    size = 0  # of an answer of ours, the peer that comes first
    for nth_round in range(given.rounds + 1):
        for nth, peer in enumerate(peers):
            before = peer.usage.cpu_s()
            does_nothing = isinstance(peer, Nothing)
            kind = Transactions if cell == "transaction" and not does_nothing else Line
            asked = [asking_for(size, frame) for frame in frames] if does_nothing else frames
            for _ in range(given.repeats):
                ways = [
                    kind(peer.broker, asked[at :: given.connections], window)
                    for at in range(given.connections)
                ]
                drive(ways)
                size = size or sum(line.heard_size for line in ways) // len(frames)
                trips[nth] += [each * 1e6 for line in ways for each in line.took_s]
            if nth_round:  # the first one makes the topic, and warms up
                took = (peer.usage.cpu_s() - before) / messages * 1e6
                least[nth] = min(least[nth], took)
    return least, [statistics.median(each) for each in trips]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default=",".join(READY))
    parser.add_argument("--windows", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--java", action="store_true")
    parser.add_argument("--spin", type=int, default=0)
    parser.add_argument("--nothing", action="store_true")
    parser.add_argument("--against", default="", help="the source folder of another tree")
    given = parser.parse_args()
    Before.source = given.against
    kinds: list[type[Peer]] = [Ours, Pure, *([Java] if given.java else [])]
    kinds += [
        *([Before] if given.against else []),
        *([Nothing, NothingInC] if given.nothing else []),
    ]
    settings: dict[str, Any] = {"autoCreateTopicEnable": "true"}
    peers = [kind(**settings) for kind in kinds]
    if given.spin:
        peers.append(Spinning(**settings, escrowSpinMicros=str(given.spin)))
    names = " | ".join(f"{peer.name} us" for peer in peers)
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    print(f"| cell | in flight | {names} | ratio | a second | trip us |")
    print(f"|---|---|{'---|' * (len(peers) + 3)}")
    try:
        for peer in peers:
            peer.start()
        for cell in given.cells.split(","):
            for window in map(int, given.windows.split(",")):
                least, trips = measure(peers, cell, window, given)
                texts = " | ".join(f"{each:.1f}" for each in least)
                ratio, rate = least[0] / least[1], 1e6 / least[0]
                told = ", ".join(f"{each:.0f}" for each in trips)
                print(
                    f"| {cell} | {window} | {texts} | {ratio:.2f} | {rate:,.0f} | {told} |",
                    flush=True,
                )
    finally:
        for peer in peers:
            peer.stop()


if __name__ == "__main__":
    main()
