"""Foreign clients, driven: one long-lived process each, a JSON command a line."""

import base64
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import jars
from .process import Process, ProcessError
from .values import Pulled, Received, Sent

CALL_S: Final = 90.0
PATIENCE_S: Final = 75.0
"""The Go client divides queues every 20 s and asks for routes every 30; what it misses at its
start, as the topic of retries, which the broker is about to make, it finds then."""

JVM: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
)
_numbers = itertools.count(1)


class ClientError(Exception):
    """The foreign client raised; its class, its text and its response code, if it has one."""

    def __init__(self, kind: str, text: str, code: int | None) -> None:
        super().__init__(f"{kind}({code}): {text}")
        self.kind = kind
        self.text = text
        self.code = code


def unique(word: str) -> str:
    """A name no other test of this session or of another worker has."""
    return f"{word}-{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}-{os.getpid()}-{next(_numbers)}"


def message(
    topic: str,
    body: bytes | str,
    *,
    tag: str | None = None,
    keys: str | None = None,
    properties: Mapping[str, str] | None = None,
    **more: object,
) -> dict[str, Any]:
    """A message as drivers take it; `more`: queueId, hash, mode, flag, delayLevel, deliverMs."""
    data = body.encode() if isinstance(body, str) else body
    return {
        "topic": topic,
        "body": base64.b64encode(data).decode(),
        "tag": tag,
        "keys": keys,
        "properties": dict(properties or {}),
        **more,
    }


SIGNER: Final = ("accessKey", "secretKey")


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key not in SIGNER}


def _credentials(settings: Mapping[str, object]) -> dict[str, Any]:
    """With what requests are signed: accessKey and secretKey among the settings."""
    return {key: value for key, value in settings.items() if key in SIGNER}


class Driver:
    """A process with clients inside; `call` is the protocol, the rest are shorthands."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.process = Process(command, folder=folder, name=name, takes_commands=True)
        self._open: list[Producer | Consumer] = []

    def call(self, op: str, *, within_s: float = CALL_S, **arguments: object) -> Any:
        """The value answered; ClientError if the client raised, ProcessError if it died."""
        number = next(_numbers)
        self.process.write_line(json.dumps({"id": number, "op": op, **arguments}))
        line = self.process.wait_line(f'{{"id":{number}', within_s=within_s)
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"], answer["message"], answer.get("code"))
        return answer["value"]

    def producer(self, nameserver: str, group: str | None = None, **settings: object) -> "Producer":
        """A started producer; settings are the client's own, such as sendMsgTimeout=5000."""
        return self._producer("producer.start", nameserver, group, settings)

    def transaction_producer(
        self,
        nameserver: str,
        group: str | None = None,
        *,
        checks: Mapping[str, Sequence[str]] | None = None,
        **settings: object,
    ) -> "Producer":
        """A producer with a scripted listener: `checks` has the answers for each key, in order."""
        return self._producer(
            "producer.start", nameserver, group, settings, transactional=True, checks=checks or {}
        )

    def _producer(
        self,
        op: str,
        nameserver: str,
        group: str | None,
        settings: Mapping[str, object],
        **more: Any,
    ) -> "Producer":
        name, group = unique("producer"), group or unique("PG")
        client_id = self.call(
            op,
            name=name,
            nameserver=nameserver,
            group=group,
            settings=_plain(settings),
            **_credentials(settings),
            **more,
        )
        started = Producer(self, name, group, str(client_id))
        self._open.append(started)
        return started

    def consumer(
        self,
        nameserver: str,
        topic: str | Mapping[str, str],
        *,
        group: str | None = None,
        expression: str = "*",
        is_sql: bool = False,
        is_orderly: bool = False,
        failures: Mapping[str, int] | None = None,
        reply_by: "Producer | None" = None,
        retry_level: int = 0,
        **settings: object,
    ) -> "Consumer":
        """A started push consumer; `failures` says how often the message with a key fails first."""
        name, group = unique("consumer"), group or unique("CG")
        subscriptions = {topic: expression} if isinstance(topic, str) else dict(topic)
        client_id = self.call(
            "consumer.start",
            name=name,
            nameserver=nameserver,
            group=group,
            subscriptions=subscriptions,
            sql=is_sql,
            orderly=is_orderly,
            failures=failures or {},
            replyBy=reply_by.name if reply_by else None,
            retryLevel=retry_level,
            settings=_plain(settings),
            **_credentials(settings),
        )
        started = Consumer(self, name, group, str(client_id))
        self._open.append(started)
        return started

    def close_clients(self) -> None:
        """Close what the test left open, without waiting for it."""
        while self._open:
            self._open.pop().close()

    def stop(self) -> None:
        """End the process."""
        self.process.stop(within_s=5)


class JavaDriver(Driver):
    """The official Java client of one release; `is_binary` has it send ROCKETMQ headers,
    `properties` are further system properties of its JVM."""

    def __init__(
        self,
        release: str,
        folder: Path,
        *,
        is_binary: bool = False,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        home = folder / f"java-{release}{'-binary' if is_binary else ''}"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        # mqadmin 4.9 refuses to start without this file
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        flags = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
        flags += [f"-Djava.io.tmpdir={home}"]
        # a consumer that just missed a rebalance would wait 20 s for the next one
        flags += ["-Drocketmq.client.rebalance.waitInterval=2000"]
        flags += ["-Drocketmq.client.logUseSlf4j=false", "-Drocketmq.log.level=WARN"]
        if is_binary:
            flags.append("-Drocketmq.serialize.type=ROCKETMQ")
        flags += [f"-D{key}={value}" for key, value in (properties or {}).items()]
        class_path = f"{jars.java_driver(release)}:{jars.jars(release)}/*"
        self.home = home
        super().__init__(home.name, ["java", *JVM, *flags, "-cp", class_path, "Driver"], home)
        self.release = release

    def mqadmin(self, *arguments: str, within_s: float = CALL_S, **signer: str) -> str:
        """What `mqadmin` prints for these arguments; `signer`: accessKey and secretKey, which it
        reads from its file."""
        tools = self.home / "conf" / "tools.yml"
        tools.write_text("".join(f"{key}: {value}\n" for key, value in signer.items()))
        try:
            return str(self.call("mqadmin", args=list(arguments), within_s=within_s))
        finally:
            tools.unlink()

    def admin(self, nameserver: str, **settings: object) -> "Admin":
        """DefaultMQAdminExt, started."""
        name = unique("admin")
        self.call("admin.start", name=name, nameserver=nameserver, settings=settings)
        return Admin(self, name)

    def lite(
        self, nameserver: str, topic: str, *, group: str | None = None, **settings: object
    ) -> "LiteConsumer":
        """A lite pull consumer that subscribes to the topic."""
        name, group = unique("lite"), group or unique("CG")
        self.call(
            "lite.start",
            name=name,
            nameserver=nameserver,
            group=group,
            subscriptions={topic: "*"},
            settings=_plain(settings),
            **_credentials(settings),
        )
        return LiteConsumer(self, name, group)

    def puller(self, nameserver: str, *, group: str | None = None, **settings: object) -> "Puller":
        """A plain pull consumer."""
        name, group = unique("puller"), group or unique("CG")
        self.call("puller.start", name=name, nameserver=nameserver, group=group, settings=settings)
        return Puller(self, name, group)


class GoDriver(Driver):
    """The official Go client."""

    def __init__(self, folder: Path) -> None:
        super().__init__("go", [str(jars.go_driver())], folder / "go")


@dataclass
class Client:
    """Something inside a driver, by name."""

    driver: Driver
    name: str
    group: str

    def _call(self, op: str, within_s: float = CALL_S, **arguments: object) -> Any:
        return self.driver.call(op, name=self.name, within_s=within_s, **arguments)


@dataclass
class Producer(Client):
    """A producer."""

    client_id: str = ""

    def send(self, topic: str, body: bytes | str, **options: Any) -> Sent:
        """Send one message and return the result; for mode="oneway" use `send_oneway`."""
        return Sent.of(self._call("producer.send", **message(topic, body, **options)))

    def send_oneway(self, topic: str, body: bytes | str, **options: Any) -> None:
        """Send and expect nothing."""
        self._call("producer.send", **message(topic, body, mode="oneway", **options))

    def send_batch(self, messages: Sequence[Mapping[str, object]], **options: Any) -> Sent:
        """Send several messages of one topic in one request."""
        topic = messages[0]["topic"]
        answer = self._call("producer.batch", messages=list(messages), topic=topic, **options)
        return Sent.of(answer)

    def transaction(
        self,
        topic: str,
        body: bytes | str,
        *,
        keys: str,
        outcome: str,
        checks: Sequence[str] = (),
        **options: Any,
    ) -> Sent:
        """A half message; the local transaction and the checks answer as told.

        Without `checks` a check repeats the outcome: Apache's broker may ask about a transaction
        that ended less than three seconds ago.
        """
        checks = checks or [outcome]
        described = message(topic, body, keys=keys, **options)
        answer = self._call(
            "producer.transaction", outcome=outcome, checks=list(checks), **described
        )
        return Sent.of(answer)

    def checks(self, count: int = 0, *, within_s: float = 30) -> list[Received]:
        """The checks seen so far, once there are `count`; fewer when the time is over."""
        answer = self._call(
            "producer.checks", count=count, waitMs=int(within_s * 1000), within_s=within_s + CALL_S
        )
        return [Received.of(each) for each in answer]

    def request(self, topic: str, body: bytes | str, *, within_s: float = 10) -> Received:
        """Request-reply: the reply."""
        described = message(topic, body, waitMs=int(within_s * 1000))
        return Received.of(self._call("producer.request", **described))

    def recall(self, topic: str, handle: str) -> str:
        """Recall a timer message (5.3.2 and later)."""
        return str(self._call("producer.recall", topic=topic, handle=handle))

    def queues(self, topic: str) -> list[int]:
        """The queues the client would send to."""
        found = self._call("producer.queues", topic=topic)
        return sorted(queue["queueId"] for queue in found)

    def close(self, *, wait: bool = False) -> None:
        """Shut it down; it goes on in the background unless `wait`."""
        self._call("producer.close", wait=wait)


@dataclass
class Consumer(Client):
    """A push consumer."""

    client_id: str = ""

    def received(self, count: int = 0, *, within_s: float = PATIENCE_S) -> list[Received]:
        """All it was given so far, once that is `count`; AssertionError when the time is over."""
        answer = self._call(
            "consumer.received",
            count=count,
            waitMs=int(within_s * 1000),
            within_s=within_s + CALL_S,
        )
        got = [Received.of(each) for each in answer]
        assert len(got) >= count, (
            f"{self.driver.name}: {len(got)} of {count} messages within {within_s} s: "
            f"{[(one.keys, one.body[:40]) for one in got[:10]]}"
        )
        return got

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the client's own class (Java)."""
        return self._call("consumer.call", method=method, args=list(arguments))

    def close(self, *, wait: bool = False) -> None:
        """Shut it down; it goes on in the background unless `wait`."""
        self._call("consumer.close", wait=wait)


@dataclass
class LiteConsumer(Client):
    """A lite pull consumer."""

    def poll(self, count: int, *, within_s: float = 60) -> list[Received]:
        """At least `count` messages, fewer when the time is over. A consumer whose first look at
        its queues came too early looks again after 20 s."""
        answer = self._call(
            "lite.poll", count=count, waitMs=int(within_s * 1000), within_s=within_s + CALL_S
        )
        return [Received.of(each) for each in answer]

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the client's own class."""
        return self._call("lite.call", method=method, args=list(arguments))

    def close(self) -> None:
        """Shut it down."""
        self._call("lite.close")


@dataclass
class Puller(Client):
    """A plain pull consumer."""

    def pull(
        self, topic: str, *, broker: str, queue_id: int, offset: int, **options: Any
    ) -> Pulled:
        """One pull of a queue; options: max, expression."""
        answer = self._call(
            "puller.pull", topic=topic, broker=broker, queueId=queue_id, offset=offset, **options
        )
        return Pulled.of(answer)

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the client's own class."""
        return self._call("puller.call", method=method, args=list(arguments))

    def close(self) -> None:
        """Shut it down."""
        self._call("puller.close")


@dataclass
class Admin:
    """The admin library: every method by its own name."""

    driver: Driver
    name: str

    def call(self, method: str, *arguments: object, within_s: float = CALL_S) -> Any:
        """Call a method of DefaultMQAdminExt; beans come back as dictionaries of their getters."""
        return self.driver.call(
            "admin.call", name=self.name, method=method, args=list(arguments), within_s=within_s
        )

    def close(self) -> None:
        """Shut it down."""
        self.driver.call("admin.close", name=self.name)


def is_alive(driver: Driver) -> bool:
    """Whether the process still answers."""
    try:
        return bool(driver.call("ping", within_s=10) == "pong")
    except ProcessError:
        return False
