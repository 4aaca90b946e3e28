"""What stands in a topic, read without any client: request 11 for each queue."""

from escrowmq.client.core.message import ReceivedMessage, to_received_message
from escrowmq.codec.record import decode_records
from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import Server

_SUBSCRIPTION = 4
_BATCH = 32
_FOUND = 0


def delivered(server: Server, topic: str, *, queues: int = 4) -> list[ReceivedMessage]:
    """Every message that consumers of a topic would get, queue by queue."""
    found: list[ReceivedMessage] = []
    for queue_id in range(queues):
        found += _of_queue(server, topic, queue_id)
    return found


def _of_queue(server: Server, topic: str, queue_id: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    at = 0
    while True:
        fields = {
            "consumerGroup": "sdk-reader",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(at),
            "maxMsgNums": str(_BATCH),
            "sysFlag": str(_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        reply = wire.ask(server.broker, 11, fields)
        if reply.code != _FOUND:
            return found
        found += [to_received_message(stored) for stored in decode_records(reply.body)]
        at = int(reply.fields["nextBeginOffset"])


def wait_delivered(server: Server, topic: str, count: int) -> list[ReceivedMessage]:
    """So many messages of a topic; RocketMQ's broker shows a message a moment after its answer."""

    def look() -> list[ReceivedMessage] | None:
        found = delivered(server, topic)
        return found if len(found) >= count else None

    found = until(f"{count} messages in {topic}", look)
    assert len(found) == count
    return found


def bodies(server: Server, topic: str, *, queues: int = 4) -> list[bytes]:
    """The bodies, sorted."""
    return sorted(message.body for message in delivered(server, topic, queues=queues))


def wait_bodies(server: Server, topic: str, expected: list[bytes], *, within_s: float = 30) -> None:
    """Wait until a topic holds at least so many messages, which must be these."""
    until(
        f"{len(expected)} messages in {topic}",
        lambda: len(bodies(server, topic)) >= len(expected),
        within_s=within_s,
    )
    assert bodies(server, topic) == sorted(expected)
