"""A broker is killed while every official client holds something, and comes back on its port."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.process import until
from tests.interop.servers import METERED, EscrowServer

from .clients import QUICK, Client
from .places import SETTINGS, topic

pytestmark = pytest.mark.interop

LASTING = {**SETTINGS, **METERED, "transactionTimeOut": 600_000, "flushDiskType": "SYNC_FLUSH"}


def handed_out(server: EscrowServer) -> float:
    """Messages that somebody was given, and has not acknowledged."""
    return server.metric("rocketmq_pop_checkpoint_buffer_size")


def over_a_restart(
    folder: Path, scene: str, kind: str, *, is_held: bool
) -> tuple[EscrowServer, dict[str, list[str]]]:
    """What each client has seen that went on after the restart, behind which what some were handed
    is still theirs, or nothing was handed out."""
    server = EscrowServer(folder, **LASTING)
    clients: list[Client] = [each for each in QUICK if not each.missing]
    for client in clients:
        client.start()  # it may have to be built, which takes longer than messages are theirs
    with ExitStack() as stack:
        programs = {}
        for client in clients:
            name = topic(server, f"{client.name}-{scene}", kind)
            programs[client.name] = stack.enter_context(client.playing(server, scene, name))
        for program in programs.values():
            program.wait_held()
        server.kill()
        port = int(server.grpc.rpartition(":")[2])
        server = EscrowServer(folder, **{**LASTING, "grpcServerPort": port})
        assert bool(handed_out(server)) == is_held
        for program in programs.values():
            program.go_on()
        return server, {name: program.seen() for name, program in programs.items()}


def test_a_handle_from_before_acknowledges_afterwards(tmp_path: Path) -> None:
    server, found = over_a_restart(tmp_path, "ackedLater", "NORMAL", is_held=True)
    assert found == {name: ["held"] for name in found}
    until("all are done with", lambda: not handed_out(server))
    server.stop()


def test_a_transaction_from_before_is_ended_afterwards(tmp_path: Path) -> None:
    server, found = over_a_restart(tmp_path, "endedLater", "TRANSACTION", is_held=False)
    assert found == {name: ["kept"] for name in found}
    server.stop()
