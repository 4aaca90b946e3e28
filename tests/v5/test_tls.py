"""gRPC over TLS and plainly, on one port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import grpc
from escrowmq.proxy.gen import health
from tests.harness.certificates import OPENSSL, Authority
from tests.interop.servers import EscrowServer

from .clients import GO, JAVA, Client
from .places import SETTINGS, topic

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")

CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture(name="authority")
def make_authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture(name="guarded", params=["permissive", "enforcing"])
def make_guarded(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> Iterator[EscrowServer]:
    shown = authority.sign("server")
    server = EscrowServer(
        tmp_path / "server",
        **SETTINGS,
        **{
            "tls.server.mode": request.param,
            "tls.server.certPath": shown.certificate,
            "tls.server.keyPath": shown.key,
        },
    )
    yield server
    server.stop()


def serving(channel: grpc.Channel) -> bool:
    kind = health.HealthCheckResponse
    check = channel.unary_unary(
        CHECK,
        request_serializer=health.HealthCheckRequest.SerializeToString,
        response_deserializer=kind.FromString,
    )
    with channel:
        response: health.HealthCheckResponse = check(health.HealthCheckRequest(), timeout=20)
    return response.status == kind.SERVING


@pytest.fixture(name="plain")
def make_plain(tmp_path: Path) -> Iterator[EscrowServer]:
    """A server to which nobody has given a certificate."""
    server = EscrowServer(tmp_path / "server", **SETTINGS)
    yield server
    server.stop()


@pytest.mark.parametrize("client", [JAVA, GO], indirect=True, ids=["java", "go"])
def test_clients_whose_default_is_tls_work_without_being_told_otherwise(
    plain: EscrowServer, client: Client
) -> None:
    name = topic(plain, client.name)
    secure = {"ESCROW_TLS": "default", "rocketmq.client.enableSsl": "true"}
    assert client.play(plain, "simple", name, **secure) == [f"m{nth}:a:3:1" for nth in range(5)]
    assert serving(grpc.insecure_channel(plain.grpc))  # others go on without


@needs_openssl
def test_tls_always_and_plain_bytes_where_they_may(
    guarded: EscrowServer, authority: Authority, request: pytest.FixtureRequest
) -> None:
    roots = Path(authority.root).read_bytes()
    secure = grpc.secure_channel(guarded.grpc, grpc.ssl_channel_credentials(roots))
    assert serving(secure)
    plain = grpc.insecure_channel(guarded.grpc)
    if "enforcing" in request.node.name:
        with pytest.raises(grpc.RpcError):
            serving(plain)
    else:
        assert serving(plain)


@needs_openssl
@pytest.mark.parametrize("guarded", ["permissive"], indirect=True)
def test_every_official_client_that_knows_tls_connects_by_it(
    guarded: EscrowServer, authority: Authority, client: Client
) -> None:
    if not client.has_tls:
        pytest.skip(f"the {client.name} client knows no TLS")
    name = topic(guarded, client.name)
    root = str(authority.root)
    secure = {
        "ESCROW_TLS": "1",
        "NODE_EXTRA_CA_CERTS": root,
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": root,
        "rocketmq.client.enableSsl": "true",
    }
    assert client.play(guarded, "simple", name, **secure) == [f"m{nth}:a:3:1" for nth in range(5)]
