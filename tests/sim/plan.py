"""What one seed means: settings, load, and which faults are fired how often.

Each kind of fault is on in about half of the seeds, so that rare combinations are met as well as
worlds in which a single thing goes wrong."""

from __future__ import annotations

import random

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.store_settings import StoreSettings


class Habits(msgspec.Struct, kw_only=True, frozen=True):
    """How producers, operators and the machine's clock use, and misuse, what transactions offer.
    Shares are of transactions or messages, chances per occasion, times in ms."""

    joined_share: float
    """Transactions of several messages."""
    messages_max: int
    count_share: float
    """Ends that say how many messages the transaction has."""
    id_share: float
    """Halves whose producer asks for a signed id."""
    by_id_chance: float
    """Ends by signed id, sent through anybody's connection."""
    delay_share: float
    order_share: float
    order_keys_count: int
    rival_chance: float
    """Another process of the group sends the other verdict at the same moment."""
    stale_chance: float
    """After its start a producer sends an end of an earlier life."""
    admin_every_ms: int
    grow_at_ms: int
    """When a topic gets more queues; 0 for never."""
    vandal_every_ms: int
    jump_every_ms: int
    jumps_ms: tuple[int, ...]
    """By how much the machine's clock jumps."""
    reserved_hours: int
    pending_max: int
    has_popper: bool
    tenant_every_ms: int
    """Between two acts of somebody whose topic is deleted and made again."""
    shortage_every_ms: int
    """Between two times at which the process has no descriptors left."""
    stranger_every_ms: int
    """Between two acts of somebody whose values are odd."""
    ahead_at_ms: int
    """When the clock goes days ahead, to be set right a while later; 0 for never."""
    ahead_ms: int
    narrow_at_ms: int
    """When a topic loses a queue; 0 for never."""
    far_share: float
    """Messages with a time of delivery that name one hours or days ahead."""


_SDK_EVERY = 4


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
    queue_segment_size: int
    reserve_size: int
    sync_ms: int
    """The longest time that a sync takes on a healthy day."""
    habits: Habits

    @property
    def has_sdk(self) -> bool:
        """Whether clients take part that decide as the SDK does."""
        return self.seed % _SDK_EVERY == 1

    @property
    def queues_count(self) -> int:
        """Queues of every topic, before it grows."""
        return max(count for _, count in self.topics)

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
            pending_max=self.habits.pending_max,
            revive_queues_count=1,
        )

    def store_settings(self) -> StoreSettings:
        """Small files, so that they roll."""
        return StoreSettings(
            is_sync_flush=self.is_sync_flush,
            log_segment_size=32_768,
            queue_segment_size=self.queue_segment_size,
            index_slots_count=32,
            index_entries_max=200,
            reserve_size=self.reserve_size,
            flush_interval_ms=500,
            deletes_forcibly=False,
            body_size_max=8_192,
            delete_when=_EVERY_HOUR,
            reserved_hours=self.habits.reserved_hours,
        )


_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))


def draw(seed: int, *, minutes: int | None = None) -> Plan:
    """The world of a seed."""
    dice = _Dice(seed)
    chance, maybe, every = dice.chance, dice.maybe, dice.every
    chaos_minutes = chance.randint(6, 14) if minutes is None else minutes
    groups = chance.randint(1, 3)
    return Plan(
        seed=seed,
        is_sync_flush=chance.random() < 0.65,
        chaos_ms=chaos_minutes * _MINUTE_MS,
        transactions_count=chaos_minutes * chance.randint(3, 8),
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
        skew_ms=chance.choice((0, 0, _DAY_MS)),
        offline_every_ms=every(4, 15),
        kill_every_ms=every(3, 12),
        power_every_ms=every(3, 12),
        stop_anywhere_chance=chance.choice((0.0, 0.5, 1.0)),
        pause_every_ms=every(5, 15, 0.3),
        full_every_ms=every(0.7, 4, 0.4),
        sync_failure_every_ms=every(8, 20, 0.3),
        slow_sync_every_ms=every(3, 10, 0.4),
        knows_boot=chance.random() < 0.5,
        queue_segment_size=chance.choice((200, 1_000)),
        reserve_size=chance.choice((0, 2_048, 16_384)),
        sync_ms=chance.choice((3, 30, 300)),
        habits=_draw_habits(dice, chaos_minutes * _MINUTE_MS),
    )


class _Dice:
    """Chance of one plan: each kind of thing is on in a share of the worlds."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed ^ 0x5EED)

    def maybe(self, value: float, share: float = 0.5) -> float:
        """The chance of a fault that is on in a share of the worlds."""
        chance = self.chance
        return value * chance.choice((0.3, 1.0, 2.0)) if chance.random() < share else 0.0

    def every(self, least_minutes: float, most_minutes: float, share: float = 0.5) -> int:
        """The mean time between two of a kind; 0 where it is off."""
        if self.chance.random() >= share:
            return 0
        return int(self.chance.uniform(least_minutes, most_minutes) * _MINUTE_MS)


def _draw_habits(dice: _Dice, chaos_ms: int) -> Habits:
    chance, maybe, every = dice.chance, dice.maybe, dice.every
    jumps = chance.choice(((-90_000,), (_DAY_MS,), (_DAY_MS, -90_000)))
    return Habits(
        joined_share=maybe(0.3, 0.7),
        messages_max=chance.choice((2, 4, 9)),
        count_share=chance.choice((0.0, 0.5, 1.0)),
        id_share=maybe(0.4, 0.6),
        by_id_chance=chance.choice((0.5, 1.0)),
        delay_share=maybe(0.2),
        order_share=maybe(0.4),
        order_keys_count=chance.choice((1, 3)),
        rival_chance=maybe(0.1),
        stale_chance=maybe(0.5),
        admin_every_ms=every(0.2, 1.5, 0.6),
        grow_at_ms=chance.randrange(chaos_ms) if chance.random() < 0.5 else 0,
        vandal_every_ms=every(0.2, 2, 0.4),
        jump_every_ms=every(2, 8, 0.35),
        jumps_ms=jumps,
        reserved_hours=chance.choice((1, 72)),
        pending_max=chance.choice((3, 2_000_000, 2_000_000, 2_000_000)),
        has_popper=chance.random() < 0.25,
        tenant_every_ms=int(every(0.05, 0.5, 0.4)),
        shortage_every_ms=every(0.5, 4, 0.35),
        stranger_every_ms=every(0.03, 0.3, 0.4),
        ahead_at_ms=chance.randrange(chaos_ms // 2) if chance.random() < 0.2 else 0,
        ahead_ms=chance.choice((3, 30)) * _DAY_MS,
        narrow_at_ms=chance.randrange(chaos_ms) if chance.random() < 0.3 else 0,
        far_share=maybe(0.5, 0.5),
    )
