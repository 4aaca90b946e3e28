"""EscrowMQ's name server and broker as processes of their own, each to be killed and started again
on the port that it had."""

import re
import sys
from pathlib import Path
from typing import Any

from tests.interop import wire
from tests.interop.ports import free_port
from tests.interop.process import Process, until

START_S = 60.0


class Part:
    """One server process with a door that keeps its number."""

    def __init__(self, folder: Path, verb: str, *more: str, **settings: Any) -> None:
        self._folder = folder
        self._verb = verb
        self._more = [*more]
        for key, value in settings.items():
            self._more += ["--set", f"{key}={value}"]
        self._runs_count = 0
        self._port = free_port()
        self.address = ""
        self._process: Process | None = None
        self.start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; again on its own port."""
        self._runs_count += 1
        name = f"{self._verb}{self._runs_count}"
        where = ("--port", str(self._port))
        command = [sys.executable, "-m", "escrowmq", self._verb, *where, *self._more]
        self._process = Process(command, folder=self._folder, name=name)
        line = self._process.wait_line("escrowmq ready ", within_s=START_S)
        found = re.search(rf"{self._verb}=(\S+)", line)
        assert found is not None, line
        self.address = found[1]

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        """SIGTERM: it drains and ends."""
        assert self._process is not None
        assert self._process.stop() == 0
        self._process = None


class Cluster:
    """A name server and brokers."""

    kind = "escrow"
    broker_name = "broker-0"

    def __init__(self, folder: Path, *, brokers_count: int = 1, **settings: Any) -> None:
        self._folder = folder
        self.names = Part(folder, "nameserver", "--data", str(folder / "names"))
        self.brokers = [self._start(number, settings) for number in range(brokers_count)]

    @property
    def nameserver(self) -> str:
        """Where clients begin."""
        return self.names.address

    @property
    def broker(self) -> str:
        """The first broker."""
        return self.brokers[0].address

    def wait_registered(self, count: int) -> None:
        """Wait until the name server knows so many brokers."""
        until(
            f"{count} brokers are registered",
            lambda: len(wire.registered_brokers(self.nameserver)) == count,
        )

    def kill(self) -> None:
        """End everything."""
        for part in [*self.brokers, self.names]:
            part.kill()

    def _start(self, number: int, settings: dict[str, Any]) -> Part:
        data = str(self._folder / f"broker{number}")
        chosen = {"brokerName": f"broker-{number}", **settings}
        part = Part(self._folder, "broker", "-n", self.names.address, "--data", data, **chosen)
        self.wait_registered(number + 1)
        return part
