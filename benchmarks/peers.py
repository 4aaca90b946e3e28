"""The two brokers that are compared, each as its users run it, and what they use of the machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from interop import jars, wire  # noqa: E402 - the path is set above
from interop.ports import free_port  # noqa: E402

BUILD = ROOT / "build" / "benchmarks"
DISK = ("--set=diskMaxUsedSpaceRatio=95", "--set=diskSpaceWarningLevelRatio=99")
"""Ours goes on where little of the disk is free."""

TICK = os.sysconf("SC_CLK_TCK")
JVM = [
    "-server",
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:+AlwaysPreTouch",
    "-XX:MaxDirectMemorySize=4g",
    "-XX:-UseLargePages",
]
"""The flags of RocketMQ's own start script, with a heap of 2 GiB."""


# A benchmark that is told to stop ends its servers first.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def wait_until(what: str, look: Any, within_s: float = 120.0) -> float:
    """Ask again and again; the time at which the answer was yes."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            if look():
                return time.monotonic()
        except (OSError, ValueError, KeyError, AssertionError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s} s: {what}")
        time.sleep(0.005)


class Usage:
    """CPU seconds and memory of one process."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._status = Path(f"/proc/{pid}/status")

    def cpu_s(self) -> float:
        """User and system time since the process began."""
        fields = self._stat.read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory_mib(self) -> tuple[float, float]:
        """Resident memory: all of it, and what is not backed by files."""
        lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))  # type: ignore[return-value]


def _as_installed() -> dict[str, str]:
    """An environment in which Python finds the bytecode that an installation has: without it, a
    start compiles the whole package, which takes three quarters of its time."""
    names = os.environ.keys() - {"PYTHONDONTWRITEBYTECODE"}
    return {name: os.environ[name] for name in names} | {"PYTHONPYCACHEPREFIX": str(BUILD / "pyc")}


class Peer:
    """A broker with its name server."""

    name = ""

    def __init__(self, **settings: str) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=BUILD))
        self.settings = settings
        self.nameserver = f"127.0.0.1:{free_port()}"
        self.broker = f"127.0.0.1:{free_port()}"
        self._children: list[subprocess.Popen[str]] = []
        self.start_s = 0.0
        self.start_cpu_s = 0.0

    def _spawn(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        with (self.folder / "log").open("ab") as log:
            child = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={**_as_installed(), **environment},
                text=True,
                start_new_session=True,
            )
        self._children.append(child)
        return child

    def _launch(self) -> subprocess.Popen[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start; the time is to the first accepted send."""
        begin = time.monotonic()
        child = self._launch()
        self.usage = Usage(child.pid)
        self.process = child
        end = wait_until("the first accepted send", self._accepts)
        self.start_s, self.start_cpu_s = end - begin, self.usage.cpu_s()
        wait_until(
            "registration", lambda: bool(wire.registered_brokers(self.nameserver)), within_s=60
        )

    def _accepts(self) -> bool:
        header = {
            "a": "probe", "b": "Probe", "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false",
            "m": "false",
        }  # fmt: skip
        return bool(wire.ask(self.broker, 310, header, b"x").code == 0)

    def kill(self) -> None:
        """kill -9 of the broker, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._children.remove(self.process)

    def stop(self, *, keep: bool = False) -> None:
        """End everything by its own id, and remove the store."""
        for child in self._children:
            child.kill()
            child.wait()
        self._children.clear()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


class Ours(Peer):
    """`escrowmq serve`."""

    name = "escrowmq"

    def _launch(self) -> subprocess.Popen[str]:
        pairs = [f"--set={key}={value}" for key, value in self.settings.items()]
        return self._spawn(
            [
                sys.executable, "-m", "escrowmq", "serve", "--data", str(self.folder / "store"),
                "--nameserver-port", self.nameserver.split(":")[1],
                "--broker-port", self.broker.split(":")[1],
                *DISK, *pairs,
            ]
        )  # fmt: skip


class Java(Peer):
    """Apache RocketMQ 5.3.3: name server and broker."""

    name = "java"

    def _java(self, main: str, config: str, flags: list[str]) -> subprocess.Popen[str]:
        library = jars.jars(jars.BROKER_RELEASE)
        home = str(self.folder)
        return self._spawn(
            ["java", *flags, f"-Duser.home={home}", "-cp", f"{library}/*", main, "-c", config],
            ROCKETMQ_HOME=home,
            LD_PRELOAD=str(jars.loopback()),
        )

    def _launch(self) -> subprocess.Popen[str]:
        if not self._children:
            config = self.folder / "namesrv.conf"
            port = self.nameserver.split(":")[1]
            config.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
            main = "org.apache.rocketmq.namesrv.NamesrvStartup"
            self._java(main, str(config), ["-Xms128m", "-Xmx128m"])
        return self.launch_broker()

    def launch_broker(self) -> subprocess.Popen[str]:
        """Start the broker alone."""
        port = int(self.broker.split(":")[1])
        store = self.folder / "store"
        lines = {
            "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0",
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1",
            "listenPort": str(port), "haListenPort": str(port + 1),
            "namesrvAddr": self.nameserver, "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"), "flushDiskType": "ASYNC_FLUSH",
            "diskMaxUsedSpaceRatio": "95", **self.settings,
        }  # fmt: skip
        config = self.folder / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return self._java("org.apache.rocketmq.broker.BrokerStartup", str(config), JVM)


class Proxied(Java):
    """Apache RocketMQ 5.3.3 with its gRPC proxy."""

    def start(self) -> None:
        """Start broker and proxy."""
        super().start()
        port = free_port()
        self.proxy = f"127.0.0.1:{port}"
        home = self.folder / "proxy"
        (home / "conf").mkdir(parents=True)
        settings = {
            "rocketMQClusterName": "DefaultCluster", "proxyMode": "CLUSTER",
            "namesrvAddr": self.nameserver, "grpcServerPort": port,
            "remotingListenPort": free_port(), "localServeAddr": "127.0.0.1",
        }  # fmt: skip
        (home / "conf" / "rmq-proxy.json").write_text(json.dumps(settings))
        self._spawn(
            ["java", "-Xms512m", "-Xmx512m", f"-Duser.home={home}", "-cp", f"{proxy_jars()}/*",
             "org.apache.rocketmq.proxy.ProxyStartup", "-n", self.nameserver, "-pm", "cluster",
             "-pc", str(home / "conf" / "rmq-proxy.json")],
            ROCKETMQ_HOME=str(home), LD_PRELOAD=str(jars.loopback()),
        )  # fmt: skip
        wait_until("the proxy listens", lambda: is_open(self.proxy))


def is_open(address: str) -> bool:
    """Whether somebody listens."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=1):
        return True


def proxy_jars() -> Path:
    """The folder with the jars of RocketMQ's proxy."""
    pom = ROOT / "benchmarks" / "clients" / "proxy-pom.xml"
    folder = BUILD / f"proxy-{jars.digest(pom)}"
    if not folder.exists():
        made = folder.with_suffix(".new")
        jars.run(
            ["mvn", "-B", "-q", "-f", str(pom), jars.COPY, "-DincludeScope=runtime",
             f"-DoutputDirectory={made}"]
        )  # fmt: skip
        made.rename(folder)
    return folder


class Load:
    """One run of the Java load generator, with the broker's CPU time between its two marks."""

    def __init__(self, peer: Peer, **arguments: object) -> None:
        classes = load_classes()
        library = jars.jars(jars.BROKER_RELEASE)
        command = ["java", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-cp", f"{classes}:{library}/*"]
        command += ["Load", f"nameserver={peer.nameserver}"]
        command += [f"{key}={value}" for key, value in arguments.items()]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOME": str(BUILD)},
        )  # fmt: skip
        killer = threading.Timer(600, child.kill)
        killer.start()
        assert child.stdout is not None
        begin = end = 0.0
        self.answer = ""
        for line in child.stdout:
            if line.startswith("go"):
                begin = peer.usage.cpu_s()
            elif line.startswith("end"):
                end = peer.usage.cpu_s()
            elif line.startswith("{"):
                self.answer = line
        child.wait()
        killer.cancel()
        self.cpu_s = end - begin


def load_classes() -> Path:
    """The folder with the compiled load generator."""
    source = ROOT / "benchmarks" / "java" / "Load.java"
    folder = BUILD / f"classes-{jars.digest(source)}"
    if not folder.exists():
        folder.mkdir(parents=True)
        library = jars.jars(jars.BROKER_RELEASE)
        jars.run(["javac", "-nowarn", "-d", str(folder), "-cp", f"{library}/*", str(source)])
    return folder


class TransactionProducer:
    """RocketMQ's own benchmark of transactions, for some seconds; figures behind a warm-up."""

    REPORT_MS = 1_000

    def __init__(self, peer: Peer, *, threads: int, size: int, warm: int, seconds: int) -> None:
        main = "org.apache.rocketmq.example.benchmark.TransactionProducer"
        command = ["java", "-Xms512m", "-Xmx512m", "-cp", f"{_example_jars()}/*", main]
        command += ["-n", peer.nameserver, "-w", str(threads), "-s", str(size)]
        command += ["-ri", str(self.REPORT_MS)]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOME": str(BUILD)},
        )  # fmt: skip
        self.unexpected = 0
        rates: list[int] = []
        begin = end = 0.0
        try:
            assert child.stdout is not None
            for line in child.stdout:
                self.unexpected += "unexpected check" in line
                found = re.search(r"Send TPS:\s*(\d+)", line)
                if found is None:
                    continue
                rates.append(int(found[1]))
                if len(rates) == warm:
                    begin = peer.usage.cpu_s()
                if len(rates) == warm + seconds:
                    end = peer.usage.cpu_s()
                    break
        finally:
            child.kill()
            child.wait()
        counted = rates[warm:]
        self.rate = sum(counted) / len(counted)
        self.cpu_us = (end - begin) / sum(counted) * 1e6


def _example_jars() -> Path:
    pom = ROOT / "benchmarks" / "java" / "pom.xml"
    folder = BUILD / f"example-{jars.digest(pom)}"
    if not folder.exists():
        made = folder.with_suffix(".new")
        jars.run(
            ["mvn", "-B", "-q", "-f", str(pom), jars.COPY, "-DincludeScope=runtime",
             f"-DoutputDirectory={made}"]
        )  # fmt: skip
        made.rename(folder)
    return folder
