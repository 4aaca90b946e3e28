from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from escrowmq.acl.acl1_accounts import merge_files, read_accounts
from escrowmq.acl.acl2_policies import Resource, parse_resource
from escrowmq.acl.acl2_users import PATH, UserStatus, UserTable, UserType, parse_users_file
from escrowmq.codec.acl2_bodies import AclInfo, UserInfo
from escrowmq.errors import UsageError
from escrowmq.testing.disk import SimDisk

SECRET = "a-long-secret"


def acl(resource: str, *actions: str, kind: str = "Custom", decision: str = "Allow") -> AclInfo:
    entry = {"resource": resource, "actions": list(actions or ("Pub",)), "decision": decision}
    return msgspec.convert({"policies": [{"policyType": kind, "entries": [entry]}]}, AclInfo)


def opened(disk: SimDisk) -> UserTable:
    book = UserTable(disk)
    book.load()
    return book


@pytest.fixture(name="disk")
def make_disk() -> SimDisk:
    return SimDisk()


@pytest.fixture(name="book")
def make_book(disk: SimDisk) -> UserTable:
    book = opened(disk)
    book.create_user(UserInfo("orders", SECRET))
    return book


def resource(text: str) -> Resource:
    found = parse_resource(text)
    assert found is not None
    return found


def test_users_and_policies_are_on_disk_before_they_count(disk: SimDisk, book: UserTable) -> None:
    book.put_policies("User:orders", acl("Topic:T"))
    book.put_policies("User:orders", acl("Topic:*", "Sub", kind="Default"))
    again = opened(disk)
    assert again.users == book.users
    assert again.policies == book.policies
    assert PATH in disk.private


def test_a_disk_that_is_full_changes_nothing(disk: SimDisk, book: UserTable) -> None:
    before = dict(book.users)

    def full(path: str, data: bytes, *, is_private: bool = False) -> None:
        raise OSError(28, "No space left on device")

    disk.replace = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        book.create_user(UserInfo("other", SECRET))
    assert book.users == before


def test_users_are_changed_in_what_is_given(book: UserTable) -> None:
    book.update_user(UserInfo("orders", user_status="disable"))
    user = book.users["orders"]
    assert (user.password, user.status, user.type) == (
        SECRET, UserStatus.DISABLE, UserType.NORMAL,
    )  # fmt: skip
    book.update_user(UserInfo("orders", "another", user_type="super", user_status="ENABLE"))
    user = book.users["orders"]
    assert (user.password, user.status, user.is_super) == ("another", UserStatus.ENABLE, True)
    book.update_user(UserInfo("orders", " "))
    assert book.users["orders"] == user


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (UserInfo("orders", SECRET), "The user is existed"),
        (UserInfo(" ", SECRET), "username can not be blank"),
        (UserInfo("other", ""), "password can not be blank"),
        (UserInfo("x" * 256, SECRET), "256 characters"),
        (UserInfo("other", "x" * 1_025), "1025 characters"),
    ],
)
def test_users_that_there_cannot_be_are_refused(
    book: UserTable, info: UserInfo, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        book.create_user(info)
    with pytest.raises(UsageError, match="The user is not exist"):
        book.update_user(UserInfo("nobody", SECRET))


def test_the_number_of_users_is_bounded(book: UserTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.acl.acl2_users.AUTH_USERS_MAX", 1)
    with pytest.raises(UsageError, match="there are 1 users"):
        book.create_user(UserInfo("other", SECRET))
    two = json.dumps({"users": [{"username": name, "password": SECRET} for name in "ab"]})
    with pytest.raises(UsageError, match="2 users; 1 are allowed"):
        parse_users_file(two.encode())


@pytest.mark.parametrize("text", ["Topic:*-public*", "Topic:a*c*", "Any:x", "Topic:a*c"])
def test_a_pattern_that_would_mean_something_else_is_refused(
    disk: SimDisk, book: UserTable, text: str
) -> None:
    with pytest.raises(UsageError, match="would mean"):
        book.put_policies("User:orders", acl(text))
    assert book.policies == {}
    peers = UserTable(disk, as_rocketmq=True)
    peers.load()
    peers.put_policies("User:orders", acl(text))
    assert "orders" in peers.policies


@pytest.mark.parametrize("text", ["Topic:*-public*", "Topic:a*c*", "Any:x"])
def test_a_file_with_a_pattern_that_opens_more_than_it_says_is_not_read(text: str) -> None:
    entry = {"resource": text, "actions": ["Pub"], "decision": "Allow"}
    acls = [{"subject": "User:u", "policies": [{"entries": [entry]}]}]
    with pytest.raises(UsageError, match="would mean"):
        parse_users_file(json.dumps({"acls": acls}).encode())
    assert "u" in parse_users_file(json.dumps({"acls": acls}).encode(), as_rocketmq=True).policies


def test_a_pattern_of_old_that_opens_nothing_is_told_and_kept(
    disk: SimDisk, book: UserTable, caplog: pytest.LogCaptureFixture
) -> None:
    book.as_rocketmq = True
    book.put_policies("User:orders", acl("Topic:a*c", decision="Deny"))
    assert opened(disk).policies == book.policies
    assert "'Topic:a*c', which is not a valid pattern" in caplog.text


def test_two_passwords_count_while_clients_are_given_the_other(
    disk: SimDisk, book: UserTable
) -> None:
    def both() -> tuple[str, str]:
        user = opened(disk).users["orders"]
        assert user == book.users["orders"]
        return user.password, user.former

    assert both() == (SECRET, "")
    book.update_user(UserInfo("orders", "another-secret", keeps_former=True))
    assert both() == ("another-secret", SECRET)
    book.update_user(UserInfo("orders", user_status="enable"))
    assert both() == ("another-secret", SECRET)
    assert SECRET not in str(book.users["orders"].to_fields(with_password=True))
    book.update_user(UserInfo("orders", keeps_former=False))
    assert both() == ("another-secret", "")
    book.update_user(UserInfo("orders", "a-third-secret"))
    assert both() == ("a-third-secret", "")
    book.create_user(UserInfo("other", SECRET, former_password="smuggled"))
    assert book.users["other"].former == ""


def test_a_user_goes_with_his_policies(disk: SimDisk, book: UserTable) -> None:
    book.put_policies("User:orders", acl("Topic:T"))
    book.delete_user("orders")
    book.delete_user("orders")
    assert (book.users, book.policies) == ({}, {})
    assert opened(disk).policies == {}


def test_policies_are_removed_one_by_one_or_all(book: UserTable) -> None:
    book.put_policies("User:orders", acl("Topic:T"))
    book.put_policies("User:orders", acl("Topic:T2"))
    book.put_policies("User:orders", acl("Topic:*", kind="Default"))
    book.delete_policies("User:orders", None, resource("Topic:T"))
    assert [str(e.resource) for e in book.policies["orders"].custom] == ["Topic:T2"]
    book.delete_policies("User:orders", "Default", resource("Topic:*"))
    book.delete_policies("User:orders", "Custom", resource("Topic:T2"))
    assert book.policies == {}
    book.put_policies("User:orders", acl("Topic:T"))
    book.delete_policies("User:orders", None, None)
    assert book.policies == {}


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("User:nobody", r"The subject( of User:nobody)? is not exist"),
        ("nobody", "The subject is null|The subject is not exist"),
        ("User:", "The subject is null|The subject is not exist"),
    ],
)
def test_policies_are_of_users(book: UserTable, subject: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        book.put_policies(subject, acl("Topic:T"))
    with pytest.raises(UsageError, match=reason):
        book.delete_policies(subject, None, None)
    with pytest.raises(UsageError, match=reason):
        book.user_policies(subject)
    with pytest.raises(UsageError, match="The acl is not exist"):
        book.delete_policies("User:orders", None, None)
    assert book.user_policies("User:orders") is None


def test_the_subject_of_the_body_counts_more(book: UserTable) -> None:
    info = acl("Topic:T")
    info.subject = "User:orders"
    book.put_policies("User:nobody", info)
    assert "orders" in book.policies


def test_users_and_policies_are_found_by_parts(book: UserTable) -> None:
    book.create_user(UserInfo("bills", SECRET))
    for name, topic in (("orders", "Topic:paid"), ("orders", "Group:g"), ("bills", "Topic:paid")):
        book.put_policies(f"User:{name}", acl(topic))
    assert [user.name for user in book.find_users("")] == ["bills", "orders"]
    assert [user.name for user in book.find_users("rder")] == ["orders"]

    def found(subject: str, part: str) -> list[Any]:
        return [
            (one["subject"], entry["resource"])
            for one in book.find_policies(subject, part)
            for policy in one["policies"]
            for entry in policy["entries"]
        ]

    assert found("", "Group") == [("User:orders", "Group:g")]
    assert found("bills", "") == [("User:bills", "Topic:paid")]
    assert len(found("", "")) == 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "no JSON"),
        (b"[]", "Expected"),
        (b'{"users": [{"username": "u"}]}', "password"),
        (b'{"acls": [{"subject": "u"}]}', "acl 1"),
        (b'{"acls": [{"subject": "User:u", "policies": []}]}', "policies is empty"),
        (b'{"users": [{"username": "u", "password": 7e400}]}', ""),
        (b"\xff", "no JSON"),
    ],
)
def test_a_broker_does_not_take_a_file_that_it_cannot_read(data: bytes, reason: str) -> None:
    disk = SimDisk()
    disk.small[PATH] = data
    with pytest.raises(UsageError, match=rf"auth\.json: .*{reason}"):
        opened(disk)


def test_no_password_stands_in_an_error_or_a_text(book: UserTable) -> None:
    with pytest.raises(UsageError) as caught:
        parse_users_file(b'{"users": [{"username": "u", "password": "' + SECRET.encode())
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(book.users["orders"])
    assert SECRET not in repr(UserInfo("orders", SECRET))
    assert "password" not in book.users["orders"].to_fields(with_password=False)


def test_a_file_of_too_many_bytes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.acl.acl2_users.AUTH_FILE_SIZE_MAX", 10)
    disk = SimDisk()
    disk.small[PATH] = b'{"users": [], "acls": []}'
    with pytest.raises(UsageError, match="10 are allowed"):
        opened(disk)


FILE = f"""
globalWhiteRemoteAddresses: [10.0.0.1]
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- accessKey: service-1
  secretKey: {SECRET}
  defaultTopicPerm: SUB
  topicPerms: [paid=PUB|SUB, secret=DENY]
  groupPerms: [mailer=SUB]
- {{accessKey: already, secretKey: {SECRET}, admin: true}}
""".encode()


def test_a_star_in_a_name_of_acl_1_does_not_become_a_pattern(disk: SimDisk) -> None:
    book = opened(disk)
    file = FILE.replace(b"paid=PUB|SUB", b"pa*=PUB|SUB")
    book.migrate_accounts(
        merge_files([("plain_acl.yml", read_accounts(file))], default="plain_acl.yml")
    )
    assert [str(e.resource) for e in opened(disk).policies["service-1"].custom] == [
        "Topic:secret", "Group:mailer",
    ]  # fmt: skip


def test_accounts_of_acl_1_become_users(disk: SimDisk) -> None:
    book = opened(disk)
    book.create_user(UserInfo("already", "his own"))
    rules = merge_files([("plain_acl.yml", read_accounts(FILE))], default="plain_acl.yml")
    assert book.migrate_accounts(rules) == 2
    assert book.migrate_accounts(rules) == 0
    assert book.users["operator"].is_super
    assert book.users["already"].password == "his own"
    assert json.loads(disk.small[PATH])["acls"][1] == {
        "policies": [
            {
                "entries": [
                    {"actions": ["Pub", "Sub"], "decision": "Allow", "resource": "Topic:paid"},
                    {"actions": ["All"], "decision": "Deny", "resource": "Topic:secret"},
                    {"actions": ["Sub"], "decision": "Allow", "resource": "Group:mailer"},
                ],
                "policyType": "Custom",
            },
            {
                "entries": [
                    {"actions": ["Sub"], "decision": "Allow", "resource": "Topic:*"},
                    {"actions": ["All"], "decision": "Deny", "resource": "Group:*"},
                ],
                "policyType": "Default",
            },
        ],
        "subject": "User:service-1",
    }
    assert opened(disk).policies == book.policies
