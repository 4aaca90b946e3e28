"""The examples of the documentation run as they stand."""

import asyncio
import doctest
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import escrowmq
import escrowmq.aio
import escrowmq.client
import escrowmq.integrations
from escrowmq.integrations.otel import Tracing
from tests.interop.servers import Server

from .conftest import start

TOPICS = ("paid", "stock")
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "sdk.md"


def modules() -> list[str]:
    """Everything that users of the SDK read about."""
    found = ["escrowmq"]
    for package in (escrowmq.client, escrowmq.aio, escrowmq.integrations):
        front = f"{package.__name__}."
        found += [
            package.__name__,
            *(m.name for m in pkgutil.walk_packages(package.__path__, front)),
        ]
    return found


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [
        example
        for name in modules()
        for example in finder.find(importlib.import_module(name), name)
        if example.examples
    ]


@pytest.fixture(scope="module")
def prepared(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the topics of the examples. It has nothing that other tests left pending, which
    the example of a diagnosis would find."""
    server = start(peer, tmp_path_factory.mktemp("examples"))
    with escrowmq.Admin(server.nameserver) as admin:
        for topic in TOPICS:
            admin.topics.create(topic, queues=4)
    yield server
    server.kill()


@pytest.mark.parametrize("name", [example.name for example in examples()])
def test_an_example_runs(prepared: Server, group: str, peer: str, name: str) -> None:
    example = next(each for each in examples() if each.name == name)
    if peer == "java" and "transaction()" in (example.docstring or ""):
        pytest.skip("several messages in one transaction: only EscrowMQ's brokers have this")
    with escrowmq.Producer(prepared.nameserver, group=group) as producer:
        producer.send("paid", b"something to consume")
        example.globs = {
            "asyncio": asyncio,
            "escrowmq": escrowmq,
            "nameserver": prepared.nameserver,
            "producer": producer,
            "tracing": Tracing(),
        }
        told: list[Any] = []
        runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
        outcome = runner.run(example, out=told.append)
    assert outcome.attempted > 0
    assert outcome.failed == 0, "".join(told)


@pytest.mark.ours_alone
def test_the_guide_runs_from_its_beginning_to_its_end(own_server: Callable[..., Server]) -> None:
    server = own_server()
    with escrowmq.Admin(server.nameserver) as admin:
        for topic in TOPICS:
            admin.topics.create(topic, queues=1)
    text = GUIDE.read_text().replace("```\n", "\n")
    parser, told = doctest.DocTestParser(), list[Any]()
    example = parser.get_doctest(text, {"nameserver": server.nameserver}, "guide", str(GUIDE), 0)
    runner = doctest.DocTestRunner(
        optionflags=doctest.FAIL_FAST
    )  # a later loop would wait for ever
    outcome = runner.run(example, out=told.append)
    assert outcome.attempted > 20
    assert outcome.failed == 0, "".join(told)


@pytest.mark.parametrize("name", escrowmq.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(getattr(escrowmq, name), name)
    assert any(example.examples for example in found), f"{name} has no example in its docstring"
