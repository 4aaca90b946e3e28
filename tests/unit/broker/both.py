"""Two brokers that get the same input: one serves what it can on the fast path, the other one
everything on the general path. Without a compiled lane both take the general path."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Hold, Replace, Send, Sync
from escrowmq.base.measure import MetricFamily
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import encode_properties
from escrowmq.lane.native import RequestsLane, requests_lane
from escrowmq.testing.disk import SimDisk

START_MS = 1_700_000_000_000
TOPICS = ("Orders", "Bills", "Odd")
PLAIN = {"UNIQ_KEY": "0A000001ABCD18B4AAC2000000000001", "WAIT": "true"}

Chunk = tuple[int, bytes]
"""A connection, and what comes over it in one read."""

_MENDING_STEPS = 30


class Side:
    """A broker that goes one of these ways, and all that is seen of it."""

    def __init__(
        self,
        *,
        is_fast: bool,
        files: Mapping[str, bytes] = MappingProxyType({}),
        is_sync_flush: bool = False,
        address: str = "10.0.0.1",
        peers: str = "10.0.0.9",
        **settings: Any,
    ) -> None:
        self.disk = SimDisk()
        self._address, self._peers = address, peers
        self._is_sync_flush = is_sync_flush
        self.waited_ms = 0
        """For so long each input waits to be read."""
        self.holds_syncs = False
        self.held: Sync | None = None
        """The sync that is under way, if it is kept so."""
        self._is_fast = is_fast
        self.now_ms = START_MS
        self.heard: list[tuple[int, bytes]] = []
        self.closed: list[tuple[int, str]] = []
        self.open(files, **settings)

    def open(self, files: Mapping[str, bytes] = MappingProxyType({}), **settings: Any) -> None:
        """Start the broker on what its disk holds."""
        for path, data in files.items():
            self.disk.replace(path, data)
        self.core = BrokerCore(
            self.disk,
            BrokerSettings(**settings),
            StoreSettings(
                log_segment_size=64 * 1024, queue_segment_size=20 * 40, index_slots_count=64,
                index_entries_max=300, reserve_size=0, is_sync_flush=self._is_sync_flush,
            ),
            address=(self._address, 10_911),
            ha_address="10.0.0.1:10912",
            chance=random.Random(5),
        )  # fmt: skip
        # An input that took several turns would be several op records, and several writes.
        self.core.remoting.served_at_once_max = 1_000_000
        if not self._is_fast:
            self.core.remoting.fast_path = None
            self.core.remoting.pulls = None
        self.core.open(self.now_ms)
        for peer in (1, 2):
            self.core.connected(peer, self._peers, 40_000 + peer, self.now_ms)
        self.perform()

    def perform(self) -> None:
        while effects := self.core.take_effects():
            for effect in effects:
                match effect:
                    case Send(peer, chunks):
                        self.heard.append((peer, b"".join(chunks)))
                    case Sync():
                        assert self.held is None, "one at a time"
                        self.held = effect
                        if not self.holds_syncs:
                            self._sync()
                    case Hold(peer):
                        self.core.receive(peer, b"", self.now_ms)
                    case Replace(path, data):
                        self.disk.replace(path, data)
                    case Close(peer, reason):
                        self.closed.append((peer, reason))
                    case _:
                        pass

    def _sync(self) -> None:
        sync, self.held = self.held, None
        assert sync is not None
        for file in sync.files:
            file.sync()
        self.core.sync_finished(sync.log_offset, self.now_ms)

    def let_sync(self) -> None:
        """The sync that was held is done, and so are those that follow, unless they are held."""
        self._sync()
        self.perform()

    def fail_sync(self) -> None:
        self.held = None
        self.core.sync_failed("asked to fail", self.now_ms)
        self.perform()

    def feed(self, chunk: Chunk) -> None:
        peer, data = chunk
        self.core.receive(peer, data, self.now_ms, self.waited_ms)
        self.perform()

    def pass_time(self, span_ms: int) -> None:
        self.now_ms += span_ms
        if self.core.wake_at_ms() <= self.now_ms:
            self.core.wake(self.now_ms)
            self.perform()

    def figures(self) -> list[MetricFamily]:
        return self.core.measure(self.now_ms)

    def files(self) -> dict[str, bytes]:
        self.core.close(self.now_ms)
        return {name: bytes(file.live) for name, file in self.disk.files.items()}

    @property
    def served_count(self) -> int:
        fast_path = self.core.remoting.fast_path
        return fast_path.served_count if fast_path is not None else 0


class Watched:
    """The native lane of one broker, with all calls of it: arguments and results by function."""

    def __init__(self, side: Side) -> None:
        assert requests_lane is not None
        self.calls: dict[str, list[tuple[tuple[Any, ...], Any]]] = {}
        fast_path = side.core.remoting.fast_path
        assert fast_path is not None
        functions = requests_lane._asdict().items()
        fast_path.lane = RequestsLane(*(self._watched(name, each) for name, each in functions))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = self.calls[name] = []

        def call(*given: Any) -> Any:
            found = function(*given)
            calls.append((given, found))
            return found

        return call

    def clear(self) -> None:
        for calls in self.calls.values():
            calls.clear()

    def results(self, name: str) -> list[Any]:
        return [found for _, found in self.calls[name]]


class Both:
    """The same input for both of them; whatever differs is an error at once."""

    def __init__(self, **settings: Any) -> None:
        self.fast, self.general = (Side(is_fast=s, **settings) for s in (True, False))
        self.sides = [self.fast, self.general]

    def feed(self, *chunks: Chunk) -> list[Command]:
        """What was answered to the last of them."""
        heard = b""
        for chunk in chunks:
            for side in self.sides:
                side.feed(chunk)
            heard = b"".join(data for _, data in self.fast.heard)
            self._compare()
        return FrameReader().read_commands(heard)

    def hold_syncs(self) -> None:
        """Syncs are under way until they are let be done, or fail."""
        for side in self.sides:
            side.holds_syncs = True

    def let_sync(self) -> list[Command]:
        """What is answered when the sync is done that is under way."""
        return self._each(Side.let_sync)

    def fail_sync(self) -> list[Command]:
        """The same when it fails."""
        return self._each(Side.fail_sync)

    def lose(self, peer: int) -> list[Command]:
        """A connection is gone; another one with its number is there."""

        def lose(side: Side) -> None:
            side.core.disconnected(peer, side.now_ms)
            side.core.connected(peer, "10.0.0.9", 40_000 + peer, side.now_ms)
            side.perform()

        return self._each(lose)

    def _each(self, do: Callable[[Side], None]) -> list[Command]:
        for side in self.sides:
            do(side)
        heard = b"".join(data for _, data in self.fast.heard)
        self._compare()
        return FrameReader().read_commands(heard)

    @property
    def is_syncing(self) -> bool:
        return self.fast.held is not None

    def mend(self) -> None:
        """Have what a failed sync may have lost be written again, in its time."""
        for _ in range(_MENDING_STEPS):
            if not self.fast.core.write_refusal_reason():
                break
            if self.is_syncing:
                self.let_sync()
            else:
                self.pass_time(1_000)

    def _compare(self) -> None:
        for side in self.sides:
            assert (side.held is None) == (self.fast.held is None)
            if side.held is not None and self.fast.held is not None:
                assert side.held.log_offset == self.fast.held.log_offset
            assert side.heard == self.fast.heard
            assert side.closed == self.fast.closed
        for side in self.sides:
            side.heard.clear()

    def pass_time(self, span_ms: int) -> list[Command]:
        return self._each(lambda side: side.pass_time(span_ms))

    def restart(self, files: Mapping[str, bytes], **settings: Any) -> None:
        """End all of them, and start them with these settings."""
        for side in self.sides:
            side.core.close(side.now_ms)
            side.disk.restart()
            side.open(files, **settings)

    def forget(self) -> None:
        """As when so many halves came since that none before is remembered."""
        for side in self.sides:
            side.core.transactions.engine.halves.recent.clear()

    def end(self) -> None:
        for side in self.sides[1:]:
            assert self.fast.figures() == side.figures()
        fast = self.fast.files()
        for side in self.sides[1:]:
            others = side.files()
            assert fast.keys() == others.keys()
            assert [name for name in fast if fast[name] != others[name]] == []


def frame(
    code: int, ext: dict[str, str], body: bytes = b"", *, opaque: int = 7, flag: int = 0,
    is_binary: bool = True,
) -> bytes:  # fmt: skip
    command = Command(
        code=code, opaque=opaque, flag=flag, version=479, ext=ext, body=body, is_binary=is_binary
    )
    return encode_command(command)


def fields(properties: str, topic: str = "Orders", **changed: str) -> dict[str, str]:
    names = "abcdefghijkmn"
    values = ["load", topic, "TBW102", "4", "0", "0", str(START_MS), "0", properties, "0", "false",
              "false", "broker-a"]  # fmt: skip
    return dict(zip(names, values, strict=True)) | changed


def send(
    properties: dict[str, str] | str = PLAIN, body: bytes = b"body", *, topic: str = "Orders",
    opaque: int = 7, flag: int = 0, is_binary: bool = True, code: int = Request.SEND_MESSAGE_V2,
    **changed: str,
) -> bytes:  # fmt: skip
    text = properties if isinstance(properties, str) else encode_properties(properties).decode()
    ext = {name: value for name, value in fields(text, topic, **changed).items() if value != "-"}
    return frame(code, ext, body, opaque=opaque, flag=flag, is_binary=is_binary)


def pull(offset: int, *, queue_id: int = 0, opaque: int = 9) -> bytes:
    ext = {
        "consumerGroup": "readers", "topic": "Orders", "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": "15000", "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    return frame(Request.PULL_MESSAGE, ext, opaque=opaque)


HALF = {**PLAIN, "TRAN_MSG": "true", "PGROUP": "load"}


class Begun(NamedTuple):
    """A half as its sender knows it."""

    queue_offset: int
    log_offset: int
    key: str


def begin(both: Both, *frames: bytes, peer: int = 1) -> list[Begun]:
    """Send halves; where they are."""
    return _begun(both.feed((peer, b"".join(frames))))


def begun_of(heard: bytes) -> list[Begun]:
    """Where halves are, by what was answered to them."""
    return _begun(FrameReader().read_commands(heard))


def _begun(replies: list[Command]) -> list[Begun]:
    found = []
    for reply in replies:
        ext = reply.ext or {}
        log_offset = int(ext["msgId"][16:], 16)
        found.append(Begun(int(ext["queueOffset"]), log_offset, ext["transactionId"]))
    return found


def end(
    half: Begun, verdict: str = "8", *, flag: int = 2, is_binary: bool = True, **changed: str
) -> bytes:
    ext = {
        "producerGroup": "load", "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset), "commitOrRollback": verdict,
        "fromTransactionCheck": "false", "msgId": half.key, "transactionId": half.key,
        "bname": "broker-a", "topic": "Orders",
    } | changed  # fmt: skip
    ext = {name: value for name, value in ext.items() if value != "-"}
    return frame(Request.END_TRANSACTION, ext, opaque=3, flag=flag, is_binary=is_binary)


def half(number: int, properties: dict[str, str] | None = None, *, is_binary: bool = True) -> bytes:
    key = f"0A000001ABCD18B4AAC20000{number:08X}"
    return send({**HALF, "UNIQ_KEY": key, **(properties or {})}, f="4", is_binary=is_binary)
