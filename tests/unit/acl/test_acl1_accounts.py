from __future__ import annotations

import pytest

from escrowmq.acl.acl1_accounts import (
    DENY,
    PUB,
    SUB,
    AccountFile,
    merge_files,
    parse_document,
    parse_permission,
    read_accounts,
)
from escrowmq.acl.acl1_guard import is_signed
from escrowmq.acl.trusted_addresses import address_parts
from escrowmq.base.command import Command
from escrowmq.codec.signature import sign_fields
from escrowmq.errors import UsageError

FILE = b"""
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.1
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC = SUB
  groupPerms: [groupA=DENY, groupB=PUB|SUB]
- accessKey: rocketmq2
  secretKey: 0x123456
  whiteRemoteAddress: 192.168.1.*
  admin: true
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""


def test_a_whole_file() -> None:
    file = read_accounts(FILE)
    plain, admin = file.accounts
    assert (plain.access_key, plain.secret, plain.is_admin) == ("RocketMQ", "12345678", False)
    assert (admin.access_key, admin.secret, admin.is_admin) == ("rocketmq2", "0x123456", True)
    assert plain.resources == {
        "%RETRY%groupA": DENY, "%RETRY%groupB": PUB | SUB,
        "topicA": DENY, "topicB": PUB | SUB, "topicC": SUB,
    }  # fmt: skip
    assert (plain.topic_default, plain.group_default) == (DENY, SUB)
    assert (admin.topic_default, admin.group_default) == (DENY, DENY)
    assert admin.addresses.matches(address_parts("192.168.1.7"))
    assert not plain.addresses.matches(address_parts("192.168.1.7"))
    assert (file.counter, file.timestamp) == (3, 1_700_000_000_000)


def test_listed_rights_go_before_the_default_of_their_kind() -> None:
    plain = read_accounts(FILE).accounts[0]
    assert plain.right_to("topicB") == (PUB | SUB, True)
    assert plain.right_to("topicX") == (DENY, False)
    assert plain.right_to("%RETRY%groupA") == (DENY, True)
    assert plain.right_to("%RETRY%groupX") == (SUB, False)


def test_no_secret_is_shown() -> None:
    assert "12345678" not in repr(read_accounts(FILE))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("PUB", PUB), (" SUB ", SUB), ("PUB|SUB", PUB | SUB), ("SUB|PUB", PUB | SUB),
        ("DENY", DENY), ("", DENY), ("pub", DENY), ("ANY", DENY), ("PUB | SUB", DENY),
    ],
)  # fmt: skip
def test_rights_by_name(text: str, right: int) -> None:
    assert parse_permission(text) == right


def test_an_empty_file_has_no_accounts() -> None:
    assert read_accounts(b"") == AccountFile()
    assert read_accounts(b"accounts:\nglobalWhiteRemoteAddresses:\n") == AccountFile()


KEYS = "accessKey: account-1, secretKey: secret-1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a text", "members like `name: value`"),
        ("unknown: 1", "the file: an unknown member; allowed"),
        ("accounts: 7", "a list is expected"),
        ("accounts: [7]", "account 1: members"),
        ("accounts: [{accessKey: account-1, secretKey: short}]", "9 and 5 characters; at least 7"),
        ("accounts: [{accessKey: account-1}]", "9 and 0 characters"),
        (
            f"accounts: [{{{KEYS}, other: 1}}]",
            "account 1: an unknown member; allowed",
        ),
        (f"accounts: [{{{KEYS}, admin: perhaps}}]", "admin must be true or false"),
        (f"accounts: [{{{KEYS}, topicPerms: [topicA]}}]", "'topicA' is not a right"),
        (f"accounts: [{{{KEYS}, topicPerms: topicA=PUB}}]", "topicPerms: a list is expected"),
        (f"accounts: [{{{KEYS}, groupPerms: [[x]]}}]", "a text is expected"),
        (f"accounts: [{{{KEYS}, whiteRemoteAddress: nowhere}}]", "address 'nowhere'"),
        ("globalWhiteRemoteAddresses: [1.2.3]", r"address '1\.2\.3'"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_accounts(text.encode())


@pytest.mark.parametrize(
    ("word", "is_admin"), [("true", True), ("Yes", True), ("off", False), ("", False)]
)
def test_truths_are_those_of_yaml(word: str, is_admin: bool) -> None:
    [account] = read_accounts(f"accounts: [{{{KEYS}, admin: {word}}}]".encode()).accounts
    assert account.is_admin is is_admin


def test_a_version_that_is_no_number_is_none() -> None:
    file = parse_document({"dataVersion": [{"counter": "x", "timestamp": ["1"]}]})
    assert (file.counter, file.timestamp) == (0, 0)
    assert parse_document({"dataVersion": ["x"]}).counter == 0


def one(key: str, *, address: str = "", counter: int = 0) -> AccountFile:
    text = f"""
globalWhiteRemoteAddresses: [{address}]
accounts: [{{accessKey: {key}, secretKey: secret-of-{key}, admin: {str(counter > 0).lower()}}}]
dataVersion: [{{counter: {counter}, timestamp: 9}}]
"""
    return read_accounts(text.encode())


def test_the_first_of_several_files_counts() -> None:
    rules = merge_files(
        [
            ("a.yml", one("account-1", address="10.0.0.1")),
            ("b.yml", one("account-1", counter=1)),
            ("plain.yml", one("account-2", address="10.0.0.2", counter=5)),
        ],
        default="plain.yml",
    )
    assert not rules.accounts["account-1"].is_admin
    assert rules.repeated == ("account-1",)
    assert rules.homes == {"account-1": "a.yml", "account-2": "plain.yml"}
    assert rules.is_trusted(address_parts("10.0.0.1"))
    assert rules.is_trusted(address_parts("10.0.0.2"))
    assert not rules.is_trusted(address_parts("10.0.0.3"))
    assert (rules.counter, rules.timestamp) == (5, 9)


def test_a_secret_that_became_part_of_a_name_is_not_repeated() -> None:
    for line in ("{accessKey: orders-1, secretKey:my-secret-key}", "{my-secret-key: 1}"):
        with pytest.raises(UsageError) as caught:
            read_accounts(f"accounts: [{line}]".encode())
        assert "my-secret" not in str(caught.value)
        assert "is secretKey meant" in str(caught.value)


def test_a_former_secret_counts_as_well_and_is_long_enough() -> None:
    text = "accounts: [{accessKey: service-1, secretKey: secret-new, formerSecretKey: secret-old}]"
    (account,) = read_accounts(text.encode()).accounts
    assert (account.secret, account.former) == ("secret-new", "secret-old")
    for secret in ("secret-new", "secret-old", "secret-other"):
        fields = {"AccessKey": "service-1"}
        fields["Signature"] = sign_fields(fields, b"", secret=secret)
        request = Command(code=10, ext=fields)
        assert is_signed(request, account.secret, account.former) == (secret != "secret-other")
    with pytest.raises(UsageError, match="formerSecretKey has 3 characters"):
        read_accounts(text.replace("secret-old", "old").encode())
