"""Clusters of several brokers, and what the pipeline's commands say about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import escrowmq
from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import EscrowServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN_TIME_MS = 36_000_000
"""No broker asks by itself while a test runs."""


class Cluster:
    """A name server, and brokers that may be started again on their stores."""

    def __init__(self, folder: Path, *names: str, **settings: object) -> None:
        self.folder = folder
        self.settings = {"transactionTimeOut": OWN_TIME_MS, **settings}
        self.registry = EscrowServer(folder / "names", verb="nameserver")
        self.nameserver = self.registry.nameserver
        self.brokers: dict[str, EscrowServer] = {}
        for name in names:
            self.start(name)

    def store(self, name: str) -> Path:
        """Where a broker keeps its store."""
        return self.folder / name / "store"

    def start(self, name: str) -> None:
        """Start a broker; it is registered when this returns."""
        self.brokers[name] = EscrowServer(
            self.folder / name, verb="broker", nameserver=self.nameserver, store=self.store(name),
            brokerName=name, **self.settings,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """kill -9; the name server has noticed when this returns."""
        self.brokers.pop(name).kill()
        until(f"{name} is gone", lambda: name not in wire.registered_brokers(self.nameserver))

    def new_topic(self, name: str, *brokers: str, queues: int = 2) -> None:
        """A topic on all brokers; the name server knows it of each when this returns."""
        with escrowmq.Admin(self.nameserver) as admin:
            admin.topics.create(name, queues=queues)

        def is_known() -> bool:
            body = wire.ask(self.nameserver, 105, {"topic": name}).body.decode()
            return all(f'"{broker}"' in body for broker in (*self.brokers, *brokers))

        until(f"{name} has its routes", is_known)

    def close(self) -> None:
        """End all."""
        for broker in self.brokers.values():
            broker.kill()
        self.registry.kill()


def by_broker(table: DataFrame) -> set[tuple[str, str, str]]:
    """What a table of differences names: broker, class, message id."""
    return {(row["broker"], row["class"], row["messageId"]) for row in table.collect()}


class Shop:
    """Sends transactions that end in different ways; which message of which broker ended how."""

    def __init__(self, nameserver: str, topic: str, *, group: str, **more: Any) -> None:
        self.topic = topic
        self.ids: dict[str, set[tuple[str, str]]] = {}
        self._where = nameserver
        self._group = group
        self._more = more

    def producer(self) -> escrowmq.Producer:
        """One of the shop's."""
        return escrowmq.Producer(self._where, group=self._group, **self._more)

    def send(self, *outcomes: str, rounds: int) -> None:
        """So many of each: `committed`, `rolled back`, `open`."""
        with self.producer() as producer:
            for number in range(rounds):
                for outcome in outcomes:
                    self.put(producer, outcome, number)

    def put(self, producer: escrowmq.Producer, outcome: str, number: int) -> None:
        """One transaction."""
        with producer.transaction(self.topic, f"{outcome} {number}".encode()) as tx:
            if outcome == "rolled back":
                tx.rollback()
            if outcome == "open":
                tx.unknown()
        sent = tx.results[0]
        place = (sent.queue.broker_name, sent.message_id)
        self.ids.setdefault(outcome, set()).add(place)
