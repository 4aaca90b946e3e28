from __future__ import annotations

import pytest

from escrowmq.acl.acl1_accounts import PUB, SUB, AccountFile, read_accounts
from escrowmq.acl.acl1_editing import (
    AccountFields,
    with_account,
    with_trusted_addresses,
    without_account,
)
from escrowmq.acl.yaml_document import encode_yaml, parse_yaml
from escrowmq.errors import UsageError

FILE = b"""
globalWhiteRemoteAddresses: [10.0.0.1]
accounts:
- {accessKey: account-1, secretKey: 0012345, admin: yes, topicPerms: [a=PUB]}
- {accessKey: account-2, secretKey: secret-2}
dataVersion: [{counter: 3, timestamp: 7}]
"""


def after(document: object) -> AccountFile:
    return read_accounts(encode_yaml(document))


def test_an_account_is_added() -> None:
    wish = AccountFields(
        access_key="account-3", secret="secret-3", address="10.0.0.*", topics=["t=PUB|SUB"],
        topic_default="SUB", groups=["g=SUB"], group_default="PUB",
    )  # fmt: skip
    file = after(with_account(parse_yaml(FILE), wish, now_ms=99))
    first, _, added = file.accounts
    assert (first.secret, first.is_admin) == ("0012345", True)
    assert added.resources == {"t": PUB | SUB, "%RETRY%g": SUB}
    assert (added.topic_default, added.group_default, added.is_admin) == (SUB, PUB, False)
    assert (file.counter, file.timestamp, len(file.anyone)) == (4, 99, 1)


def test_of_a_known_account_only_what_is_said_is_replaced() -> None:
    wish = AccountFields(access_key="account-1", secret="secret-9", groups=["g=SUB"])
    first = after(with_account(parse_yaml(FILE), wish, now_ms=99)).accounts[0]
    assert (first.secret, first.is_admin) == ("secret-9", False)  # admin is always said
    assert first.resources == {"a": PUB, "%RETRY%g": SUB}


def test_an_account_is_removed() -> None:
    file = after(without_account(parse_yaml(FILE), "account-1", now_ms=9))
    assert [account.access_key for account in file.accounts] == ["account-2"]
    assert file.counter == 4


def test_addresses_are_replaced() -> None:
    file = after(with_trusted_addresses(parse_yaml(FILE), ["10.*.*.*", "10.0.0.{1,2}"], now_ms=9))
    assert len(file.anyone) == 2
    assert len(file.accounts) == 2


def test_the_first_account_of_all() -> None:
    wish = AccountFields(access_key="account-1", secret="secret-1")
    file = after(with_account(None, wish, now_ms=5))
    assert (len(file.accounts), file.counter, file.timestamp) == (1, 1, 5)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (AccountFields(access_key="short", secret="secret-1"), "accessKey=short"),
        (AccountFields(access_key="account-1"), "longer than 6"),
        (
            AccountFields(access_key="account-1", secret="secret-1", topics=["t1=FOO"]),
            "Parse resource permission error for t1=FOO",
        ),
        (
            AccountFields(access_key="account-1", secret="secret-1", groups=["X"]),
            "Parse Resource format error for X",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_the_peers_words(wish: AccountFields, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        with_account(None, wish, now_ms=0)
    assert "secret-1" not in str(caught.value)
    assert "secret-1" not in repr(wish)


def test_a_bad_file_is_not_changed() -> None:
    with pytest.raises(UsageError, match="an unknown member"):
        without_account(parse_yaml(b"x: 1"), "account-1", now_ms=0)
