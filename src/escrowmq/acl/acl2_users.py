"""The users of ACL 2.0 and what they may do: a table and its file.

    {"acls": [{"subject": "User:orders-service", "policies": [...]}],
     "users": [{"username": "orders-service", "password": "...", "userStatus": "enable",
                "userType": "Normal"}]}

RocketMQ keeps both in RocksDB. Here one file has both, so that a user is removed with its
policies."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from escrowmq.acl.acl1_accounts import DENY, PUB, SUB, Account, Acl1Rules
from escrowmq.acl.acl2_policies import (
    Action,
    Decision,
    PatternKind,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceKind,
    covers_more_than_text,
    enum_member,
    parse_policies,
    parse_resource,
    rocketmq_misreading,
)
from escrowmq.base.fixed_limits import (
    AUTH_FILE_SIZE_MAX,
    AUTH_NAME_SIZE_MAX,
    AUTH_PASSWORD_SIZE_MAX,
    AUTH_USERS_MAX,
)
from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk
from escrowmq.codec import fastjson
from escrowmq.codec.acl2_bodies import AclInfo, UserInfo
from escrowmq.errors import RemoteProtocolError, UsageError

_log = logging.getLogger(__name__)

T = TypeVar("T")
PATH: Final = "config/auth.json"
USER: Final = "User:"


class UserType(enum.Enum):
    """The type of a user; a super user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """Whether a user is enabled."""

    ENABLE = "enable"
    DISABLE = "disable"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user of ACL 2.0, with its passwords and its type."""

    name: str
    password: str
    former: str = ""
    """The former password, which is valid as well while clients switch to the new one."""
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.type.value}, {self.status.value})"  # no password

    @property
    def is_super(self) -> bool:
        """Whether the user may do everything."""
        return self.type is UserType.SUPER

    def to_fields(self, *, with_password: bool) -> dict[str, str]:
        """Return the user in the form of requests and files."""
        found = {
            "userStatus": self.status.value,
            "userType": self.type.value,
            "username": self.name,
        }
        return {"password": self.password, **found} if with_password else found


class _UsersFile(msgspec.Struct):
    acls: list[AclInfo] = []
    users: list[UserInfo] = []


class KnownUsers(msgspec.Struct, frozen=True):
    """Users and their policies, as read from the file."""

    users: dict[str, User] = {}
    policies: dict[str, Policies] = {}


class UserTable:
    """All users and policies; every change is on disk before it takes effect."""

    def __init__(self, disk: Disk, *, as_rocketmq: bool = False) -> None:
        self._disk = disk
        self.as_rocketmq = as_rocketmq
        """Whether to parse and rank policies as RocketMQ does."""
        self.users: dict[str, User] = {}
        self.policies: dict[str, Policies] = {}
        self._written = UsersEncoder()

    # -- the file ----------------------------------------------------------------------------

    def load(self) -> None:
        """Load the file. Raises UsageError if it cannot be read; then no user is accepted."""
        size = self._disk.size(PATH)
        if size is None:
            return
        if size > AUTH_FILE_SIZE_MAX:
            raise UsageError(f"{PATH}: {size} bytes; {AUTH_FILE_SIZE_MAX} are allowed")
        data = self._disk.read(PATH) or b""
        try:
            known = parse_users_file(data, as_rocketmq=self.as_rocketmq)
        except UsageError as error:
            raise UsageError(f"{PATH}: {error}; repair it or restore a copy") from error
        self.users, self.policies = known.users, known.policies

    def _save(self, users: dict[str, User], policies: dict[str, Policies]) -> None:
        self._disk.replace(PATH, self._written.encode(users, policies), is_private=True)
        self.users, self.policies = users, policies

    # -- users -------------------------------------------------------------------------------

    def create_user(self, info: UserInfo) -> None:
        """Add a user; raises UsageError, with RocketMQ's text, if it is invalid."""
        info.former_password = None  # a request cannot set this
        user = _make_user(info)
        if user.name in self.users:
            raise UsageError("The user is existed")
        if len(self.users) >= AUTH_USERS_MAX:
            raise UsageError(f"there are {AUTH_USERS_MAX} users; no more are allowed")
        self._save({**self.users, user.name: user}, self.policies)

    def update_user(self, info: UserInfo) -> None:
        """Change the given fields of a user."""
        old = self.users.get(info.username or "")
        if old is None:
            raise UsageError("The user is not exist")
        is_new = bool((info.password or "").strip())
        former = old.password if is_new else old.former
        keeps = bool(info.keeps_former) if is_new else info.keeps_former is not False
        user = User(
            name=old.name,
            password=_check_password(info.password) if is_new else old.password,
            former=former if keeps else "",
            type=enum_member(UserType, info.user_type) or old.type,
            status=enum_member(UserStatus, info.user_status) or old.status,
        )
        self._save({**self.users, user.name: user}, self.policies)

    def delete_user(self, name: str) -> None:
        """Remove a user and its policies; does nothing if there is none."""
        if name in self.users or name in self.policies:
            users = {each: user for each, user in self.users.items() if each != name}
            self._save(users, {n: found for n, found in self.policies.items() if n != name})

    def find_users(self, part: str) -> Iterator[User]:
        """Return the users whose names contain a text, sorted by name."""
        return (self.users[name] for name in sorted(self.users) if part in name)

    # -- policies ----------------------------------------------------------------------------

    def put_policies(self, subject: str, info: AclInfo) -> None:
        """Add entries to a user's policies; they replace those for the same resources."""
        # RocketMQ takes the body's subject rather than the header's.
        name = _user_name(info.subject) or _user_name(subject)
        given = parse_policies(info)
        reason = (
            ""
            if self.as_rocketmq
            else next(filter(None, map(rocketmq_misreading, _resource_texts(info))), "")
        )
        if reason:
            raise UsageError(reason)
        if name is None:
            raise UsageError("The subject is null.")
        if name not in self.users:
            raise UsageError(f"The subject of {USER}{name} is not exist.")
        found = self.policies.get(name, Policies())
        for kind, entries in given:
            found = found.with_entries(kind, entries)
        self._save(self.users, {**self.policies, name: found})

    def delete_policies(self, subject: str, kind: str | None, resource: Resource | None) -> None:
        """Remove the entry for a resource, or all if none is named."""
        name = _user_name(subject)
        if name is None:
            raise UsageError("The subject is null.")
        if name not in self.users:
            raise UsageError("The subject is not exist.")
        found = self.policies.get(name)
        if found is None:
            raise UsageError("The acl is not exist.")
        if resource is not None:
            found = found.without_entry(
                enum_member(PolicyType, kind) or PolicyType.CUSTOM, resource
            )
        rest = {each: kept for each, kept in self.policies.items() if each != name}
        is_gone = resource is None or found == Policies()
        self._save(self.users, rest if is_gone else {**rest, name: found})

    def user_policies(self, subject: str) -> dict[str, Any] | None:
        """Return a user's policies; None if there are none. Raises UsageError if there is no such
        user."""
        name = _user_name(subject)
        if name is None or name not in self.users:
            raise UsageError("The subject is not exist.")
        found = self.policies.get(name)
        return None if found is None else _policies_fields(name, found)

    def find_policies(self, subject: str, resource: str) -> Iterator[dict[str, Any]]:
        """Return policies, filtered by parts of the names of subjects and resources."""
        for name in sorted(self.policies):
            if subject not in USER + name:
                continue
            found = self.policies[name]
            # RocketMQ's filter of resources is ignored for a subject whose name contains the text.
            if resource and resource not in USER + name:
                found = Policies(
                    tuple(e for e in found.custom if resource in str(e.resource)),
                    tuple(e for e in found.default if resource in str(e.resource)),
                )
            if found != Policies():
                yield _policies_fields(name, found)

    # -- from ACL 1.0 ------------------------------------------------------------------------

    def migrate_accounts(self, rules: Acl1Rules) -> int:
        """Add the accounts of ACL 1.0 that are not users yet; return how many were added. Trusted
        addresses are not migrated (nor by RocketMQ's AuthMigrator)."""
        new = [a for a in rules.accounts.values() if a.access_key not in self.users]
        if not new:
            return 0
        users = {a.access_key: _migrate_account(a) for a in new}
        policies = {a.access_key: _account_policies(a, as_rocketmq=self.as_rocketmq) for a in new}
        found = {name: each for name, each in policies.items() if each != Policies()}
        self._save({**self.users, **users}, {**self.policies, **found})
        return len(new)


def parse_users_file(data: bytes, *, as_rocketmq: bool = False) -> KnownUsers:
    """Parse the file of users and policies. Raises UsageError if it is invalid; its text never
    contains a password."""
    try:
        file = msgspec.convert(fastjson.decode_fastjson(data), _UsersFile, strict=False)
    except (RemoteProtocolError, msgspec.ValidationError) as error:
        # The error text of the first exception may quote the password.
        reason = error if isinstance(error, msgspec.ValidationError) else "this is no JSON"
        raise UsageError(str(reason)) from None
    users = {user.name: user for user in map(_make_user, file.users)}
    if len(users) > AUTH_USERS_MAX:
        raise UsageError(f"{len(users)} users; {AUTH_USERS_MAX} are allowed")
    policies: dict[str, Policies] = {}
    for number, info in enumerate(file.acls, 1):
        name = _user_name(info.subject)
        if name is None:
            raise UsageError(f"acl {number}: the subject must be `User:name`")
        if not as_rocketmq:
            _refuse_misleading_entries(info)
        for kind, entries in parse_policies(info):
            policies[name] = policies.get(name, Policies()).with_entries(kind, entries)
    return KnownUsers(users, policies)


def _resource_texts(info: AclInfo) -> Iterator[str | None]:
    for policy in info.policies or ():
        for entry in policy.entries or ():
            yield entry.resource


def _refuse_misleading_entries(info: AclInfo) -> None:
    """Refuse entries that cover more than their text says; the file may have been edited by hand.
    An entry with a `*` inside a literal name, which older releases accepted, covers nothing and is
    logged."""
    for text in _resource_texts(info):
        reason = rocketmq_misreading(text)
        resource = parse_resource(text)
        if not reason or resource is None:
            continue
        if covers_more_than_text(resource, text):
            raise UsageError(reason)
        _log.warning(
            "%s: the policies of %r name %r, which is not a valid pattern and matches "
                "nothing: a '*' is only allowed at the end",
            PATH, (info.subject or "")[:128], (text or "")[:128],
        )  # fmt: skip


class UsersEncoder:
    """Encodes the file of users and policies. It caches the encoded form of each, so that a change
    encodes only what has changed. With 50,000 of each, encoding all would take most of the time of
    a change."""

    def __init__(self) -> None:
        self._users: dict[str, tuple[User, msgspec.Raw]] = {}
        self._policies: dict[str, tuple[Policies, msgspec.Raw]] = {}

    def encode(self, users: dict[str, User], policies: dict[str, Policies]) -> bytes:
        """Return the content of the file."""
        content = {
            "acls": _encode_changed(self._policies, policies, _policies_fields),
            "users": _encode_changed(self._users, users, lambda _, user: _stored_fields(user)),
        }
        return msgspec.json.format(msgspec.json.encode(content), indent=2)


def _encode_changed(
    kept: dict[str, tuple[T, msgspec.Raw]],
    wanted: dict[str, T],
    describe: Callable[[str, T], dict[str, Any]],
) -> list[msgspec.Raw]:
    for name in kept.keys() - wanted.keys():
        del kept[name]
    for name, one in wanted.items():
        if name not in kept or kept[name][0] is not one:
            kept[name] = (one, msgspec.Raw(msgspec.json.encode(describe(name, one))))
    return [kept[name][1] for name in sorted(wanted)]


def _stored_fields(user: User) -> dict[str, str]:
    found = user.to_fields(with_password=True)
    return found | {"formerPassword": user.former} if user.former else found


def _policies_fields(name: str, found: Policies) -> dict[str, Any]:
    return {"policies": found.to_fields(), "subject": USER + name}


def _user_name(subject: str | None) -> str | None:
    """Return the name in `User:name`; None if the text has another form."""
    if subject is None:
        return None
    kind, separator, name = subject.partition(":")
    return name if separator and kind.lower() == "user" and name else None


def _make_user(info: UserInfo) -> User:
    name = info.username or ""
    if not name.strip():
        raise UsageError("username can not be blank")
    if len(name) > AUTH_NAME_SIZE_MAX:
        raise UsageError(f"a username has {len(name)} characters; {AUTH_NAME_SIZE_MAX} are allowed")
    return User(
        name=name,
        password=_check_password(info.password),
        former=_check_password(info.former_password) if info.former_password else "",
        type=enum_member(UserType, info.user_type) or UserType.NORMAL,
        status=enum_member(UserStatus, info.user_status) or UserStatus.ENABLE,
    )


def _check_password(text: str | None) -> str:
    if text is None or not text.strip():
        raise UsageError("password can not be blank")
    if len(text) > AUTH_PASSWORD_SIZE_MAX:
        raise UsageError(
            f"a password has {len(text)} characters; {AUTH_PASSWORD_SIZE_MAX} are allowed"
        )
    return text


# -- accounts of ACL 1.0 as users ----------------------------------------------------------------


def _migrate_account(account: Account) -> User:
    kind = UserType.SUPER if account.is_admin else UserType.NORMAL
    return User(name=account.access_key, password=account.secret, type=kind)


def _account_policies(account: Account, *, as_rocketmq: bool) -> Policies:
    entries = []
    for resource, right in account.resources.items():
        if "*" in resource and not as_rocketmq:
            continue  # a literal star in ACL 1.0, which no topic has; it would become a pattern
        is_group = resource.startswith(Topic.RETRY_PREFIX)
        name = resource.removeprefix(Topic.RETRY_PREFIX)
        entries.append(
            _entry_for_right(
                Resource(ResourceKind.GROUP if is_group else ResourceKind.TOPIC, name), right
            )
        )
    entries.sort(
        key=lambda entry: entry.resource.kind is ResourceKind.GROUP
    )  # topics first, as there
    default = tuple(
        _entry_for_right(Resource(kind, "", PatternKind.ANY), right)
        for kind, right in (
            (ResourceKind.TOPIC, account.topic_default),
            (ResourceKind.GROUP, account.group_default),
        )
    )
    return (
        Policies()
        .with_entries(PolicyType.CUSTOM, entries)
        .with_entries(PolicyType.DEFAULT, default)
    )


def _entry_for_right(resource: Resource, right: int) -> PolicyEntry:
    if right & DENY:
        return PolicyEntry(resource=resource, actions=(Action.ALL,), decision=Decision.DENY)
    actions = [action for bit, action in ((PUB, Action.PUB), (SUB, Action.SUB)) if right & bit]
    return PolicyEntry(resource=resource, actions=tuple(actions), decision=Decision.ALLOW)
