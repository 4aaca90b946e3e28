"""Whatever a peer writes, a core does not raise: it answers, says nothing, or closes."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.core import Core
from escrowmq.base.effects import Close, Send
from escrowmq.base.fixed_limits import FRAME_SIZE_MAX
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.frame import FrameReader
from escrowmq.registry.core import HANDLERS, RegistryCore
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import START_MS, Exchange

from .corpus import CORPUS
from .frames import SEED, TALLY, codes, inputs, tries

CHUNK = 64 * 1024


class Unexpected(logging.Handler):
    """Notes the requests that failed in a way that nobody had foreseen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@pytest.fixture(autouse=True)
def unexpected() -> Iterator[None]:
    log, handler = logging.getLogger("escrowmq"), Unexpected()
    log.addHandler(handler)
    log.propagate = False
    yield
    log.removeHandler(handler)
    log.propagate = True
    assert handler.found == []


def broker() -> BrokerCore:
    settings = BrokerSettings(has_property_filter=True, allows_recall=True)
    exchange = Exchange(settings)
    exchange.create_topic("T", 2)
    client = exchange.connect()
    client.heartbeat(producer="PG", consumer="CG", topics={"T": "*"})
    client.send("T")
    client.prepare("T")
    return exchange.core


def registry() -> RegistryCore:
    return RegistryCore(NameServerSettings(), SimDisk(), started_ms=START_MS)


def both() -> tuple[BrokerCore, RegistryCore]:
    return broker(), registry()


def feed(core: Core, peer: int, data: bytes, now_ms: int) -> bool:
    """Whether RocketMQ is still there after the bytes; what it was sent must be whole frames."""
    core.receive(peer, data, now_ms)
    is_closed = False
    for effect in core.take_effects():
        if isinstance(effect, Close):
            assert effect.peer == peer
            is_closed = True
        elif isinstance(effect, Send):
            reader = FrameReader()
            assert reader.read_commands(b"".join(effect.chunks))
            assert reader.broken is None
    return not is_closed


def held_size(core: BrokerCore | RegistryCore, peer: int) -> int:
    if isinstance(core, BrokerCore):
        reader = core.remoting._readers.get(peer)
    else:
        reader = core._readers.get(peer)
    return len(reader._held) if reader is not None else 0


def drive(core: Core, known: list[int], seed: int) -> int:
    chance = random.Random(seed)
    peer, now_ms, count = 1_000, START_MS, 0
    core.connected(peer, "10.9.9.9", 5, now_ms)
    for _, data in zip(tries(4_000), inputs(chance, known), strict=False):
        count += 1
        now_ms += chance.randrange(20)
        if not feed(core, peer, data, now_ms) or chance.random() < 0.02:
            core.disconnected(peer, now_ms)
            core.take_effects()
            peer += 1
            core.connected(peer, "10.9.9.9", 5, now_ms)
        if chance.random() < 0.01:
            core.wake(now_ms)
            core.take_effects()
    TALLY["cores"] += count
    return count


def test_broker_survives_whatever_peers_write() -> None:
    assert drive(broker(), codes(), SEED) > 100


def test_name_server_survives_whatever_peers_write() -> None:
    assert drive(registry(), list(HANDLERS), SEED) > 100


@pytest.mark.parametrize("name", CORPUS)
def test_cores_survive_what_once_felled_one(name: str) -> None:
    for core in both():
        core.connected(77, "10.9.9.9", 5, START_MS)
        feed(core, 77, CORPUS[name], START_MS)
        core.wake(START_MS + 1)


@pytest.mark.parametrize("size", [FRAME_SIZE_MAX - 4, FRAME_SIZE_MAX - 3, 1 << 30, -1, 3])
def test_memory_held_for_a_peer_is_bounded_by_the_largest_frame(size: int) -> None:
    for core in both():
        core.connected(77, "10.9.9.9", 5, START_MS)
        is_there = feed(core, 77, size.to_bytes(4, "big", signed=True) + bytes(4), START_MS)
        assert is_there == (4 <= size <= FRAME_SIZE_MAX - 4)
        for _ in range(2 * FRAME_SIZE_MAX // CHUNK):
            if not is_there:
                break
            is_there = feed(core, 77, bytes(CHUNK), START_MS)
            assert held_size(core, 77) <= FRAME_SIZE_MAX + CHUNK
        assert not is_there
        feed(core, 77, bytes(CHUNK), START_MS)
        assert held_size(core, 77) <= FRAME_SIZE_MAX
