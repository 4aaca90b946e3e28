"""Messages found again: by key, by the client's id, by the broker's id, by offset."""

import pytest

from .drivers import ClientError, JavaDriver
from .process import until
from .servers import Server

pytestmark = pytest.mark.parametrize(
    "java", ["java-5.3.3", "java-5.5.0", "java-4.9.8", "java-5.3.3-binary"], indirect=True
)


def test_messages_are_found_by_their_keys(server: Server, java: JavaDriver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    for n in range(3):
        producer.send(topic, f"{n}", keys=f"both own-{n}")
    admin = java.admin(server.nameserver)

    def bodies(key: str, count: int) -> list[str]:
        found = admin.call("queryMessage", topic, key, 32, 0, 2**62)["messageList"]
        keys = sorted(message["properties"]["KEYS"] for message in found)
        return keys if len(keys) == count else []

    assert until("the index", lambda: bodies("both", 3)) == [f"both own-{n}" for n in range(3)]
    assert until("the index", lambda: bodies("own-1", 1)) == ["both own-1"]
    with pytest.raises(ClientError) as raised:
        admin.call("queryMessage", topic, "nobody", 32, 0, 2**62)
    assert "no message" in raised.value.text
    admin.close()


def test_message_is_found_by_either_id(server: Server, java: JavaDriver, topic: str) -> None:
    sent = java.producer(server.nameserver).send(topic, "found", keys="k")
    admin = java.admin(server.nameserver)
    by_offset_id = admin.call("viewMessage", topic, sent.offset_msg_id)
    assert by_offset_id["queueOffset"] == sent.queue_offset
    assert by_offset_id["properties"]["UNIQ_KEY"] == sent.msg_id

    def by_unique_key() -> dict[str, object] | None:
        try:
            found: dict[str, object] = admin.call("viewMessage", topic, sent.msg_id)
        except ClientError:
            return None  # the index is built a moment later
        return found

    assert until("the index", by_unique_key)["commitLogOffset"] == by_offset_id["commitLogOffset"]
    admin.close()


def test_unknown_offset_id_is_an_error(server: Server, java: JavaDriver, topic: str) -> None:
    sent = java.producer(server.nameserver).send(topic, "x")
    assert sent.offset_msg_id
    admin = java.admin(server.nameserver)
    with pytest.raises(ClientError):
        admin.call("viewMessage", topic, sent.offset_msg_id[:16] + "00000000FFFFFFFF")
    admin.close()
