from __future__ import annotations

import datetime as dt
import time

import pytest

from escrowmq.errors import RouteMissing, UsageError
from escrowmq.integrations.outbox import expiry, tables
from escrowmq.integrations.outbox.steps import Steps, run_steps

from .scripted import LITE, Base

DAY_MS = 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def forget(base: Base, *, days: int = 7, clock_ms: int = 0, needed: tuple[str, ...] = ()) -> int:
    steps = expiry.forget_markers(
        LITE, keep_ms=days * DAY_MS, now_ms=clock_ms or now_ms(), needed=needed, brokers={}
    )
    return run_steps(steps, base.execute)


def test_what_is_old_and_not_needed_goes() -> None:
    base = Base()
    base.put(tables.NAME_ID, "mine")
    ages = {f"{n:016X}": 6 if n % 3 == 0 else 8 for n in range(2_000)}
    for key, days in ages.items():
        base.put(key, "commit", made_ms=now_ms() - days * DAY_MS)
    needed = tuple(f"{n:016X}" for n in range(0, 2_000, 7))
    gone = forget(base, needed=needed)
    left = {key for key, days in ages.items() if days == 6} | set(needed)
    assert set(base.all()) == left | {tables.NAME_ID}
    assert gone == len(ages) - len(left)
    assert forget(base, needed=needed) == 0


def test_clocks_that_do_not_agree_delete_nothing() -> None:
    base = Base()
    base.put("0" * 16, "commit", made_ms=now_ms() - 8 * DAY_MS)
    for apart_ms in (-2 * DAY_MS, 2 * DAY_MS, expiry.CLOCKS_APART_MAX_MS + 5_000):
        with pytest.raises(UsageError, match="nothing was deleted"):
            forget(base, clock_ms=now_ms() + apart_ms)
    assert len(base.all()) == 1


def test_a_day_is_the_least_that_markers_are_kept() -> None:
    with pytest.raises(UsageError, match="is required"):
        forget(Base(), days=0)


def test_handled_messages_go_by_their_age() -> None:
    base = Base()
    with base.connection:
        for n in range(1_200):
            made_ms = now_ms() - (8 if n % 2 else 6) * DAY_MS
            base.connection.execute(
                f"insert into {tables.HANDLED} values ('g', ?, ?)", (str(n), made_ms)
            )
    steps = expiry.forget_handled(LITE, keep_ms=7 * DAY_MS, now_ms=now_ms())
    assert run_steps(steps, base.execute) == 600
    with pytest.raises(UsageError):
        run_steps(expiry.forget_handled(LITE, keep_ms=-1, now_ms=now_ms()), base.execute)


def test_a_span_is_a_timedelta() -> None:
    assert expiry.timedelta_ms(dt.timedelta(days=1)) == 86_400_000
    with pytest.raises(UsageError, match="timedelta"):
        expiry.timedelta_ms(7)  # type: ignore[arg-type]


def test_rows_of_brokers_are_no_markers_and_hold_all_back() -> None:
    base = Base()
    base.put(tables.NAME_ID, "mine")
    base.put("0" * 16, "commit")
    base.put("broker:b", "b", made_ms=now_ms() - 10 * DAY_MS)

    def steps(gone: tuple[str, ...] = (), **brokers: int) -> Steps[int]:
        return expiry.forget_markers(
            LITE, keep_ms=7 * DAY_MS, now_ms=now_ms(), needed=(), brokers=brokers, gone=gone
        )

    with pytest.raises(RouteMissing, match="no answer from b"):
        run_steps(steps(a=0), base.execute)
    with pytest.raises(RouteMissing, match="has begun an empty log since"):
        run_steps(steps(b=now_ms() - 9 * DAY_MS), base.execute)
    with pytest.raises(UsageError, match="Nothing was deleted"):
        run_steps(steps(("b",), a=0, b=0), base.execute)
    assert len(base.all()) == 3
    assert run_steps(steps(a=0, b=now_ms() - 11 * DAY_MS), base.execute) == 1
    assert base.all() == {tables.NAME_ID: "mine", "broker:b": "b"}
    assert run_steps(steps(("b",), b=now_ms()), base.execute) == 0
    assert run_steps(steps(b=now_ms()), base.execute) == 0, "the new one counts from now on"
    assert run_steps(steps(("b", "never noted"), a=0), base.execute) == 0
    assert base.all() == {tables.NAME_ID: "mine", "broker:b": "b"}
    assert run_steps(steps(a=0), base.execute) == 0, "it need not be named again"
    assert run_steps(steps(b=now_ms()), base.execute) == 0
    with pytest.raises(RouteMissing, match="no answer from b"):  # it was back meanwhile
        run_steps(steps(a=0), base.execute)


def test_markers_made_about_when_a_broker_was_declared_gone_stay_while_it_is_unreachable() -> None:
    """Processes that had seen its row may have sent to a broker of that name after that."""
    base, gone_ms = Base(), now_ms() - 10 * DAY_MS
    base.put("broker:b", "b", made_ms=-gone_ms)
    near_ms = expiry.GONE_DOUBT_MS - 1_000
    for key, made_ms in enumerate((-2 * near_ms, -near_ms, 0, near_ms, 2 * near_ms)):
        base.put(f"{key:016X}", "commit", made_ms=gone_ms + made_ms)

    def forget_naming(*gone: str, **brokers: int) -> int:
        steps = expiry.forget_markers(
            LITE, keep_ms=7 * DAY_MS, now_ms=now_ms(), needed=(), brokers=brokers, gone=gone
        )
        return run_steps(steps, base.execute)

    assert forget_naming() == 2
    assert sorted(base.all()) == [f"{key:016X}" for key in (1, 2, 3)] + ["broker:b"]
    assert forget_naming("b") == 3, "it was named again"
