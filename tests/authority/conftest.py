"""Engines as processes; skipped where they are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import etcd_servers
from .etcd_servers import EtcdCluster


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One server, which nobody stops."""
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    server = EtcdCluster(tmp_path_factory.mktemp("etcd"), 1)
    yield server
    server.stop()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Three servers of the test's own."""
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    cluster = EtcdCluster(tmp_path, 3)
    yield cluster
    cluster.stop()
