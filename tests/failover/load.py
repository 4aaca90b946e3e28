"""Producers and a consumer of our SDK in a process of their own, which note all that they are told.

`python -m tests.failover.load produce|consume FILE NAMESERVERS TOPIC NAME` runs until its standard
input ends; a line there stops the senders, and leaves what answers checks."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import BinaryIO, Literal

from escrowmq import aio
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome, SendStatus
from escrowmq.drill.history import (
    AcknowledgedEnd,
    AcknowledgedSend,
    Event,
    ReadMessage,
    SendAttempt,
    append_event,
)
from escrowmq.errors import EscrowMQError

SENDERS: int = 2
PAUSE_S = 0.02
AFTER_FAILURE_S = 0.01
"""Between attempts. Each has a key of its own: a send that failed may have been stored."""
COMMITS = 4
"""One of so many transactions is rolled back."""


def _complain(text: str) -> None:
    sys.stderr.write(f"{time.monotonic_ns()} {text}\n")


class Producers:
    """Ordered senders and senders of transactions with one producer."""

    def __init__(self, file: BinaryIO, servers: str, topic: str, name: str) -> None:
        self._file = file
        self._topic, self._name = topic, name
        self._decided: dict[str, Outcome] = {}
        self._is_stopping = False
        self._count = 0
        self._producer = aio.Producer(
            servers,
            group=f"PG-{name}",
            instance_name=name,
            retries=0,
            topics=[topic],
            check=self._check,
            heartbeat_interval_ms=5_000,
        )

    def _note(self, event: Event) -> None:
        append_event(self._file, event)

    def _key(self, sender: str) -> str:
        self._count += 1
        key = f"{self._name}-{sender}-{self._count}"
        self._note(SendAttempt(key, time.monotonic_ns()))
        return key

    def _check(self, message: ReceivedMessage) -> Outcome:
        key = message.key_list[0]
        return self._decided.setdefault(key, Outcome.ROLLBACK)

    async def _send(self, number: int) -> None:
        while not self._is_stopping:
            key = self._key(f"s{number}")
            begin_ns = time.monotonic_ns()
            try:
                sent = await self._producer.send(
                    self._topic, key.encode(), keys=[key], order_key=f"{self._name}-{number}"
                )
            except EscrowMQError as error:
                _complain(f"{key}: {error!r}")
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            if sent.status is SendStatus.OK:
                end_ns = time.monotonic_ns()
                place = sent.queue.queue_id, sent.offset, sent.message_id
                self._note(AcknowledgedSend(self._topic, key, *place, "", begin_ns, end_ns))
            await asyncio.sleep(PAUSE_S)

    async def _transact(self, number: int) -> None:
        while not self._is_stopping:
            key = self._key(f"t{number}")
            begin_ns = time.monotonic_ns()
            tx = self._producer.transaction(self._topic, key.encode(), keys=[key])
            outcome = Outcome.ROLLBACK if self._count % COMMITS == 0 else Outcome.COMMIT
            try:
                await tx.begin()
            except EscrowMQError as error:
                _complain(f"{key}: {error!r}")
                self._decide(
                    key,
                    Outcome.ROLLBACK,
                    AcknowledgedSend(self._topic, key, 0, 0, "", key, begin_ns),
                )
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            stored_ns = time.monotonic_ns()
            sent = AcknowledgedSend(
                self._topic, key, 0, 0, tx.results[0].message_id, key, begin_ns, stored_ns
            )
            self._decided[key] = outcome
            end_ns = 0
            try:
                await tx.settle(outcome)
                end_ns = time.monotonic_ns()
            except EscrowMQError as error:
                _complain(f"end of {key}: {error!r}")
            self._decide(key, outcome, sent, stored_ns, end_ns)
            await asyncio.sleep(PAUSE_S)

    def _decide(
        self, key: str, outcome: Outcome, sent: AcknowledgedSend, begin_ns: int = 0, end_ns: int = 0
    ) -> None:
        outcome = self._decided.setdefault(key, outcome)
        said: Literal["commit", "rollback"]
        said = "commit" if outcome is Outcome.COMMIT else "rollback"
        self._note(sent)
        self._note(AcknowledgedEnd(key, said, begin_ns, end_ns))

    async def run(self, lines: asyncio.StreamReader) -> None:
        async with self._producer:
            senders = [self._send(n) for n in range(SENDERS)]
            senders += [self._transact(n) for n in range(SENDERS)]
            tasks = [asyncio.ensure_future(sender) for sender in senders]
            await lines.readline()
            self._is_stopping = True
            await asyncio.gather(*tasks)
            sys.stdout.write("stopped\n")
            sys.stdout.flush()
            await lines.read()


async def consume(
    file: BinaryIO, servers: str, topic: str, name: str, lines: asyncio.StreamReader
) -> None:
    """Note what a consumer is given."""

    async def take(message: ReceivedMessage) -> None:
        now_ns = time.monotonic_ns()
        key = message.key_list[0]
        place = message.queue_id, message.queue_offset
        append_event(
            file, ReadMessage(message.topic, *place, key, message.log_offset, now_ns - 1, now_ns)
        )

    async with aio.Consumer(
        servers, group=f"CG-{name}", topic=topic, handler=take, heartbeat_interval_ms=5_000
    ):
        await lines.read()


async def main(what: str, path: str, servers: str, topic: str, name: str) -> None:
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    with Path(path).open("ab") as file:
        if what == "produce":
            await Producers(file, servers, topic, name).run(lines)
        else:
            await consume(file, servers, topic, name, lines)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
