"""What one seed means: settings, load, and which faults are fired how often.

Each kind of fault is on in about half of the seeds, so that rare combinations are met as well as
worlds in which a single thing goes wrong."""

from __future__ import annotations

import random

import msgspec

from escrowmq.base.settings import BrokerSettings, StoreSettings


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """One world. Chances are per occasion, times in ms."""

    seed: int
    is_sync_flush: bool
    chaos_ms: int
    transactions_count: int
    topics: tuple[tuple[str, int], ...]
    producers: tuple[tuple[str, int], ...]
    """Groups and their members; the last group may go away for good."""
    has_lost_group: bool
    has_registry: bool
    checks_max: int
    check_interval_ms: int
    check_timeout_ms: int
    checks_in_flight_max: int
    # network
    usual_delay_ms: int
    late_chance: float
    split_chance: float
    cut_every_ms: int
    half_open_chance: float
    # producers
    two_way_chance: float
    end_lost_chance: float
    end_doubled_chance: float
    end_late_chance: float
    end_contradicted_chance: float
    request_doubled_chance: float
    answer_lost_chance: float
    answer_late_chance: float
    answer_unknown_chance: float
    answer_wrong_chance: float
    crash_chance: float
    immunity_chance: float
    skew_ms: int
    offline_every_ms: int
    # the broker and its disk
    kill_every_ms: int
    power_every_ms: int
    stop_anywhere_chance: float
    pause_every_ms: int
    full_every_ms: int
    sync_failure_every_ms: int
    slow_sync_every_ms: int
    knows_boot: bool
    sync_ms: int
    """The longest time that a sync takes on a healthy day."""

    def broker_settings(self, name_servers: str) -> BrokerSettings:
        """The broker's settings in this world."""
        return BrokerSettings(
            name="sim-broker",
            advertised_host="10.0.0.1",
            name_servers=name_servers,
            transaction_timeout_ms=self.check_timeout_ms,
            transaction_checks_max=self.checks_max,
            transaction_check_interval_ms=self.check_interval_ms,
            checks_in_flight_max=self.checks_in_flight_max,
            revive_queues_count=1,
        )

    def store_settings(self) -> StoreSettings:
        """Small files, so that they roll."""
        return StoreSettings(
            is_sync_flush=self.is_sync_flush,
            log_segment_size=32_768,
            queue_segment_size=1_000,
            index_slots_count=32,
            index_entries_max=200,
            reserve_size=16_384,
            flush_interval_ms=500,
            deletes_forcibly=False,
            body_size_max=8_192,
        )


_MINUTE_MS = 60_000


def draw(seed: int, *, minutes: int | None = None) -> Plan:
    """The world of a seed."""
    chance = random.Random(seed ^ 0x5EED)

    def maybe(value: float, share: float = 0.5) -> float:
        """The chance of a fault that is on in a share of the worlds."""
        return value * chance.choice((0.3, 1.0, 2.0)) if chance.random() < share else 0.0

    def every(least_minutes: float, most_minutes: float, share: float = 0.5) -> int:
        if chance.random() >= share:
            return 0
        return int(chance.uniform(least_minutes, most_minutes) * _MINUTE_MS)

    chaos_minutes = chance.randint(14, 30) if minutes is None else minutes
    groups = chance.randint(1, 3)
    return Plan(
        seed=seed,
        is_sync_flush=chance.random() < 0.65,
        chaos_ms=chaos_minutes * _MINUTE_MS,
        transactions_count=chaos_minutes * chance.randint(3, 9),
        topics=tuple((f"orders-{n}", chance.randint(1, 3)) for n in range(chance.randint(1, 2))),
        producers=tuple((f"group-{n}", chance.randint(1, 2)) for n in range(groups)),
        has_lost_group=groups > 1 and chance.random() < 0.3,
        has_registry=chance.random() < 0.25,
        checks_max=chance.choice((3, 5, 15)),
        check_interval_ms=chance.choice((5_000, 15_000, 30_000)),
        check_timeout_ms=chance.choice((2_000, 6_000)),
        checks_in_flight_max=chance.choice((1, 3, 256)),
        usual_delay_ms=chance.choice((2, 20, 200)),
        late_chance=maybe(0.02),
        split_chance=maybe(0.1),
        cut_every_ms=every(1, 6),
        half_open_chance=maybe(0.4),
        two_way_chance=chance.choice((0.2, 0.8, 1.0)),
        end_lost_chance=maybe(0.15),
        end_doubled_chance=maybe(0.15),
        end_late_chance=maybe(0.1),
        end_contradicted_chance=maybe(0.1),
        request_doubled_chance=maybe(0.05),
        answer_lost_chance=maybe(0.2),
        answer_late_chance=maybe(0.2),
        answer_unknown_chance=maybe(0.2),
        answer_wrong_chance=maybe(0.05),
        crash_chance=maybe(0.02),
        immunity_chance=maybe(0.1),
        skew_ms=chance.choice((0, 0, 86_400_000)),
        offline_every_ms=every(4, 15),
        kill_every_ms=every(3, 12),
        power_every_ms=every(3, 12),
        stop_anywhere_chance=chance.choice((0.0, 0.5, 1.0)),
        pause_every_ms=every(5, 15, 0.3),
        full_every_ms=every(5, 15, 0.4),
        sync_failure_every_ms=every(8, 20, 0.3),
        slow_sync_every_ms=every(3, 10, 0.4),
        knows_boot=chance.random() < 0.5,
        sync_ms=chance.choice((3, 30, 300)),
    )
