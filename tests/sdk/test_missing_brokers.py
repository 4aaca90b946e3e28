"""A broker that is gone is named beside every answer that lacks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import escrowmq
from tests.interop import wire
from tests.interop.drivers import unique
from tests.interop.process import until

from .commands import run
from .parts import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers with a topic and a group; the second one is killed."""
    cluster = Cluster(tmp_path_factory.mktemp("missing"), brokers_count=2)
    try:
        with escrowmq.Admin(cluster.nameserver) as admin:
            admin.topics.create("T", queues=2)
            admin.groups.create("G")
            assert admin.brokers.gone() == []
        cluster.brokers[1].kill()
        until(
            "one broker is left",
            lambda: len(wire.registered_brokers(cluster.nameserver)) == 1,
        )
        yield cluster
    finally:
        cluster.kill()


def test_it_is_listed_with_the_time(cluster: Cluster) -> None:
    text = run("broker", "list", nameserver=cluster.nameserver).stdout.splitlines()
    assert text[0].endswith("\tSTATE")
    assert text[1].endswith("\tregistered")
    assert "\tgone since 20" in text[2]
    assert text[2].startswith("broker-1\t0\t")
    found = run("broker", "list", "--json", nameserver=cluster.nameserver).stdout.splitlines()
    here, gone = map(json.loads, found)
    assert (here["name"], here["goneMs"], gone["name"]) == ("broker-0", 0, "broker-1")
    assert (gone["goneMs"] > 0, gone["wasStopped"]) == (True, False)


@pytest.mark.parametrize(
    "words",
    [
        ("tx", "count"),
        ("tx", "list"),
        ("tx", "discarded"),
        ("group", "list"),
        ("group", "show", "G"),
        ("offset", "show", "G"),
        ("topic", "list"),
        ("topic", "show", "T"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_it_is_named_beside_what_lacks_it(
    cluster: Cluster, words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    ended = run(*words, *form, nameserver=cluster.nameserver)
    assert ended.returncode == 0
    assert ended.stderr.startswith("not in this answer: broker-1 (gone since 20")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("tx", "count"), ("group", "show", "G"), ("topic", "show", "T")])
def test_programs_find_it_in_the_answer(cluster: Cluster, words: tuple[str, ...]) -> None:
    ended = run(*words, "--json", nameserver=cluster.nameserver)
    assert json.loads(ended.stdout)["missing"] == ["broker-1"]


def test_it_is_named_where_nothing_is_found(cluster: Cluster) -> None:
    ended = run("tx", "show", "0" * 32, "--topic", "T", nameserver=cluster.nameserver)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[0].startswith("not in this answer: broker-1 (gone since 20")


def test_what_is_asked_of_one_broker_alone_lacks_nothing(cluster: Cluster) -> None:
    with escrowmq.Admin(cluster.nameserver) as admin:
        assert admin.transactions.count(broker="broker-0").missing == []
        admin.topics.create(unique("T"), broker="broker-0")
