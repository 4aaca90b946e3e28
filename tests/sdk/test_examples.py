"""The examples of the documentation run as they stand."""

import asyncio
import doctest
from types import ModuleType
from typing import Any

import pytest

import escrowmq
import escrowmq.aio
from escrowmq.client import consumer as consumer_engine
from escrowmq.client import producer as engine
from escrowmq.client.admin import admin as admin_engine
from escrowmq.client.blocking import admin as plain_admin
from escrowmq.client.blocking import consumer as plain_consumer
from escrowmq.client.blocking import producer as plain
from tests.interop.servers import Server

MODULES: list[ModuleType] = [
    escrowmq,
    plain,
    engine,
    plain_consumer,
    consumer_engine,
    plain_admin,
    admin_engine,
]


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [
        example
        for module in MODULES
        for example in finder.find(module, module.__name__)
        if example.examples
    ]


@pytest.mark.parametrize("name", [example.name for example in examples()])
def test_an_example_runs(server: Server, group: str, peer: str, name: str) -> None:
    example = next(each for each in examples() if each.name == name)
    if peer == "java" and "transaction()" in (example.docstring or ""):
        pytest.skip("several messages in one transaction: only EscrowMQ's brokers have this")
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        producer.send("paid", b"something to consume")
        example.globs = {
            "asyncio": asyncio,
            "escrowmq": escrowmq,
            "nameserver": server.nameserver,
            "producer": producer,
        }
        told: list[Any] = []
        runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
        outcome = runner.run(example, out=told.append)
    assert outcome.attempted > 0
    assert outcome.failed == 0, "".join(told)
