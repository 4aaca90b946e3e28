"""Accounts by certificates of clients, over real TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.certificates import OPENSSL, Authority, Pair

from .place import OPERATOR, A, Line, Place

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


@pytest.fixture(name="authority", scope="module")
def make_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(name="certified", scope="module", params=["1.0", "2.0"])
def open_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[Place]:
    own = authority.sign("server")
    settings = (
        f"tls.server.certPath={own.certificate}", f"tls.server.keyPath={own.key}",
        "tls.server.need.client.auth=optional", "tls.server.authClient=true",
        f"tls.server.trustCertPath={authority.root}",
        f"escrowCertificateAccounts=CN:team-a={A};CN:{A}.example={A};CN:ops={OPERATOR}",
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("certified")
    with Place(folder, acl=request.param, settings=settings) as found:
        yield found


def show(
    place: Place,
    authority: Authority,
    pair: Pair | None,
    *,
    who: str | None = None,
    to: str = "",
) -> Line:
    """A connection by TLS that shows a certificate."""
    context = ssl.create_default_context(cafile=str(authority.root))
    if pair is not None:
        context.load_cert_chain(str(pair.certificate), str(pair.key))
    host, _, port = (to or place.broker).rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=20)
    return Line(place.broker, who, link=context.wrap_socket(plain, server_hostname="127.0.0.1"))


def test_a_certificate_stands_for_its_account(certified: Place, authority: Authority) -> None:
    with show(certified, authority, authority.sign("team-a")) as line:
        assert line.send("TA").code == 0
        assert line.send("TB").code != 0
        assert line.ask(17, {"topic": "new"}).code != 0


@pytest.mark.parametrize("name", ["team-b", A, "team-a ", "Team-A", "team-a\\\\00x", "operator"])
def test_another_name_is_nobodys(certified: Place, authority: Authority, name: str) -> None:
    with show(certified, authority, authority.sign(name)) as line:
        assert line.send("TA").code != 0
    with show(certified, authority, authority.sign(name), who=A) as line:
        assert line.send("TA").code == 0  # who signs needs none


def test_no_certificate_is_nobodys(certified: Place, authority: Authority) -> None:
    with show(certified, authority, None) as line:
        assert line.send("TA").code != 0


def test_one_that_others_have_signed_is_refused(
    certified: Place, authority: Authority, tmp_path: Path
) -> None:
    forged = Authority(tmp_path / "forger", name="root").sign("team-a")
    with pytest.raises(OSError), show(certified, authority, forged) as line:  # noqa: PT011
        line.send("TA")


def test_the_name_server_takes_an_administrators_certificate_and_no_other(
    certified: Place, authority: Authority
) -> None:
    for name, code in (("ops", 0), ("team-a", 16), ("team-b", 16)):
        pair = authority.sign(name)
        with show(certified, authority, pair, to=certified.nameserver) as line:
            assert line.ask(216, {"topic": "gone"}).code == code, name
