from __future__ import annotations

from escrowmq.base.fixed_limits import BROKER_SILENT_MS
from escrowmq.codec.routes import TableVersion
from escrowmq.registry.live_brokers import LiveBrokers, RegisteringBroker

VERSION = TableVersion(1, 0, 1)


def broker(address: str, timeout_ms: int | None = None) -> RegisteringBroker:
    return RegisteringBroker(
        cluster="c", address=address, name="b", broker_id=0, timeout_ms=timeout_ms
    )


def test_who_is_silent_for_as_long_as_it_said_is_gone() -> None:
    live = LiveBrokers()
    live.add(broker("a"), VERSION, peer=1, now_ms=0)
    live.add(broker("b", 500), VERSION, peer=2, now_ms=0)
    assert live.timed_out(500) == []
    assert live.timed_out(501) == [(("c", "b"), 2)]
    assert live.timed_out(BROKER_SILENT_MS) == [(("c", "b"), 2)]
    live.note_heartbeat("c", "b", BROKER_SILENT_MS)
    live.note_heartbeat("c", "unknown", BROKER_SILENT_MS)
    assert live.timed_out(BROKER_SILENT_MS + 1) == [(("c", "a"), 1)]


def test_a_clock_that_is_set_forward_makes_nobody_silent() -> None:
    live = LiveBrokers()
    live.add(broker("a", 500), VERSION, peer=1, now_ms=0)
    live.clock_leapt(10_000)
    assert live.timed_out(10_500) == []
    assert live.timed_out(10_501) == [(("c", "a"), 1)]


def test_a_broker_is_found_by_its_address_and_by_its_connection() -> None:
    live = LiveBrokers()
    live.add(broker("a"), VERSION, peer=1, now_ms=0)
    live.add(broker("b"), VERSION, peer=1, now_ms=0)
    assert live.version_of("c", "a") == VERSION
    assert live.version_of(None, "a") is None
    assert live.brokers_on_connection(1) == [("c", "a"), ("c", "b")]
    live.remove("c", "a")
    assert (live.get("c", "a"), len(live)) == (None, 1)
