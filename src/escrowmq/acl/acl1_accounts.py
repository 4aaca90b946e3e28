"""The accounts of plain_acl.yml (ACL 1.0).

globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.*]
accounts:
- accessKey: RocketMQ            more than 6 characters
  secretKey: 12345678            more than 6 characters, taken as text
  formerSecretKey:               counts as well, while clients are given the other one
  whiteRemoteAddress:            one pattern (trusted_addresses.py)
  admin: false
  defaultTopicPerm: DENY         DENY, PUB, SUB, PUB|SUB, SUB|PUB; anything else is DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB]
  groupPerms: [groupA=DENY, groupB=SUB]
dataVersion: [{counter: 0, timestamp: 0}]
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from escrowmq.acl.trusted_addresses import AddressParts, AddressPattern, parse_pattern
from escrowmq.base.message import Topic
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from escrowmq.acl.yaml_document import Value

DENY: Final = 1
ANY: Final = 2
PUB: Final = 4
SUB: Final = 8

KEY_SIZE_MIN: Final = 7
PERMISSIONS: Final = {
    "DENY": DENY,
    "PUB": PUB,
    "SUB": SUB,
    "PUB|SUB": PUB | SUB,
    "SUB|PUB": PUB | SUB,
}

GLOBAL: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
_MEMBERS: Final = frozenset({GLOBAL, ACCOUNTS, VERSION})
_ACCOUNT_MEMBERS: Final = frozenset(
    {
        "accessKey", "secretKey", "formerSecretKey", "whiteRemoteAddress", "admin",
        "defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms",
    }
)  # fmt: skip
_TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "on", "y"), True),
    **dict.fromkeys(("false", "no", "off", "n"), False),
}


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An access key and its rights."""

    access_key: str
    secret: str
    former: str = ""
    addresses: AddressPattern
    is_admin: bool
    topic_default: int
    group_default: int
    resources: dict[str, int]
    """Rights by topic; a group's rights are stored under its retry topic."""

    def __repr__(self) -> str:
        return f"Account({self.access_key!r}, is_admin={self.is_admin})"  # no secret in any log

    def right_to(self, resource: str) -> tuple[int, bool]:
        """Return the right to a topic or a group's retry topic. Also return whether the file names
        the resource; if not, the right is the account's default."""
        owned = self.resources.get(resource)
        if owned is not None:
            return owned, True
        is_group = resource.startswith(Topic.RETRY_PREFIX)
        return (self.group_default if is_group else self.topic_default), False


class AccountFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one file."""

    anyone: tuple[AddressPattern, ...] = ()
    accounts: tuple[Account, ...] = ()
    counter: int = 0
    timestamp: int = 0


class Acl1Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of all files together."""

    anyone: tuple[AddressPattern, ...] = ()
    """Patterns of addresses that need no authentication, whatever the account."""
    accounts: dict[str, Account] = {}
    homes: dict[str, str] = {}
    """By account: the file that defines it."""
    repeated: tuple[str, ...] = ()
    """Accounts that are defined a second time; the second definition is ignored."""
    counter: int = 0
    timestamp: int = 0
    """The timestamp of the default file."""

    def is_trusted(self, parts: AddressParts) -> bool:
        """Whether an address needs no authentication."""
        return any(pattern.matches(parts) for pattern in self.anyone)


def read_accounts(data: bytes) -> AccountFile:
    """Parse a file; raises UsageError with the line."""
    from escrowmq.acl.yaml_document import parse_yaml

    return parse_document(parse_yaml(data))


def parse_document(document: Value) -> AccountFile:
    """Return the accounts in a parsed document. Raises UsageError if it is invalid."""
    if document is None:
        return AccountFile()
    members = _check_mapping(document, _MEMBERS, "the file")
    version = _parse_version(members.get(VERSION))
    return AccountFile(
        anyone=tuple(parse_pattern(text) for text in _check_texts(members.get(GLOBAL), GLOBAL)),
        accounts=tuple(
            _parse_account(item, f"account {number}")
            for number, item in enumerate(_check_list(members.get(ACCOUNTS), ACCOUNTS), 1)
        ),
        counter=version[0],
        timestamp=version[1],
    )


def merge_files(files: Iterable[tuple[str, AccountFile]], *, default: str) -> Acl1Rules:
    """Merge all files; if an account is in several, the first one counts."""
    anyone: list[AddressPattern] = []
    accounts: dict[str, Account] = {}
    homes: dict[str, str] = {}
    repeated: list[str] = []
    counter = timestamp = 0
    for path, file in files:
        anyone += file.anyone
        for account in file.accounts:
            if account.access_key in accounts:
                repeated.append(account.access_key)
                continue
            accounts[account.access_key] = account
            homes[account.access_key] = path
        if path == default:
            counter, timestamp = file.counter, file.timestamp
    return Acl1Rules(
        anyone=tuple(anyone),
        accounts=accounts,
        homes=homes,
        repeated=tuple(repeated),
        counter=counter,
        timestamp=timestamp,
    )


def _parse_account(item: Value, place: str) -> Account:
    members = _check_mapping(item, _ACCOUNT_MEMBERS, place)
    access_key = _check_text(members.get("accessKey"), place)
    secret = _check_text(members.get("secretKey"), place)
    if min(len(access_key), len(secret)) < KEY_SIZE_MIN:
        raise UsageError(
            f"{place}: accessKey and secretKey have {len(access_key)} and {len(secret)} "
            f"characters; at least {KEY_SIZE_MIN} are required"
        )
    former = _check_text(members.get("formerSecretKey"), place)
    if former and len(former) < KEY_SIZE_MIN:
        raise UsageError(
            f"{place}: formerSecretKey has {len(former)} characters; at least {KEY_SIZE_MIN} "
            "are required"
        )
    resources: dict[str, int] = {}
    for text in _check_texts(members.get("groupPerms"), f"{place}: groupPerms"):
        name, right = _parse_right(text, place)
        resources[Topic.RETRY_PREFIX + name] = right
    for text in _check_texts(members.get("topicPerms"), f"{place}: topicPerms"):
        name, right = _parse_right(text, place)
        resources[name] = right
    return Account(
        access_key=access_key,
        secret=secret,
        former=former,
        addresses=parse_pattern(_check_text(members.get("whiteRemoteAddress"), place)),
        is_admin=_parse_boolean(members.get("admin"), place),
        topic_default=parse_permission(_check_text(members.get("defaultTopicPerm"), place)),
        group_default=parse_permission(_check_text(members.get("defaultGroupPerm"), place)),
        resources=resources,
    )


def parse_permission(text: str) -> int:
    """Parse a right; an unknown text means DENY."""
    return PERMISSIONS.get(text.strip(), DENY)


def _parse_right(text: str, place: str) -> tuple[str, int]:
    parts = [part for part in text.split("=") if part]
    if len(parts) != 2:
        raise UsageError(f"{place}: {text[:128]!r} is not a right; write name=PUB|SUB")
    return parts[0].strip(), parse_permission(parts[1])


# -- values of a document ------------------------------------------------------------------------


def _check_mapping(value: Value, known: frozenset[str], place: str) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise UsageError(f"{place}: members like `name: value` are expected")
    unknown = sorted(set(value) - known)
    if unknown:
        # Not repeated: without a blank behind its colon, a secret key is part of a name.
        close = difflib.get_close_matches(unknown[0][:64].partition(":")[0], known, n=1)
        hint = f" (is {close[0]} meant, with a blank after the colon?)" if close else ""
        raise UsageError(
            f"{place}: an unknown member{hint}; allowed are {', '.join(sorted(known))}"
        )
    return value


def _check_list(value: Value, place: str) -> list[Value]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsageError(f"{place}: a list is expected, each item after a `-`")
    return value


def _check_texts(value: Value, place: str) -> list[str]:
    return [_check_text(item, place) for item in _check_list(value, place) if item is not None]


def _check_text(value: Value, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UsageError(f"{place}: a text is expected, not a list or members")
    return value


def _parse_boolean(value: Value, place: str) -> bool:
    text = _check_text(value, place).lower()
    if not text:
        return False
    if text not in _TRUTHS:
        raise UsageError(f"{place}: admin must be true or false")
    return _TRUTHS[text]


def _parse_version(value: Value) -> tuple[int, int]:
    """Return counter and time of the first entry; zero for each that is not a number."""
    first = next(iter(_check_list(value, VERSION)), None)
    if not isinstance(first, dict):
        return 0, 0
    return _parse_count(first.get("counter")), _parse_count(first.get("timestamp"))


def _parse_count(value: Value) -> int:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19
    return int(value) if is_number and isinstance(value, str) else 0
