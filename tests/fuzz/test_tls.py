"""Whatever bytes come where TLS is spoken, a session gives plain bytes or one kind of error."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest

from escrowmq.net.certificates import TlsFiles, make_server_context
from escrowmq.net.tls import TlsSession
from tests.harness.certificates import OPENSSL, Authority

from .frames import SEED, TALLY, spoil, tries

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("authority")
    authority = Authority(folder)
    pair = authority.sign("server")
    server = make_server_context(TlsFiles(certificate=str(pair.certificate), key=str(pair.key)))
    return server, ssl.create_default_context(cafile=str(authority.root))


def opened(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> tuple[TlsSession, TlsSession]:
    server = TlsSession(contexts[0], is_server=True)
    client = TlsSession(contexts[1], is_server=False, host="localhost")
    client.decrypt(b"")
    while not (server.is_open and client.is_open):
        server.decrypt(client.pending_bytes())
        client.decrypt(server.pending_bytes())
    return server, client


def test_spoiled_handshakes_and_records_are_refused_as_such(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    chance = random.Random(SEED)
    refused = 0
    for _ in tries(200, share=0.5):
        server, client = opened(contexts)
        if chance.random() < 0.5:
            server = TlsSession(contexts[0], is_server=True)
            client = TlsSession(contexts[1], is_server=False, host="localhost")
            client.decrypt(b"")
            data = client.pending_bytes()
        else:
            data = client.encrypt(chance.randbytes(chance.randrange(1, 2_000)))
        TALLY["TLS"] += 1
        try:
            plain = server.decrypt(spoil(data, chance))
            assert len(plain) <= len(data)
        except ssl.SSLError:
            refused += 1
        server.pending_bytes()
        server.closing_alert()
    assert refused > 10


def test_bytes_in_pieces_mean_the_same(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    chance = random.Random(SEED)
    server, client = opened(contexts)
    body = chance.randbytes(100_000)
    data = client.encrypt(body)
    found = b""
    while data:
        at = chance.randrange(1, 9_000)
        found += server.decrypt(data[:at])
        data = data[at:]
    assert found == body
    server.decrypt(client.closing_alert())
    assert server.has_ended
