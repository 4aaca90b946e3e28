from __future__ import annotations

import pytest

from escrowmq.client.core.credentials import Credentials
from escrowmq.errors import UsageError


@pytest.mark.parametrize("keys", [("", "secret"), ("account", ""), ("", "")])
def test_an_account_has_two_keys(keys: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="one is empty"):
        Credentials(*keys)


def test_no_secret_is_in_the_text_of_credentials() -> None:
    assert "hidden" not in repr(Credentials("a", "hidden", "hidden"))
    assert repr(Credentials("account", "b")) == "Credentials(access_key='account')"
