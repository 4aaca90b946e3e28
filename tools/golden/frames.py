"""What makes a Java client send each kind of request once, and which exchanges to keep."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.interop.drivers import JavaDriver, message, unique

from .recorder import Exchange, Recorder

BODY = "golden body"
LARGE = "golden body that is worth compressing " * 120


@dataclass
class Captured:
    """The exchanges kept so far, by name."""

    recorders: list[Recorder]
    exchanges: dict[str, Exchange] = field(default_factory=dict)

    @contextmanager
    def keeping(
        self,
        *names: tuple[str, int],
        wanted: Callable[[Exchange], bool] = lambda _: True,
    ) -> Iterator[None]:
        """Keep the first exchange of each code that begins inside the block, under its name."""
        marks = [recorder.mark() for recorder in self.recorders]
        yield
        for name, code in names:
            self.exchanges[name] = self._first(code, marks, wanted)

    def _first(self, code: int, marks: list[int], wanted: Callable[[Exchange], bool]) -> Exchange:
        failure: Exception | None = None
        is_for_nameserver = code in {105, 106, 206, 100, 101, 103, 322}
        recorder, mark = (
            (self.recorders[0], marks[0]) if is_for_nameserver else (self.recorders[1], marks[1])
        )
        try:
            return recorder.wait(code, since=mark, wanted=wanted)
        except TimeoutError as error:
            failure = error
        raise failure


def is_found(exchange: Exchange) -> bool:
    """Whether a pull or a pop found something."""
    return exchange.reply is not None and exchange.reply.code == 0


def produce(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """Sends of every kind."""
    with kept.keeping(("route", 105), ("send", 310), ("heartbeat_producer", 34)):
        producer = driver.producer(nameserver, "golden_producer")
        producer.send(topic, BODY, tag="red", keys="key-1 key-2", properties={"colour": "bleu é"})
    with kept.keeping(("send_oneway", 310)):
        producer.send_oneway(topic, BODY)
    with kept.keeping(("send_batch", 320)):
        producer.send_batch(
            [message(topic, f"batch {n}", tag="b", keys=f"b-{n}") for n in range(3)]
        )
    with kept.keeping(("send_compressed_zlib", 310)):
        producer.send(topic, LARGE)
    with kept.keeping(("send_delay_level", 310)):
        producer.send(topic, "delayed", delayLevel=1)
    with kept.keeping(("unregister_producer", 35)):
        producer.close(wait=True)


def settle(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """A transaction for each outcome, and a check."""
    producer = driver.transaction_producer(nameserver, "golden_tx_producer")
    with kept.keeping(("send_half", 310), ("end_transaction_commit", 37)):
        producer.transaction(topic, "committed", keys="tx-commit", outcome="COMMIT")
    with kept.keeping(("end_transaction_rollback", 37)):
        producer.transaction(topic, "rolled back", keys="tx-rollback", outcome="ROLLBACK")
    with kept.keeping(("end_transaction_unknown", 37), ("check_transaction_state", 39)):
        producer.transaction(
            topic, "checked", keys="tx-check", outcome="UNKNOWN", checks=["COMMIT"]
        )
        producer.checks(1, within_s=60)
    with kept.keeping(("end_transaction_failed", 37)):
        producer.transaction(
            topic, "failed", keys="tx-failed", outcome="RAISE", checks=["ROLLBACK"]
        )
    producer.close(wait=True)


def consume(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """Push consumers, concurrent and orderly; lite pull."""
    group = f"{topic}-consumer"
    at_start = (("heartbeat_consumer", 34), ("consumer_list", 38), ("query_consumer_offset", 14))
    with (
        kept.keeping(*at_start, ("send_back", 36)),
        kept.keeping(("pull", 11), wanted=is_found),
    ):
        consumer = driver.consumer(
            nameserver, topic, group=group, expression="red || b", failures={"key-1 key-2": 1}
        )
    consumer.received(5)
    with kept.keeping(("update_consumer_offset", 15), ("unregister_consumer", 35)):
        consumer.close(wait=True)
    with kept.keeping(("lock_batch", 41)):
        orderly = driver.consumer(nameserver, topic, group=f"{topic}-orderly", is_orderly=True)
        orderly.received(1)
    with kept.keeping(("unlock_batch", 42)):
        orderly.close(wait=True)
    code = 11 if driver.release == "4.9.8" else 361  # 361 came with 5.0
    with kept.keeping(("lite_pull", code), wanted=is_found):
        lite = driver.lite(nameserver, topic, group=f"{topic}-lite")
        assert lite.poll(1)
    lite.close()


def consume_sql(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """A SQL subscriber."""
    with kept.keeping(("check_client_config", 46)):
        consumer = driver.consumer(
            nameserver, topic, group=f"{topic}-sql", expression="colour = 'bleu é'", is_sql=True
        )
    consumer.received(1)
    consumer.close(wait=True)


def reply(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """Request-reply."""
    replier = driver.producer(nameserver, "golden_replier")
    consumer = driver.consumer(nameserver, topic, group=f"{topic}-reply", reply_by=replier)
    consumer.received(1)
    requester = driver.producer(nameserver, "golden_requester")
    with kept.keeping(("send_reply", 325), ("push_reply", 326)):
        requester.request(topic, "question", within_s=20)
    for each in (consumer, replier, requester):
        each.close(wait=True)


def pop(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """The POP mode of the push consumer."""
    group = f"{topic}-pop"
    with kept.keeping(("set_message_request_mode", 401)):
        driver.mqadmin(
            *("setConsumeMode", "-n", nameserver, "-c", "DefaultCluster", "-t", topic),
            *("-g", group, "-m", "POP", "-q", "4"),
        )
    with (
        kept.keeping(("query_assignment", 400), ("ack", 200051)),
        kept.keeping(("pop", 200050), wanted=is_found),
    ):
        consumer = driver.consumer(nameserver, topic, group=group, clientRebalance=False)
        producer = driver.producer(nameserver)
        producer.send(topic, "to pop", keys="pop-1")
        consumer.received(1)
    for each in (consumer, producer):
        each.close(wait=True)


def administer(kept: Captured, driver: JavaDriver, nameserver: str, topic: str) -> None:
    """Questions of the admin library."""
    admin = driver.admin(nameserver)
    name = unique("golden_admin")
    with kept.keeping(("cluster_info", 106)):
        cluster = admin.call("examineBrokerClusterInfo")
    address = next(iter(cluster["brokerAddrTable"].values()))["brokerAddrs"]["0"]
    config = {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2}
    with kept.keeping(("create_topic", 17)):
        admin.call("createAndUpdateTopicConfig", address, config)
    with kept.keeping(("create_group", 200)):
        admin.call("createAndUpdateSubscriptionGroupConfig", address, {"groupName": name})
    with kept.keeping(("topic_stats", 202)):
        admin.call("examineTopicStats", topic)
    with kept.keeping(("consume_stats", 208)):
        admin.call("examineConsumeStats", f"{topic}-consumer")
    with kept.keeping(("query_message", 12)):
        admin.call("queryMessage", topic, "b-0", 32, 0, 2**62)
    with kept.keeping(("max_offset", 30)):
        puller = driver.puller(nameserver)
        queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
        puller.call("maxOffset", queue)
    with kept.keeping(("min_offset", 31)):
        puller.call("minOffset", queue)
    with kept.keeping(("search_offset", 29)):
        puller.call("searchOffset", queue, 0)
    with kept.keeping(("pull_without_suspend", 11)):
        puller.pull(topic, broker="broker-a", queue_id=0, offset=0)
    puller.close()
    with kept.keeping(("runtime_info", 28)):
        admin.call("fetchBrokerRuntimeStats", address)
    with kept.keeping(("delete_topic", 215)):
        admin.call("deleteTopicInBroker", [address], name)
    admin.close()
