from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from escrowmq.client.client_settings import parse_client_options
from escrowmq.client.instance import ClientInstance
from escrowmq.client.tls import Tls, make_ssl_context
from escrowmq.errors import NoNameServer, UsageError
from tests.harness.certificates import Authority, Pair

from .peer import Link, Peer

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, its key beside it."""
    path = tmp_path / "cert.pem"
    command = [str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=peer"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(path)]
    command += ["-keyout", str(tmp_path / "key.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return path


async def _secure_peer(certificate: Path) -> tuple[Peer, asyncio.Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    peer = Peer()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Link(peer), "127.0.0.1", 0, ssl=context)
    peer.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    return peer, server


def test_a_trusted_certificate_lets_requests_through_and_others_do_not(certificate: Path) -> None:
    async def go() -> None:
        peer, server = await _secure_peer(certificate)
        trusting = ssl.create_default_context(cafile=str(certificate))
        instance = ClientInstance(parse_client_options(peer.address, {"tls": trusting}))
        await instance.open()
        reply = await instance.names.ask(105, {"topic": "T"})
        assert reply.code == 0
        await instance.close()

        wary = ClientInstance(
            parse_client_options(peer.address, {"tls": ssl.create_default_context()})
        )
        await wary.open()
        with pytest.raises(NoNameServer, match=r"(?i)certificate"):
            await wary.names.ask(105, {"topic": "T"})
        await wary.close()
        server.close()

    asyncio.run(go())


def _authority_files(tmp_path: Path) -> tuple[Authority, Pair]:
    authority = Authority(tmp_path / "authority")
    return authority, authority.sign("one", password="open sesame")


def test_a_setting_means_a_context(tmp_path: Path) -> None:
    authority, pair = _authority_files(tmp_path)
    assert make_ssl_context(None) is None
    assert make_ssl_context(False) is None
    given = ssl.create_default_context()
    assert make_ssl_context(given) is given
    plain = make_ssl_context(True)
    assert plain is not None
    assert (plain.verify_mode, plain.check_hostname) == (ssl.CERT_REQUIRED, True)
    lax = make_ssl_context(Tls(verify=False))
    assert lax is not None
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)
    nameless = make_ssl_context(
        Tls(
            trusted=authority.root,
            certificate=pair.certificate,
            key=pair.key,
            password="open sesame",
            checks_name=False,
        )
    )
    assert nameless is not None
    assert (nameless.verify_mode, nameless.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_files_that_are_no_good_are_named(tmp_path: Path) -> None:
    _, pair = _authority_files(tmp_path)
    locked = Tls(certificate=pair.certificate, key=pair.key, password="wrong")
    assert "wrong" not in repr(locked)
    for setting, reason in (
        (locked, "one"),
        (Tls(certificate=tmp_path / "none.pem"), r"none\.pem"),
        (Tls(trusted=tmp_path / "none.pem"), r"none\.pem"),
        (Tls(trusted=pair.key), r"one\.key"),
        (Tls(key=pair.key), "without a certificate"),
        ("yes", "an ssl.SSLContext is expected"),
    ):
        with pytest.raises(UsageError, match=reason):
            make_ssl_context(setting)  # type: ignore[arg-type]
