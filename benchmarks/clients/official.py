"""Load by the official client of RocketMQ for Python (gRPC, through RocketMQ's proxy); run by the
interpreter of its own environment. Words and output are those of ours.py.

    python benchmarks/clients/official.py mode=send|transaction|drain nameserver=host:port topic=T
        size=128 threads=16 warm=3 seconds=10 count=10000      (nameserver: the proxy's address)
"""

from __future__ import annotations

import time

from loading import Drain, Plan, load
from rocketmq.grpc_protocol import TransactionResolution
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer
from rocketmq.v5.model import FilterExpression, Message
from rocketmq.v5.producer import Producer, TransactionChecker


class Commit(TransactionChecker):
    """Every check is answered with a commit."""

    def check(self, message: Message) -> TransactionResolution:
        """Commit."""
        return TransactionResolution.COMMIT


class Count(MessageListener):
    """Counts messages."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain

    def consume(self, message: Message) -> ConsumeResult:
        """One more."""
        self._drain.took(1)
        return ConsumeResult.SUCCESS


def message_of(plan: Plan) -> Message:
    """A message to send."""
    message = Message()
    message.topic = plan.topic
    message.body = plan.body
    return message


def produce(plan: Plan, configuration: ClientConfiguration) -> None:
    """Threads that share one producer."""
    checker = Commit() if plan.mode == "transaction" else None
    producer = Producer(configuration, (plan.topic,), checker=checker)
    producer.startup()

    def send() -> None:
        producer.send(message_of(plan))

    def commit() -> None:
        transaction = producer.begin_transaction()
        producer.send(message_of(plan), transaction)
        transaction.commit()

    load(plan, commit if plan.mode == "transaction" else send)
    producer.shutdown()


def drain(plan: Plan, configuration: ClientConfiguration) -> None:
    """A push consumer with a listener."""
    counter = Drain(plan)
    group = f"drain{time.time_ns()}"
    subscription = {plan.topic: FilterExpression()}
    consumer = PushConsumer(configuration, group, Count(counter), subscription)
    consumer.startup()
    counter.wait()
    consumer.shutdown()


def main() -> None:
    """Do what the command line asks for."""
    plan = Plan()
    configuration = ClientConfiguration(plan.nameserver, Credentials())
    if plan.mode == "drain":
        drain(plan, configuration)
    else:
        produce(plan, configuration)


if __name__ == "__main__":
    main()
