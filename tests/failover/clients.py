"""Clients of a fail-over test: processes that write down what they are told, and readers of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from escrowmq.drill.history import AcknowledgedSend, Event, decode_event
from tests.interop.drivers import JavaDriver
from tests.interop.process import Process, until

from .group import Group

STOP_S: Final = 30.0


class Tail:
    """What has been added to a history since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self.events: list[Event] = []

    def look(self) -> list[Event]:
        """All events up to now."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._at += len(whole)
            self.events += map(decode_event, whole.splitlines())
        return self.events

    def acknowledged(self) -> list[AcknowledgedSend]:
        """Sends and halves that were acknowledged, in the order of that."""
        found = [e for e in self.look() if isinstance(e, AcknowledgedSend) and e.end_ns]
        return sorted(found, key=lambda sent: sent.end_ns)


class Sender(Protocol):
    """One client that sends."""

    name: str
    tail: Tail

    def stop(self) -> None:
        """Send no more; checks are answered still."""

    def close(self) -> None:
        """End it."""


class PythonSender:
    """Our SDK."""

    def __init__(self, group: Group, topic: str) -> None:
        self.name = "python"
        self.tail = Tail(group.folder / "python.history")
        self._process = _process("produce", group, self.tail.path, topic, self.name)

    def stop(self) -> None:
        self._process.write_line("stop")
        self._process.wait_line("stopped", within_s=STOP_S)

    def close(self) -> None:
        self._process.kill()


class JavaSender:
    """RocketMQ's client."""

    def __init__(self, group: Group, topic: str, release: str, *, defaults: bool = False) -> None:
        """`defaults`: it looks for routes each half minute, as it does by itself, and not each
        second."""
        self.name = f"java-{release}"
        self.tail = Tail(group.folder / f"{self.name}.history")
        self._driver = JavaDriver(release, group.folder)
        self._driver.call(
            "load.start", name=self.name.replace(".", "_"), nameserver=group.nameserver,
            topic=topic, file=str(self.tail.path), defaults=defaults,
        )  # fmt: skip

    def stop(self) -> None:
        self._driver.call("load.stop", name=self.name.replace(".", "_"), within_s=STOP_S)

    def close(self) -> None:
        self._driver.process.kill()


class Reader:
    """A consumer of our SDK."""

    def __init__(self, group: Group, topic: str) -> None:
        self.tail = Tail(group.folder / "reader.history")
        self._process = _process("consume", group, self.tail.path, topic, "reader")

    def close(self) -> None:
        self._process.kill()


def _process(what: str, group: Group, file: Path, topic: str, name: str) -> Process:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.failover.load", what]
    return Process(
        [*command, str(file), group.nameserver, topic, name],
        folder=group.folder / name,
        name=name,
        takes_commands=True,
        environment={"PYTHONPATH": str(root)},
    )


class Clients:
    """All clients of a group."""

    def __init__(self, senders: list[Sender], reader: Reader) -> None:
        self.senders = senders
        self.reader = reader

    @property
    def files(self) -> list[Path]:
        return [*(sender.tail.path for sender in self.senders), self.reader.tail.path]

    def wait_for(self, count: int, *, within_s: float) -> None:
        """Until each sender has got so many more acknowledgements."""
        goals = {s.name: len(s.tail.acknowledged()) + count for s in self.senders}
        for sender in self.senders:
            until(
                f"{count} acknowledgements of {sender.name}",
                lambda s=sender: len(s.tail.acknowledged()) >= goals[s.name],  # type: ignore[misc]
                within_s=within_s,
            )

    def wait_since(self, since_ns: int, *, within_s: float) -> None:
        """Until each sender has an acknowledgement of a message that it sent after a time."""
        for sender in self.senders:
            until(
                f"an acknowledgement of {sender.name} after the fault",
                lambda s=sender: any(  # type: ignore[misc]
                    a.begin_ns > since_ns for a in reversed(s.tail.acknowledged())
                ),
                within_s=within_s,
            )


@contextlib.contextmanager
def sending(group: Group, topic: str, java: tuple[str, ...]) -> Iterator[Clients]:
    """Clients at work; all of them end with the block."""
    with contextlib.ExitStack() as stack:
        senders: list[Sender] = []
        makers: list[Callable[[], Sender]] = [partial(PythonSender, group, topic)]
        makers += [partial(JavaSender, group, topic, release) for release in java]
        for make in makers:
            senders.append(make())
            stack.callback(senders[-1].close)
        reader = Reader(group, topic)
        stack.callback(reader.close)
        yield Clients(senders, reader)
