"""What the load generators in Python have in common: arguments, callers, latencies, the report."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

Send = Callable[[], object]


class Plan:
    """What the command line asks for: `name=value` words."""

    def __init__(self) -> None:
        found = dict(word.split("=", 1) for word in sys.argv[1:])
        self.mode = found.get("mode", "send")
        self.nameserver = found.get("nameserver", "127.0.0.1:9876")
        self.topic = found.get("topic", "Load")
        self.face = found.get("face", "plain")
        self.callers = int(found.get("threads", 1))
        self.warm_s = float(found.get("warm", 3))
        self.seconds = float(found.get("seconds", 10))
        self.linger_ms = int(found.get("linger", 0))
        self.confirms = found.get("confirm", "yes") == "yes"
        self.count = int(found.get("count", 1_000_000))
        self.body = b"x" * int(found.get("size", 128))


class Meter:
    """Counts what happens between "go" and "end", whoever reports it."""

    def __init__(self, plan: Plan) -> None:
        start = time.perf_counter()
        self.begin = start + plan.warm_s
        self.end = self.begin + plan.seconds
        self.failures: list[str] = []
        self._took_s: list[list[float]] = []

    def caller(self) -> list[float]:
        """Where one caller puts the time of each send."""
        self._took_s.append([])
        return self._took_s[-1]

    def report(self, *, count: int | None = None, seconds: float | None = None) -> None:
        """The JSON line."""
        took = sorted(one for caller in self._took_s for one in caller)
        count = len(took) if count is None else count
        seconds = seconds or self.end - self.begin
        found: dict[str, object] = {"messages": count, "failed": len(self.failures)}
        found |= {"seconds": round(seconds, 3), "rate": round(count / seconds)}
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            index = min(len(took) - 1, int(share * len(took)))
            found[name] = round(took[index] * 1000, 3) if took else 0
        print(json.dumps(found), flush=True)
        for failure in self.failures[:3]:
            print(failure, file=sys.stderr)


def load(plan: Plan, send: Send) -> None:
    """Let so many threads send one message after another."""
    meter = Meter(plan)
    threads = [threading.Thread(target=_send_on, args=(send, meter)) for _ in range(plan.callers)]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, meter.begin - time.perf_counter()))
    print("go", flush=True)
    for thread in threads:
        thread.join()
    print("end", flush=True)
    meter.report()


def _send_on(send: Send, meter: Meter) -> None:
    took, clock = meter.caller(), time.perf_counter
    begin, end = meter.begin, meter.end
    while (start := clock()) < end:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - counted and told
            if start >= begin:
                meter.failures.append(f"{type(error).__name__}: {error}")
            continue
        if start >= begin:
            took.append(clock() - start)


class Drain:
    """Counts messages from the first to the last."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._count = 0
        self._begin = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()

    def took(self, count: int) -> None:
        """So many more were consumed."""
        with self._lock:
            if not self._count:
                self._begin = time.perf_counter()
                print("go", flush=True)
            self._count += count
            if self._count >= self._plan.count:
                self._done.set()

    def wait(self) -> None:
        """Until all are consumed; then the report."""
        self._done.wait()
        seconds = time.perf_counter() - self._begin
        print("end", flush=True)
        Meter(self._plan).report(count=self._count, seconds=seconds)
