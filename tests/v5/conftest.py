"""One server for the tests of a file, and each client in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.parameters import quick
from tests.interop.servers import EscrowServer

from .clients import ALL, QUICK, Client
from .places import SETTINGS


@pytest.fixture(name="server", scope="module")
def make_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EscrowServer]:
    server = EscrowServer(tmp_path_factory.mktemp("server"), **SETTINGS)
    yield server
    server.stop()


@pytest.fixture(name="client", params=quick(QUICK, of=ALL), ids=lambda client: client.name)
def make_client(request: pytest.FixtureRequest) -> Client:
    client: Client = request.param
    if client.missing:
        pytest.skip(f"not on this machine: {client.missing}")
    return client
