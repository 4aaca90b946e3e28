"""JSON bodies of the requests about users and policies of ACL 2.0 (3001 to 3010), and of the
request to explain access (7720)."""

from __future__ import annotations

import msgspec

from escrowmq.codec.client_bodies import decode_body


class UserInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """A user in requests and files. A field that is None was not given."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None
    former_password: str | None = None
    """A former password that is still valid. Used in the file only."""
    keeps_former: bool | None = None
    """In a request that changes the password: whether the password before the change stays valid.
    In one that does not: whether the former one does."""

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r})"  # no password in any log


class _InnerCredentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str


def parse_first_user(data: bytes) -> UserInfo:
    """Parse the user in the setting initAuthenticationUser."""
    return decode_body(UserInfo, data)


def parse_inner_user(data: bytes) -> UserInfo:
    """Parse the user in the setting innerClientAuthenticationCredentials."""
    inner = decode_body(_InnerCredentials, data)
    return UserInfo(username=inner.access_key, password=inner.secret_key)


class PolicyEntryInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """One entry of a policy."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """The entries of one policy type, Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """The policies of one subject, `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class AccessQuestion(msgspec.Struct, rename="camel"):
    """A question to access control: may a user act on a resource, coming from an address?"""

    user: str
    action: str
    resource: str
    """A topic, or `Topic:T`, `Group:g` or `Cluster:c`."""
    address: str = "127.0.0.1"


class AccessJudgement(msgspec.Struct, rename="camel"):
    """The answer of one ACL version, with its reasons."""

    acl: str
    """The ACL version, `1.0` or `2.0`."""
    is_allowed: bool
    decided_by: str
    """The rule that decided."""
    steps: list[str]
    """All rules that were considered, in order."""


class AccessJudgements(msgspec.Struct, rename="camel"):
    """The answers of all ACL versions that are on; empty if all are off."""

    answers: list[AccessJudgement] = []
