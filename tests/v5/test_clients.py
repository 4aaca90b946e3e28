"""What every official client of RocketMQ 5 can do, it can do here."""

from __future__ import annotations

import pytest

from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import EscrowServer

from .clients import Client
from .places import at_most, in_order, topic

pytestmark = pytest.mark.interop

KINDS = {"fifo": "FIFO", "delay": "DELAY", "transactions": "TRANSACTION"}
EXPECTED = {
    "simple": [f"m{nth}:a:3:1" for nth in range(5)],
    "push": sorted([f"m{nth}:1" for nth in range(10)] + ["m7:2"]),
    "delay": ["late", "due"],
    "transactions": ["committed", "good-orphan"],
}


def offered(client: Client, scene: str) -> str:
    """The scene; a client that has no such consumer is skipped."""
    if scene not in client.scenes:
        pytest.skip(f"the {client.name} client has no push consumer")
    return scene


@pytest.mark.parametrize("scene", list(EXPECTED))
def test_a_scene_is_played_to_its_end(server: EscrowServer, client: Client, scene: str) -> None:
    name = topic(server, f"{client.name}-{scene}", KINDS.get(scene, "NORMAL"))
    assert client.play(server, offered(client, scene), name) == EXPECTED[scene]


def test_message_groups_keep_their_order(server: EscrowServer, client: Client) -> None:
    name = topic(server, f"{client.name}-fifo", "FIFO")
    in_order(server, f"CG-{name}")
    found = client.play(server, "fifo", name)
    for group in ("g0", "g1"):
        own = [text for text in found if text.startswith(group)]
        assert own == [f"{group}-{nth}:1" for nth in range(int(group[1]), 20, 2)]


def test_what_fails_too_often_becomes_a_dead_letter(server: EscrowServer, client: Client) -> None:
    name = topic(server, f"{client.name}-dead")
    at_most(server, f"CG-{name}", retries=1)
    with client.playing(server, offered(client, "dead"), name) as program:
        program.wait_held()
        dead = f"%DLQ%CG-{name}"

        def letters() -> int:
            reply = wire.ask(server.address, 30, {"topic": dead, "queueId": "0"})
            return int(reply.fields["offset"]) if reply.code == 0 else 0

        assert until("a dead letter", letters) == 1
        program.go_on()
        assert program.seen() == ["poison:1", "poison:2"]
