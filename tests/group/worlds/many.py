"""Many worlds, on all cores: `python -m tests.group.worlds.many FIRST COUNT` prints each broken
promise with its seed, and how the worlds ended; the exit code is 1 if any was broken."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections import Counter

from tests.group.worlds.world import RandomWorld, Violation


def _outcome(seed: int) -> tuple[int, str, str]:
    logging.disable(logging.CRITICAL)
    world = RandomWorld(seed)
    try:
        return seed, world.run(), ""
    except Violation as error:
        return seed, "broken", str(error)
    except Exception as error:  # noqa: BLE001 - any of them is a finding
        return seed, "failed", f"{type(error).__name__}: {error}"


def main() -> int:
    """Run them."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    began_s = time.monotonic()
    ends: Counter[str] = Counter()
    bad = 0
    with multiprocessing.Pool(maxtasksperchild=200) as pool:
        for seed, end, fault in pool.imap_unordered(_outcome, range(first, first + count)):
            ends["all is well" if end[0].isdigit() else end] += 1
            if fault:
                bad += 1
                sys.stdout.write(f"seed {seed}: {fault}\n")
                sys.stdout.flush()
    for end, times in ends.most_common():
        sys.stdout.write(f"{times:6} {end}\n")
    sys.stdout.write(f"{count} worlds in {time.monotonic() - began_s:.0f} s\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
