"""`tx top` and `group top`: tables that are drawn again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import escrowmq
from escrowmq.cli.live import ChangeRates, largest_counts
from tests.interop.drivers import unique
from tests.interop.servers import Server

from .commands import run
from .conftest import new_topic

pytestmark = pytest.mark.ours_alone


def test_each_table_has_the_largest_first_and_what_has_changed(
    own_server: Callable[..., Server],
) -> None:
    server = own_server(transactionTimeOut=600_000)
    topic, group, readers = new_topic(server), unique("PG"), unique("G")
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        for body in (b"1", b"2"):
            with producer.transaction(topic, body) as tx:
                tx.detach()
        producer.send(topic, b"plain")
    with escrowmq.Admin(server.nameserver) as admin:
        admin.groups.create(readers)
        admin.offsets.reset(readers, topic, "first")
    words = ("-n", server.nameserver, "--count", "2", "--interval", "0.1")
    ended = run("tx", "top", *words)
    lines = ended.stdout.splitlines()
    assert (ended.returncode, len(lines)) == (0, 6), ended
    assert lines[0].startswith("2 pending (-)\t0 without a reachable producer\toldest ")
    assert lines[1:3] == ["GROUP\tPENDING\tCHANGE\tUNREACHABLE", f"{group}\t2\t-\t0"]
    assert lines[5] == f"{group}\t2\t+0.0/s\t0"
    ended = run("group", "top", *words)
    lines = ended.stdout.splitlines()
    assert lines[0] == "1 groups\t1 messages behind", ended
    assert lines[2] == f"{readers}\t1\t-\t0\t0"


def test_changes_are_per_second() -> None:
    times = iter([1_000, 3_000, 3_000, 4_000])
    change = ChangeRates(lambda: next(times))
    assert change.rate("a", 10) == "-"
    assert change.rate("a", 20) == "+5.0/s"
    assert change.rate("a", 21) == "-"  # no time has passed
    assert change.rate("a", 20) == "-1.0/s"
    assert largest_counts({"b": 1, "a": 1, "c": 5}) == [("c", 5), ("a", 1), ("b", 1)]
