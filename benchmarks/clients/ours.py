"""Load by EscrowMQ's own client. Prints "go" when the counted part begins, "end" and one JSON line
at its end, as java/Load.java does.

    python benchmarks/clients/ours.py mode=send|transaction|drain nameserver=host:port topic=T
        size=128 threads=16 warm=3 seconds=10 count=1000000 face=plain|aio linger=0
        confirm=yes|no

face=aio has as many coroutines as there would be threads, in one thread. Without confirm, commits
are told in the background, as Java's client does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from loading import Drain, Meter, Plan, load

import escrowmq


def committed(_message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
    """Every check is answered with a commit."""
    return escrowmq.Outcome.COMMIT


def settings(plan: Plan) -> dict[str, Any]:
    """Of a producer."""
    check = committed if plan.mode == "transaction" else None
    return {"group": "load", "check": check, "compression": "", "linger_ms": plan.linger_ms,
            "confirms_commits": plan.confirms}  # fmt: skip


def produce(plan: Plan) -> None:
    """Threads that share one producer."""
    with escrowmq.Producer(plan.nameserver, **settings(plan)) as producer:

        def send() -> None:
            producer.send(plan.topic, plan.body)

        def commit() -> None:
            with producer.transaction(plan.topic, plan.body):
                pass

        load(plan, commit if plan.mode == "transaction" else send)


async def produce_async(plan: Plan) -> None:
    """Coroutines that share one producer."""
    async with escrowmq.aio.Producer(plan.nameserver, **settings(plan)) as producer:

        async def send() -> None:
            await producer.send(plan.topic, plan.body)

        async def commit() -> None:
            async with producer.transaction(plan.topic, plan.body):
                pass

        meter = Meter(plan)
        work = commit if plan.mode == "transaction" else send
        callers = [asyncio.create_task(_send_on(work, meter)) for _ in range(plan.callers)]
        await asyncio.sleep(max(0.0, meter.begin - time.perf_counter()))
        print("go", flush=True)
        await asyncio.gather(*callers)
        print("end", flush=True)
        meter.report()


async def _send_on(send: Callable[[], Awaitable[None]], meter: Meter) -> None:
    took, clock = meter.caller(), time.perf_counter
    begin, end = meter.begin, meter.end
    while (start := clock()) < end:
        try:
            await send()
        except Exception as error:  # noqa: BLE001 - counted and told
            meter.failures.append(f"{type(error).__name__}: {error}")
            continue
        if start >= begin:
            took.append(clock() - start)


def drain(plan: Plan) -> None:
    """A consumer with a handler."""
    counter = Drain(plan)

    def handle(batch: list[escrowmq.Delivery]) -> None:
        counter.took(len(batch))

    group = f"drain{time.time_ns()}"
    with escrowmq.Consumer(
        plan.nameserver, group=group, topic=plan.topic, handler=handle, batch_max=32
    ):
        counter.wait()


async def drain_async(plan: Plan) -> None:
    """A consumer with a coroutine function as its handler."""
    counter = Drain(plan)

    async def handle(batch: list[escrowmq.aio.Delivery]) -> None:
        counter.took(len(batch))

    group = f"drain{time.time_ns()}"
    async with escrowmq.aio.Consumer(
        plan.nameserver, group=group, topic=plan.topic, handler=handle, batch_max=32
    ):
        await asyncio.to_thread(counter.wait)


def main() -> None:
    """Do what the command line asks for."""
    plan = Plan()
    if plan.face == "aio":
        import uvloop

        uvloop.run(drain_async(plan) if plan.mode == "drain" else produce_async(plan))
    elif plan.mode == "drain":
        drain(plan)
    else:
        produce(plan)


if __name__ == "__main__":
    main()
