"""Transactions over gRPC: halves, ends by signed ids, and check-backs."""

from __future__ import annotations

from typing import Any

from escrowmq.proxy.gen import v2

from .client import V5, World, message


def make_world() -> World:
    world = World()
    world.topic("T", "TRANSACTION")
    return world


def half(sender: V5, **system: Any) -> str:
    response = sender.send(message("T", kind=v2.TRANSACTION, **system))
    assert response.status.code == v2.OK, response.status.message
    return response.entries[0].transaction_id


def bodies(world: World) -> list[bytes]:
    return [stored.body for stored in world.exchange.connect().messages("T")]


def test_a_half_is_visible_after_its_commit() -> None:
    world = make_world()
    sender = world.connect()
    name = half(sender)
    assert bodies(world) == []
    assert sender.end("T", name, v2.COMMIT).code == v2.OK
    assert bodies(world) == [b"hello"]
    assert sender.end("T", name, v2.COMMIT).code == v2.OK  # again, as a client that heard nothing
    assert bodies(world) == [b"hello"]


def test_a_half_that_is_rolled_back_never_is() -> None:
    world = make_world()
    sender = world.connect()
    name = half(sender)
    assert sender.end("T", name, v2.ROLLBACK).code == v2.OK
    told = sender.end("T", name, v2.COMMIT)
    assert told.code == v2.PRECONDITION_FAILED
    assert "the transaction is ROLLED_BACK already; nothing was changed" in told.message
    assert bodies(world) == []


def test_any_client_ends_a_transaction_after_any_restart() -> None:
    world = make_world()
    name = half(world.connect("a"))
    world.exchange.advance(1_000)
    world.restart()
    world.exchange.advance(3_600_000)
    assert world.connect("b").end("T", name, v2.COMMIT).code == v2.OK
    assert bodies(world) == [b"hello"]


def test_an_id_that_nobody_signed_is_refused() -> None:
    world = make_world()
    sender = world.connect()
    name = half(sender)
    for wrong in ("nonsense", name[:-3] + "AAA", "0100112233445566778899AABBCCDDEEFF"):
        assert sender.end("T", wrong, v2.COMMIT).code == v2.INVALID_TRANSACTION_ID
    blank = sender.end("T", " ", v2.COMMIT)
    assert blank.message == "transaction id cannot be empty"


def test_unspecified_changes_nothing() -> None:
    world = make_world()
    sender = world.connect()
    name = half(sender)
    assert sender.end("T", name, v2.TRANSACTION_RESOLUTION_UNSPECIFIED).code == v2.OK
    assert sender.end("T", name, v2.COMMIT).code == v2.OK


def recovered(sender: V5, stream: int) -> list[v2.RecoverOrphanedTransactionCommand]:
    return [
        told.recover_orphaned_transaction_command
        for told in sender.told(stream)
        if told.WhichOneof("command") == "recover_orphaned_transaction_command"
    ]


def test_a_producer_is_asked_about_its_orphans_by_its_stream() -> None:
    world = make_world()
    sender = world.connect()
    stream = sender.produce("T")
    half(sender, tag="paid", message_id="id-1")
    world.exchange.advance(8_000)
    (command,) = recovered(sender, stream)
    asked = command.message
    assert (asked.topic.name, asked.body) == ("T", b"hello")
    assert (asked.system_properties.message_id, asked.system_properties.tag) == ("id-1", "paid")
    assert asked.system_properties.message_type == v2.TRANSACTION
    assert sender.end("T", command.transaction_id, v2.COMMIT, source=2).code == v2.OK
    assert bodies(world) == [b"hello"]
    world.exchange.advance(120_000)
    assert len(recovered(sender, stream)) == 1


def test_orphans_wait_for_a_producer_whose_stream_is_lost() -> None:
    world = make_world()
    sender = world.connect("a")
    stream = sender.produce("T")
    half(sender)
    sender.cancel(stream)
    world.exchange.advance(600_000)
    again = world.connect("b")
    stream = again.produce("T")
    world.exchange.advance(1_000)
    (command,) = recovered(again, stream)
    assert again.end("T", command.transaction_id, v2.ROLLBACK, source=2).code == v2.OK


def test_the_origin_is_asked_first() -> None:
    world = make_world()
    clients = [world.connect(name) for name in ("a", "b", "c")]
    streams = [client.produce("T") for client in clients]
    half(clients[1])
    world.exchange.advance(8_000)
    asked = [len(recovered(*pair)) for pair in zip(clients, streams, strict=True)]
    assert asked == [0, 1, 0]


def test_a_half_is_left_alone_for_as_long_as_its_sender_wants() -> None:
    world = make_world()
    sender = world.connect()
    stream = sender.produce("T")
    one = message("T", kind=v2.TRANSACTION)
    one.system_properties.orphaned_transaction_recovery_duration.seconds = 90
    sender.send(one)
    world.exchange.advance(85_000)
    assert recovered(sender, stream) == []
    world.exchange.advance(10_000)
    assert len(recovered(sender, stream)) >= 1


def test_several_messages_are_one_transaction_by_a_user_property() -> None:
    world = make_world()
    sender = world.connect()
    for nth in range(3):
        one = message("T", b"%d" % nth, kind=v2.TRANSACTION, message_id=f"id-{nth}")
        one.user_properties["escrowTransaction"] = "order-1"
        name = sender.send(one).entries[0].transaction_id
    assert sender.end("T", name, v2.COMMIT).code == v2.OK
    assert sorted(bodies(world)) == [b"0", b"1", b"2"]
