"""Many processes that die while they take an order; see crashes.py.

    python -m tests.outbox.crash_runs --kills 1000
    python -m tests.outbox.crash_runs --kills 1000 --keep

One run in ten is on MariaDB, the others on PostgreSQL and SQLite in turns. Some processes live, and
answer for the others; they do not count. With `--keep` a process may lose the broker at any step
and keep its events in the database; another one hands them over, and may die of that, too.
"""

from __future__ import annotations

import argparse
import collections
import random
import tempfile
from pathlib import Path

from tests.compensation.services import PostgresServer
from tests.interop.servers import Server, new_topic
from tests.outbox.crashes import LOST, STEPS, Shop, crash, differences, prepare
from tests.outbox.mariadb import MariaDbServer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # A process that is asked and dies was asked: fifteen checks, a second apart, are soon over
        # where nobody lives long enough to answer.
        settings = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000,
                    "transactionCheckMax": 1_000_000}  # fmt: skip
        server = Server("escrow", folder / "server", settings).start()
        postgres, maria = PostgresServer(folder / "postgres"), MariaDbServer(folder / "mariadb")
        try:
            shops = {
                kind: Shop(
                    address,
                    server.nameserver,
                    kind,
                    new_topic(server, f"events-{kind}"),
                    keeps=arguments.keep,
                )
                for kind, address in {
                    "postgresql": postgres.new_database(),
                    "mariadb": f"mariadb://root@localhost/{maria.new_database()}"
                    f"?unix_socket={maria.socket}",
                    "sqlite": f"sqlite:///{folder / 'shop.db'}",
                }.items()
            }
            return _run(shops, server, arguments.kills, chance)
        finally:
            server.kill()
            postgres.stop()
            maria.stop()


def _run(shops: dict[str, Shop], server: Server, kills: int, chance: random.Random) -> int:
    for shop in shops.values():
        prepare(shop)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    runs = 0
    while counts.total() < kills:
        kind = "mariadb" if runs % 10 == 0 else ("postgresql", "sqlite")[runs % 2]
        step = chance.choice(STEPS)
        lost = chance.choice(LOST) if shops[kind].keeps else ""
        counts[kind, step] += crash(shops[kind], step, runs, chance, lost=lost)
        runs += 1
    wrong = [line for shop in shops.values() for line in differences(shop, server)]
    print(f"{'killed behind':16}{''.join(f'{kind:>12}' for kind in shops)}")
    for step in STEPS:
        print(f"{step:16}{''.join(f'{counts[kind, step]:12}' for kind in shops)}")
    print(f"{'all':16}{''.join(f'{_of(counts, kind):12}' for kind in shops)}")
    print(
        "\n".join(wrong) or f"{counts.total()} kills: no order without its events, nor the reverse"
    )
    return 1 if wrong else 0


def _of(counts: collections.Counter[tuple[str, str]], kind: str) -> int:
    return sum(count for (each, _), count in counts.items() if each == kind)


if __name__ == "__main__":
    raise SystemExit(main())
