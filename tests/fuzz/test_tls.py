"""Whatever bytes come where TLS is spoken, a session gives plain bytes or one kind of error."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest

from escrowmq.net.certificates import TlsFiles, server_context
from escrowmq.net.tls import Session
from tests.harness.certificates import OPENSSL, Authority

from .frames import SEED, TALLY, spoil, tries

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("authority")
    authority = Authority(folder)
    pair = authority.sign("server")
    server = server_context(TlsFiles(certificate=str(pair.certificate), key=str(pair.key)))
    return server, ssl.create_default_context(cafile=str(authority.root))


def opened(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> tuple[Session, Session]:
    server = Session(contexts[0], is_server=True)
    client = Session(contexts[1], is_server=False, host="localhost")
    client.receive(b"")
    while not (server.is_open and client.is_open):
        server.receive(client.pending())
        client.receive(server.pending())
    return server, client


def test_spoiled_handshakes_and_records_are_refused_as_such(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    chance = random.Random(SEED)
    refused = 0
    for _ in tries(200, share=0.5):
        server, client = opened(contexts)
        if chance.random() < 0.5:
            server = Session(contexts[0], is_server=True)
            client = Session(contexts[1], is_server=False, host="localhost")
            client.receive(b"")
            data = client.pending()
        else:
            data = client.send(chance.randbytes(chance.randrange(1, 2_000)))
        TALLY["TLS"] += 1
        try:
            plain = server.receive(spoil(data, chance))
            assert len(plain) <= len(data)
        except ssl.SSLError:
            refused += 1
        server.pending()
        server.end()
    assert refused > 10


def test_bytes_in_pieces_mean_the_same(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    chance = random.Random(SEED)
    server, client = opened(contexts)
    body = chance.randbytes(100_000)
    data = client.send(body)
    found = b""
    while data:
        at = chance.randrange(1, 9_000)
        found += server.receive(data[:at])
        data = data[at:]
    assert found == body
    server.receive(client.end())
    assert server.has_ended
