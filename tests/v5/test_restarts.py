"""A broker is killed while every official client holds something, and comes back on its port."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import EscrowServer

from .clients import ALL, Client
from .places import SETTINGS, topic

pytestmark = pytest.mark.interop

LASTING = {**SETTINGS, "transactionTimeOut": 600_000, "flushDiskType": "SYNC_FLUSH"}


def over_a_restart(
    folder: Path, scene: str, kind: str
) -> tuple[EscrowServer, dict[str, list[str]]]:
    """What each client has seen that went on after the restart."""
    server = EscrowServer(folder, **LASTING)
    clients: list[Client] = [each for each in ALL if not each.missing]
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
        for program in programs.values():
            program.go_on()
        return server, {name: program.seen() for name, program in programs.items()}


def wait_done(server: EscrowServer, name: str) -> None:
    def is_done() -> bool:
        return wire.committed(server.address, f"CG-{name}", name) == 1

    until(f"the message of {name} is done with", is_done)


def test_a_handle_from_before_acknowledges_afterwards(tmp_path: Path) -> None:
    server, found = over_a_restart(tmp_path, "ackedLater", "NORMAL")
    assert found == {name: ["held"] for name in found}
    for name in found:
        wait_done(server, f"{name}-ackedLater")
    server.stop()


def test_a_transaction_from_before_is_ended_afterwards(tmp_path: Path) -> None:
    server, found = over_a_restart(tmp_path, "endedLater", "TRANSACTION")
    assert found == {name: ["kept"] for name in found}
    server.stop()
