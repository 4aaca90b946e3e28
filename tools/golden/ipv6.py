"""Records with IPv6 hosts, as the Java broker writes them: `python -m tools.golden.ipv6`.

Needs ::1, Java, Maven and a C compiler. Writes tests/golden/records-ipv6-5.3.3.json."""

import tempfile
from pathlib import Path

from tests.interop.drivers import JavaDriver
from tests.interop.process import until
from tests.interop.servers import JavaBroker, JavaNameServer

from . import store
from .capture import write

HOST = "::1"
TOPIC = "golden-ipv6"


def fill(driver: JavaDriver, nameserver: str) -> None:
    """A message of each kind, none of which the broker still has in memory afterwards."""
    producer = driver.transaction_producer(nameserver, "golden_ipv6")
    producer.send(TOPIC, "plain", tag="red", keys="key-1 key-2")
    producer.send(TOPIC, "delayed", keys="delayed", delayLevel=1)
    checks = ["COMMIT"]
    producer.transaction(TOPIC, "checked", keys="tx-commit", outcome="UNKNOWN", checks=checks)
    consumer = driver.consumer(nameserver, TOPIC, failures={"key-1 key-2": 1})
    until("all, one of them twice", lambda: len(consumer.received()) == 4, within_s=60)
    consumer.close(wait=True)
    producer.close(wait=True)


def main() -> None:
    """Capture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = JavaNameServer(folder / "namesrv")
        broker = JavaBroker(
            folder / "broker",
            names.address,
            bindAddress=HOST,
            brokerIP1=HOST,
            brokerIP2=HOST,
            messageDelayLevel="1s 1s 1s 1s",
            transactionTimeOut=1_000,
            transactionCheckInterval=4_000,
        )
        driver = JavaDriver("5.3.3", folder)
        try:
            fill(driver, names.address)
        finally:
            driver.stop()
            broker.stop()
            names.stop()
        records = store.pick_records(broker.store)
    how = f"commit log of a Java broker with bindAddress and brokerIP1 {HOST}, after a clean stop"
    write("records-ipv6-5.3.3.json", "5.3.3", how, {"records": records})


if __name__ == "__main__":
    main()
