"""PullMessage and the calls about offsets."""

from __future__ import annotations

from typing import Any

from escrowmq.proxy.gen import v2
from tests.harness.exchange import START_MS

from .client import V5, Stream, World, message


def make() -> tuple[World, V5]:
    world = World()
    world.topic("T")
    return world, world.connect()


def at_queue(request: Any, queue_id: int = 0, group: str = "CG") -> Any:
    request.message_queue.topic.name, request.message_queue.id = "T", queue_id
    if group:
        request.group.name = group
    return request


def pull(client: V5, offset: int, *, wait_s: int = 0, tag: str = "") -> Stream:
    request = v2.PullMessageRequest(offset=offset, batch_size=2)
    if tag:
        request.filter_expression.type = v2.TAG
        request.filter_expression.expression = tag
    request.long_polling_timeout.seconds = wait_s
    return client.start("PullMessage", at_queue(request))


def seen(stream: Stream) -> tuple[int, list[bytes], int]:
    assert stream.code == 0
    first, *found, last = stream.messages(v2.PullMessageResponse)
    return first.status.code, [each.message.body for each in found], last.next_offset


def test_messages_are_pulled_from_an_offset_on() -> None:
    _, client = make()
    for nth in range(3):
        client.send(message("T", b"%d" % nth))
    assert seen(pull(client, 0)) == (v2.OK, [b"0", b"1"], 2)
    assert seen(pull(client, 2)) == (v2.OK, [b"2"], 3)
    assert seen(pull(client, 3)) == (v2.MESSAGE_NOT_FOUND, [], 3)


def test_a_message_with_odd_numbers_is_pulled() -> None:
    world, client = make()
    sender = world.exchange.connect("remoting")
    odd = {"g": str((1 << 63) - 1), "j": str((1 << 31) - 1)}  # born, and reconsumed so often
    assert sender.send("T", b"odd", fields=odd).code == 0
    assert seen(pull(client, 0)) == (v2.OK, [b"odd"], 1)


def test_a_pull_waits_for_a_message() -> None:
    world, client = make()
    stream = pull(client, 0, wait_s=10)
    assert not stream.is_over
    world.connect("other").send(message("T"))
    assert seen(stream) == (v2.OK, [b"hello"], 1)
    stream = pull(client, 1, wait_s=10)
    world.exchange.advance(11_000)
    assert seen(stream) == (v2.MESSAGE_NOT_FOUND, [], 1)


def test_a_reset_of_the_group_moves_its_reader() -> None:
    world, client = make()
    for nth in range(3):
        client.send(message("T", b"%d" % nth))
    pull(client, 0)
    reset = at_queue(v2.UpdateOffsetRequest(offset=3))
    assert offset(client, "UpdateOffset", reset) == ("OK", 0)
    ext = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
    assert world.exchange.connect("operator").ask(222, ext).code == 0
    moved = pull(client, 3, wait_s=10)
    assert seen(moved) == (v2.MESSAGE_NOT_FOUND, [], 0)
    first, *_ = moved.messages(v2.PullMessageResponse)
    assert first.status.message == "the group's offset was reset"
    assert seen(pull(client, 0)) == (v2.OK, [b"0", b"1"], 2)


def test_other_tags_of_the_same_hash_are_not_shown() -> None:
    _, client = make()
    client.send(message("T", b"wrong", tag="BB"))  # Java's hash of "Aa" is the same
    client.send(message("T", b"right", tag="Aa"))
    client.send(message("T", b"wrong", tag="BB"))
    assert seen(pull(client, 0, tag="Aa")) == (v2.OK, [b"right"], 2)
    assert seen(pull(client, 2, tag="Aa")) == (v2.MESSAGE_NOT_FOUND, [], 3)


def offset(client: V5, method: str, request: Any) -> tuple[str, int]:
    kind = getattr(v2, f"{method}Response")
    response: Any = client.ask(method, request, kind)
    return v2.Code.Name(response.status.code), getattr(response, "offset", 0)


def test_offsets_of_a_group_are_kept() -> None:
    _, client = make()
    client.send(message("T"))
    pull(client, 0)  # which makes the group known
    get = at_queue(v2.GetOffsetRequest())
    assert offset(client, "GetOffset", get) == ("OFFSET_NOT_FOUND", 0)
    assert offset(client, "UpdateOffset", at_queue(v2.UpdateOffsetRequest(offset=1))) == ("OK", 0)
    assert offset(client, "GetOffset", get) == ("OK", 1)
    wrong = at_queue(v2.UpdateOffsetRequest(offset=-1))
    assert offset(client, "UpdateOffset", wrong)[0] == "ILLEGAL_OFFSET"


def test_offsets_of_a_queue_are_told() -> None:
    world, client = make()
    client.send(message("T"))
    world.exchange.advance(10_000)
    client.send(message("T"))

    def ask(policy: int, at_ms: int = 0, *, nanos: int = 0) -> tuple[str, int]:
        request = v2.QueryOffsetRequest()
        request.query_offset_policy = policy  # type: ignore[assignment]
        if at_ms:
            request.timestamp.seconds = at_ms // 1_000
            request.timestamp.nanos = nanos
        return offset(client, "QueryOffset", at_queue(request, group=""))

    assert ask(v2.BEGINNING) == ("OK", 0)
    assert ask(v2.END) == ("OK", 2)
    assert ask(v2.TIMESTAMP, START_MS + 5_000) == ("OK", 1)
    assert ask(v2.TIMESTAMP)[0] == "BAD_REQUEST"
    for odd_ms in (1 << 62, -(1 << 62)):
        assert ask(v2.TIMESTAMP, odd_ms)[0] == "BAD_REQUEST"
    assert ask(v2.TIMESTAMP, START_MS, nanos=-5)[0] == "BAD_REQUEST"


def test_a_queue_that_is_not_there_is_refused() -> None:
    _, client = make()
    request = at_queue(v2.QueryOffsetRequest(), queue_id=7, group="")
    assert offset(client, "QueryOffset", request)[0] == "BAD_REQUEST"
    request.message_queue.id = 0
    request.message_queue.broker.name = "another"
    assert offset(client, "QueryOffset", request)[0] == "BAD_REQUEST"
