from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from escrowmq.client.instance import Instance
from escrowmq.client.options import client_options
from escrowmq.errors import NoNameServer

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
        instance = Instance(client_options(peer.address, {"tls": trusting}))
        await instance.open()
        reply = await instance.names.ask(105, {"topic": "T"})
        assert reply.code == 0
        await instance.close()

        wary = Instance(client_options(peer.address, {"tls": ssl.create_default_context()}))
        await wary.open()
        with pytest.raises(NoNameServer, match=r"(?i)certificate"):
            await wary.names.ask(105, {"topic": "T"})
        await wary.close()
        server.close()

    asyncio.run(go())
