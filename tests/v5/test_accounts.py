"""Every official client signs its calls, and is judged by what it signed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.servers import EscrowServer

from .clients import Client, RefusedError
from .places import SETTINGS, topic

pytestmark = pytest.mark.interop

ACCOUNTS = """\
accounts:
- accessKey: shop-owner
  secretKey: secret-of-shop
  topicPerms: [Guarded=PUB|SUB]
  groupPerms: [CG-Guarded=SUB]
"""


@pytest.fixture(name="guarded", scope="module")
def make_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EscrowServer]:
    folder = tmp_path_factory.mktemp("guarded")
    accounts = folder / "accounts"
    accounts.mkdir()
    (accounts / "plain_acl.yml").write_text(ACCOUNTS)
    plain = EscrowServer(folder / "server", **SETTINGS)
    topic(plain, "Guarded")
    plain.stop()
    server = EscrowServer(folder / "server", **SETTINGS, aclEnable=True, escrowAclFolder=accounts)
    yield server
    server.stop()


def test_who_proves_who_he_is_sends_and_receives(guarded: EscrowServer, client: Client) -> None:
    found = client.play(guarded, "simple", "Guarded", "shop-owner", "secret-of-shop")
    assert found == [f"m{nth}:a:3:1" for nth in range(5)]


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param((), id="nobody"),
        pytest.param(("shop-owner", "another"), id="wrong secret"),
        # To a client it is one answer with that to a wrong secret.
        pytest.param(("somebody", "secret-of-shop"), id="unknown key", marks=pytest.mark.long),
    ],
)
def test_everybody_else_is_refused(
    guarded: EscrowServer, client: Client, credentials: tuple[str, ...]
) -> None:
    with pytest.raises(RefusedError):
        client.play(guarded, "send", "Guarded", *credentials)
