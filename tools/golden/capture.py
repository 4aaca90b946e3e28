"""Capture golden bytes from Apache RocketMQ: python -m tools.golden.capture

Needs Java, Maven and a C compiler; takes two minutes. A Java broker runs behind recording proxies
while Java clients of several releases do one thing of each kind; afterwards its store is read.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.drivers import JavaDriver
from tests.interop.ports import free_port
from tests.interop.process import until
from tests.interop.servers import JavaBroker, JavaNameServer

from . import frames, store
from .frames import Captured
from .recorder import Exchange, Recorder

GOLDEN: Final = Path(__file__).parents[2] / "tests" / "golden"
BROKER_HOST: Final = "127.0.0.2"  # what the broker announces; the proxy listens there
SLOT_COUNT: Final = 499
SETTINGS: Final[dict[str, Any]] = {
    "enablePropertyFilter": True,
    "messageDelayLevel": "1s 2s 1s 1s 1s",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 4_000,
    "maxHashSlotNum": SLOT_COUNT,
    "maxIndexNum": 2_000,
    "mappedFileSizeCommitLog": 4 << 20,
    "brokerIP1": BROKER_HOST,
    "forceRegister": False,  # so that it asks for data versions
}
CLIENTS: Final = (("5.3.3", False), ("5.3.3", True), ("4.9.8", False), ("5.5.0", False))
EXCERPT: Final = {  # of the other releases
    *("route", "cluster_info", "send", "send_batch", "heartbeat_consumer", "consumer_list", "pull"),
    *("lite_pull", "send_half", "end_transaction_commit", "check_transaction_state", "send_back"),
    *("create_topic", "query_message", "query_assignment", "pop", "ack", "push_reply"),
}
Step = Callable[[Captured, JavaDriver, str, str], None]
STEPS: Final[tuple[Step, ...]] = (
    frames.produce,
    frames.settle,
    frames.consume,
    frames.consume_sql,
    frames.reply,
    frames.administer,
)


class Stage:
    """Name server and broker of one release, each behind a recorder."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.names = JavaNameServer(folder / "namesrv")
        self.registrations = Recorder(self.names.address)
        self.routes = Recorder(self.names.address)
        port = free_port()
        everything = {**SETTINGS, "listenPort": port, "haListenPort": port + 1, **settings}
        self.requests = Recorder(f"127.0.0.1:{port}", host=BROKER_HOST, port=port)
        # The Java name server of 5.3.3 cannot read a compressed registration (it answers with a
        # NullPointerException), so nobody waits for that one.
        is_awaited = "compressedRegister" not in settings
        self.broker = JavaBroker(
            folder / "broker", self.registrations.address, is_awaited=is_awaited, **everything
        )

    def close(self) -> None:
        """End both cleanly."""
        self.broker.stop()
        self.names.stop()
        for recorder in (self.registrations, self.routes, self.requests):
            recorder.close()


def main() -> None:
    """Capture everything anew and write tests/golden/*.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with contextlib.closing(Stage(folder / "plain")) as stage:
            capture_clients(stage, folder)
        capture_store(stage.broker.store)
        with contextlib.closing(
            Stage(folder / "compressed", compressedRegister=True)
        ) as compressed:
            compressed.registrations.wait(103, within_s=60)
        capture_registration(plain=stage, compressed=compressed)


def capture_clients(stage: Stage, folder: Path) -> None:
    """Frames of every client; afterwards the store holds all kinds of messages."""
    with contextlib.ExitStack() as stack:
        for release, is_binary in CLIENTS:
            driver = JavaDriver(release, folder, is_binary=is_binary)
            stack.callback(driver.stop)
            capture_client(stage, driver)
            if (release, is_binary) == CLIENTS[0]:
                fill_store(stage, driver)


def capture_client(stage: Stage, driver: JavaDriver) -> None:
    """Frames between a client and the two servers."""
    say(f"client {driver.name}")
    kept = Captured([stage.routes, stage.requests])
    nameserver, topic = stage.routes.address, f"golden-{driver.name.replace('.', '_')}"
    for step in STEPS:
        say(f"  {step.__name__}")
        step(kept, driver, nameserver, topic)
    if driver.release != "4.9.8" and not driver.name.endswith("binary"):
        frames.pop(kept, driver, nameserver, topic)
    how = "a recording proxy between Java client and Java broker or name server 5.3.3"
    exchanges = kept.exchanges
    if driver.release != "5.3.3":
        exchanges = {name: each for name, each in exchanges.items() if name in EXCERPT}
    write(f"frames-{driver.name}.json", driver.release, how, {"exchanges": shown(exchanges)})


def fill_store(stage: Stage, driver: JavaDriver) -> None:
    """Messages of the kinds that a store should hold, beside those of the frames."""
    say("messages for the store")
    nameserver, topic = stage.routes.address, "golden-store"
    producer = driver.producer(nameserver, "golden_store")
    producer.send(topic, frames.BODY, queueId=None, tag="red", keys="plain")
    for kind in ("ZLIB", "LZ4", "ZSTD"):
        other = driver.producer(nameserver, f"golden_{kind}", compressType=kind)
        other.send(topic, frames.LARGE, keys=kind.lower())
        other.close(wait=True)
    producer.send(topic, "by timer", keys="timer-1", delayMs=2_500)
    long_group = "g" * 140
    consumer = driver.consumer(nameserver, topic, group=long_group, failures={"long-1": 1})
    producer.send(topic, "for a retry topic of 147 characters", keys="long-1")
    until("the retry", lambda: sum(m.keys == "long-1" for m in consumer.received()) == 2)
    until("the timer", lambda: any(m.keys == "timer-1" for m in consumer.received()))
    consumer.close(wait=True)
    producer.close(wait=True)


def capture_store(folder: Path) -> None:
    """Bytes of the files that the broker left behind after a clean stop."""
    say("store")
    how = "files of a Java broker after a clean stop; clients 5.3.3, 4.9.8 and 5.5.0 had used it"
    records = store.pick_records(folder)
    write("records-5.3.3.json", "5.3.3", how, {"records": records})
    files = {
        "consume_queue": store.consume_queue(folder, "golden-java-5_3_3"),
        "schedule_queue": store.consume_queue(folder, "SCHEDULE_TOPIC_XXXX"),
        "index": store.index(folder, SLOT_COUNT),
        "checkpoint": (folder / "checkpoint").read_bytes()[:40].hex(),
        "timer": store.timer(folder),
        "names": sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))[:120],
    }
    write("store-5.3.3.json", "5.3.3", how, files)
    write("tables-5.3.3.json", "5.3.3", how, {"files": store.tables(folder)})


def capture_registration(*, plain: Stage, compressed: Stage) -> None:
    """How a broker registers with a name server, with a body as JSON and deflated."""
    say("registration")
    exchanges = {
        "register_broker": plain.registrations.wait(103),
        "register_broker_compressed": compressed.registrations.wait(103),
        "query_data_version": plain.registrations.wait(322, within_s=5),
        "unregister_broker": plain.registrations.wait(104),
    }
    how = "a recording proxy between Java broker and Java name server"
    write("registration-5.3.3.json", "5.3.3", how, {"exchanges": shown(exchanges)})


def shown(exchanges: Mapping[str, Exchange]) -> dict[str, object]:
    """Exchanges as the golden files hold them."""
    return {
        name: {
            "code": exchange.request.code,
            "asked_by": "client" if exchange.request.is_from_client else "server",
            "request": exchange.request.data.hex(),
            "reply": exchange.reply.data.hex() if exchange.reply else None,
        }
        for name, exchange in exchanges.items()
    }


def write(name: str, release: str, how: str, content: Mapping[str, object]) -> None:
    """One golden file."""
    text = json.dumps({"release": release, "captured": how, **content}, indent=1)
    (GOLDEN / name).write_text(text + "\n", encoding="utf-8")
    say(f"  {name}: {len(text)} bytes")


def say(text: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
