"""Brokers and name servers under test: the real Java ones and ours, with one face."""

import re
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from . import jars, wire
from .ports import free_port
from .process import Process, until

JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
START_S: Final = 180.0


# What 4.x needs to let go of mapped files, as its own runbroker.sh opens it.
OPENED: Final = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)


def _java(
    main: str, config: Path, *, heap: str, name: str, release: str = jars.BROKER_RELEASE
) -> Process:
    home = config.parent
    library = jars.server_jars(release)
    command = ["java", *JVM, *(OPENED if release.startswith("4.") else ())]
    command += [f"-Xmx{heap}", f"-Xms{heap}", f"-Duser.home={home}"]
    command += [f"-Djava.io.tmpdir={home}"]
    command += ["-Dio.netty.allocator.numDirectArenas=2", "-XX:MaxDirectMemorySize=512m"]
    command += ["-cp", f"{library}/*", main, "-c", str(config)]
    environment = {"ROCKETMQ_HOME": str(home), "LD_PRELOAD": str(jars.loopback())}
    return Process(command, folder=home, name=name, environment=environment)


class JavaNameServer:
    """Apache RocketMQ's name server on a free port of 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{free_port()}"
        config = folder / "namesrv.conf"
        port = self.address.split(":")[1]
        config.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self.process = _java(main, config, heap="128m", name="namesrv")
        self.process.wait_line("boot success", within_s=START_S)

    def stop(self) -> None:
        """End it."""
        self.process.stop()

    kill = stop


class JavaBroker:
    """Apache RocketMQ's broker over a store folder; settings are broker.conf keys.

    It is registered with its name server, unless `is_awaited` is false.
    """

    def __init__(
        self,
        folder: Path,
        nameserver: str,
        *,
        store: Path | None = None,
        is_awaited: bool = True,
        release: str = jars.BROKER_RELEASE,
        **settings: object,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.store = store or folder / "store"
        self.nameserver = nameserver
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        lines: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "haListenPort": port + 1,
            "namesrvAddr": nameserver,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": 64 << 20,
            "flushDiskType": "ASYNC_FLUSH",
            "diskMaxUsedSpaceRatio": 99,
            "sendMessageThreadPoolNums": 2,
            "waitTimeMillsInSendQueue": 3_000,  # two cores and many JVMs: no flow control
        }
        lines.update(settings)
        self.name = str(lines["brokerName"])
        config = folder / "broker.conf"
        config.write_text("".join(f"{key}={_plain(value)}\n" for key, value in lines.items()))
        (folder / "conf").mkdir(exist_ok=True)
        # 4.x refuses to start without this file
        (folder / "conf" / "logback_broker.xml").write_text("<configuration/>")
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self.process = _java(main, config, heap="512m", name="broker", release=release)
        try:
            self.process.wait_line("boot success", within_s=START_S)
            if is_awaited:
                self._wait_registered()
        except BaseException:
            self.process.kill()
            raise

    def _wait_registered(self) -> None:
        until(
            f"{self.name} is registered",
            lambda: self.name in wire.registered_brokers(self.nameserver),
            within_s=START_S,
        )

    def stop(self) -> None:
        """End it cleanly: the store is flushed and its abort file gone."""
        self.process.stop(within_s=60)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# For a Java broker on a store of ours: it reads delayed messages into a wheel of its own, delivers
# from there, and may do so before it has put in those that are overdue. Then it loses them, as it
# does if it cannot store them three times within 1.5 s (docs/operating.md).
AFTER_US: Final[dict[str, Any]] = {
    "disappearTimeAfterStart": 10_000,
    "timerEnableRetryUntilSuccess": True,
}

METERED: Final[dict[str, Any]] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}


class EscrowServer:
    """`escrowmq serve`, `nameserver` or `broker`: what it announced in its ready line. Its name
    server knows it by then."""

    def __init__(
        self,
        folder: Path,
        *,
        verb: str = "serve",
        nameserver: str = "",
        store: Path | None = None,
        **settings: object,
    ) -> None:
        self.store = store or folder / "store"
        command = [sys.executable, "-m", "escrowmq", verb]
        if verb == "serve":
            command += ["--nameserver-port", "0", "--broker-port", "0"]
        else:
            command += ["--port", "0"]
        if verb == "broker":
            command += ["-n", nameserver]
        if verb != "nameserver":
            command += ["--data", str(self.store)]
        for key, value in settings.items():
            command += ["--set", f"{key}={_plain(value)}"]
        self.process = Process(command, folder=folder, name=f"escrowmq-{verb}")
        try:
            self.ready = self.process.wait_line("escrowmq ready ", within_s=START_S)
        except BaseException:
            self.process.kill()
            raise
        doors: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", self.ready))
        self.nameserver = doors.get("nameserver", nameserver)
        self.address = doors.get("broker", self.nameserver)
        self.grpc = doors.get("grpc", "")
        self._metrics = doors.get("metrics", "")
        self.name = str(settings.get("brokerName", "broker-a"))

    def metric(self, name: str) -> float:
        """One without labels; the server was started with METERED."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics") as answer:
            text: str = answer.read().decode()
        found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        assert found is not None, f"no metric {name} in:\n{text}"
        return float(found[1])

    def stop(self) -> None:
        """SIGTERM; it must drain, flush and end with code 0."""
        code = self.process.stop()
        assert code == 0, f"escrowmq ended with {code}:\n{self.process.last_errors()}"

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()


@dataclass
class Server:
    """A broker with its name server, either kind: what a test talks to."""

    kind: str
    """`escrow`, `java`, or `java-` and the release of the broker."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    nameserver: str = ""
    broker: str = ""
    broker_name: str = "broker-a"
    cluster: str = "DefaultCluster"
    _parts: list[JavaNameServer | JavaBroker | EscrowServer] = field(default_factory=list)

    @property
    def store(self) -> Path:
        """The store folder, kept over restarts."""
        return self.folder / "store"

    def start(self) -> "Server":
        """Start it; again after a stop or a kill, on new ports but the same store."""
        assert not self._parts, "it runs already"
        if self.kind.startswith("java"):
            names = JavaNameServer(self.folder / "namesrv")
            self._parts.append(names)
            release = self.kind.partition("-")[2] or jars.BROKER_RELEASE
            broker = JavaBroker(
                self.folder / "broker",
                names.address,
                store=self.store,
                release=release,
                **self.settings,
            )
            self.nameserver, self.broker = names.address, broker.address
            self._parts.insert(0, broker)
        else:
            ours = EscrowServer(self.folder, store=self.store, **self.settings)
            self.nameserver, self.broker = ours.nameserver, ours.address
            self._parts.append(ours)
        return self

    def stop(self) -> None:
        """End broker and name server cleanly."""
        while self._parts:
            self._parts.pop(0).stop()

    def kill(self) -> None:
        """kill -9 for both."""
        while self._parts:
            self._parts.pop(0).kill()


def new_topic(server: Server, name: str, *, queues: int = 4, **fields: object) -> str:
    """Create a topic over the wire (request 17) and return its name once it has a route."""
    wanted = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **{key: str(value) for key, value in fields.items()},
    }
    reply = wire.ask(server.broker, 17, wanted)
    assert reply.code == 0, reply
    until("a route", lambda: wire.ask(server.nameserver, 105, {"topic": name}).code == 0)
    return name
