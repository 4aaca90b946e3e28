"""Engines as processes; skipped where they are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import buckets, etcd_servers
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


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[buckets.SeaweedServer]:
    """An S3 server, which nobody stops."""
    if missing := buckets.missing():
        pytest.skip(f"not on this machine: {missing}")
    server = buckets.SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    yield server
    server.kill()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests' S3 servers, where programs look for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", buckets.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", buckets.SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
