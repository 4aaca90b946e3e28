from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.harness.certificates import OPENSSL, Authority, Pair

from escrowmq.errors import UsageError
from escrowmq.node.config import convert_settings, gather_settings
from escrowmq.node.connection_settings import ConnectionSettings, make_port_options

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server", password="open sesame")


def settings_of(*pairs: str) -> ConnectionSettings:
    return convert_settings(ConnectionSettings, gather_settings(None, list(pairs)), source="--set")


def shown(pair: Pair) -> list[str]:
    return [
        f"tls.server.certPath={pair.certificate}",
        f"tls.server.keyPath={pair.key}",
        "tls.server.keyPassword=open sesame",
    ]


def test_without_a_certificate_there_is_no_tls() -> None:
    found = settings_of("escrowConnectionsMax=5", "escrowConnectionsPerAddress=2")
    doors = make_port_options(found, source="--set")
    assert (doors.tls, doors.dials_tls) == (None, None)
    assert (doors.limits.connections_max, doors.limits.per_address_max) == (5, 2)


def test_a_certificate_opens_the_port_to_both(pair: Pair) -> None:
    doors = make_port_options(settings_of(*shown(pair)), source="--set")
    assert doors.tls is not None
    assert doors.tls.mode == "permissive"
    assert (
        make_port_options(settings_of(*shown(pair), "tls.server.mode=disabled"), source="").tls
        is None
    )


def test_a_file_of_tls_settings_counts_more(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("\n".join([*shown(pair), "brokerName=not for here"]))
    found = gather_settings(None, [f"tls.config.file={file}", "tls.server.certPath=other.pem"])
    assert found["tls.server.certPath"] == str(pair.certificate)
    assert "brokerName" not in found
    with pytest.raises(UsageError, match=r"tls\.config\.file=.*none"):
        gather_settings(None, [f"tls.config.file={tmp_path}/none"])
    file.write_text("tls.server.mode=\\u12")
    with pytest.raises(UsageError, match=r"tls\.config\.file="):
        gather_settings(None, [f"tls.config.file={file}"])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["tls.server.need.client.auth=require"], "is not checked proves nothing"),
        (["escrowCertificateAccounts=CN"], "no client is asked for a certificate"),
        (["tls.server.need.client.auth=optional", "tls.server.authClient=true"], "trustCertPath"),
        (["tls.server.keyPassword=wrong"], "password"),
        (["tls.enable=true", "tls.client.certPath=none.pem"], r"none\.pem"),
        (
            ["tls.enable=true", "tls.client.authServer=true", "tls.client.trustCertPath=none.pem"],
            r"none\.pem",
        ),
    ],
)
def test_what_cannot_be_had_is_told_with_its_source(
    pair: Pair, more: list[str], reason: str
) -> None:
    with pytest.raises(UsageError, match=rf"broker\.conf: .*{reason}"):
        make_port_options(settings_of(*shown(pair), *more), source="broker.conf")


def test_calls_by_tls_check_the_other_side_when_they_are_told_to(
    authority: Authority, pair: Pair
) -> None:
    lax = make_port_options(settings_of("tls.enable=true"), source="").dials_tls
    assert lax is not None
    assert lax.verify_mode == ssl.CERT_NONE
    wary = make_port_options(
        settings_of(
            "tls.enable=true",
            "tls.client.authServer=true",
            f"tls.client.trustCertPath={authority.root}",
            f"tls.client.certPath={pair.certificate}",
            f"tls.client.keyPath={pair.key}",
            "tls.client.keyPassword=open sesame",
        ),
        source="",
    ).dials_tls
    assert wary is not None
    assert (wary.verify_mode, wary.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_a_server_that_enforces_tls_calls_itself_by_tls(authority: Authority, pair: Pair) -> None:
    strict = [*shown(pair), "tls.server.mode=enforcing"]
    assert make_port_options(settings_of(*strict), source="").dials_tls is None
    assert (
        make_port_options(settings_of(*strict), source="", dials_itself=True).dials_tls is not None
    )
    strict += ["tls.server.need.client.auth=require", "tls.server.authClient=true"]
    strict += [f"tls.server.trustCertPath={authority.root}"]
    with pytest.raises(UsageError, match=r"tls\.client\.certPath"):
        make_port_options(settings_of(*strict), source="", dials_itself=True)


def test_no_password_is_shown(pair: Pair) -> None:
    assert "sesame" not in repr(settings_of(*shown(pair)))
