"""One server for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.servers import EscrowServer

from .places import SETTINGS


@pytest.fixture(name="server", scope="module")
def make_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EscrowServer]:
    server = EscrowServer(tmp_path_factory.mktemp("server"), **SETTINGS)
    yield server
    server.stop()
