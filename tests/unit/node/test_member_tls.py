"""Settings of TLS between members, and what is said when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.certificates import OPENSSL, Authority, Pair

from escrowmq.errors import UsageError
from escrowmq.group.frames import FrameReader, GroupFrameKind, RefusalFrame, decode_struct
from escrowmq.net.tls import MemberTlsPolicy
from escrowmq.node.config import read_group_settings
from escrowmq.node.member_tls import explain_tls_failure, member_tls_policy

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("member", password="open sesame")


@pytest.fixture
def named(authority: Authority, pair: Pair) -> dict[str, str]:
    return {
        "escrowGroupTls": "enforcing",
        "escrowGroupTlsCertPath": str(pair.certificate),
        "escrowGroupTlsKeyPath": str(pair.key),
        "escrowGroupTlsKeyPassword": "open sesame",
        "escrowGroupTlsTrustCertPath": str(authority.root),
    }


def door_of(named: dict[str, str]) -> MemberTlsPolicy | None:
    settings = read_group_settings(named, authority="etcd://localhost:1", source="--set")
    assert settings is not None
    assert "sesame" not in repr(settings)
    return member_tls_policy(settings, source="--set")


def test_it_is_plain_unless_it_is_set() -> None:
    assert door_of({}) is None


def test_members_show_certificates_and_verify_them(named: dict[str, str]) -> None:
    door = door_of(named)
    assert door is not None
    assert door.mode == "enforcing"
    assert door.certificates.dialling is not None
    assert door.silent_s == door.handshake_s == 3
    ((kind, content),) = FrameReader().read_frames(door.refusal)
    assert kind is GroupFrameKind.REFUSAL
    assert "set escrowGroupTls=enforcing" in decode_struct(RefusalFrame, content).reason


def test_where_both_are_allowed_a_silent_copy_is_plain_soon(named: dict[str, str]) -> None:
    door = door_of(named | {"escrowGroupTls": "permissive"})
    assert door is not None
    assert door.mode == "permissive"
    assert door.silent_s == 0.5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"escrowGroupTls": "disabled"}, "escrowGroupTlsCertPath is set, and escrowGroupTls=dis"),
        (
            {"escrowGroupTlsCertPath": "", "escrowGroupTlsKeyPath": ""},
            "needs escrowGroupTlsCertPath and escrowGroupTlsKeyPath",
        ),
        ({"escrowGroupTlsTrustCertPath": ""}, "needs escrowGroupTlsTrustCertPath"),
        ({"escrowGroupTlsKeyPath": "none.key"}, "'none.key' cannot be read"),
        ({"escrowGroupTlsTrustCertPath": "none.pem"}, "trusted certificates 'none.pem'"),
        ({"escrowGroupTlsKeyPassword": ""}, "belong together"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(
    named: dict[str, str], changed: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        door_of(named | changed)
    assert str(caught.value).startswith("--set: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["Cert", "Key", "TrustCert"])
def test_a_file_that_would_be_without_effect_is_refused(named: dict[str, str], name: str) -> None:
    key = f"escrowGroupTls{name}Path"
    with pytest.raises(UsageError, match=f"{key} is set"):
        door_of({key: named[key]})


def test_the_key_may_be_in_the_certificates_file(
    authority: Authority, tmp_path: Path, named: dict[str, str]
) -> None:
    pair = authority.sign("one-file")
    one = tmp_path / "one.pem"
    one.write_text(pair.certificate.read_text() + pair.key.read_text())
    changed = {"escrowGroupTlsCertPath": str(one), "escrowGroupTlsKeyPath": ""}
    assert door_of(named | changed) is not None


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("NOT_TLS", "it speaks no TLS; set escrowGroupTls there"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it shows no certificate; if it is a member, set"),
        (
            "CERTIFICATE_VERIFY_FAILED: certificate has expired",
            "its certificate is not taken (certificate has expired); it must be signed by the CA",
        ),
        ("TLSV1_ALERT_UNKNOWN_CA", "it does not take this member's certificate (TLSV1_ALERT_UNK"),
        ("BAD_PACKET", "TLS with it has failed (BAD_PACKET)"),
    ],
)
def test_a_failed_handshake_is_explained(reason: str, said: str) -> None:
    assert explain_tls_failure(reason).startswith(said)
