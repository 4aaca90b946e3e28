"""Access control for changes to a name server, including the registration of brokers. Routes and
lists are open, because RocketMQ's clients request them without credentials."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from escrowmq.acl import request_proofs
from escrowmq.acl.acl1_files import AccountFiles
from escrowmq.acl.acl1_guard import administrator_refusal, is_signed
from escrowmq.acl.acl2_guard import super_user_refusal
from escrowmq.acl.acl2_users import PATH as USERS_FILE
from escrowmq.acl.acl2_users import UserTable
from escrowmq.acl.request_proofs import AccountSecrets, RequestProofs
from escrowmq.acl.trusted_addresses import AddressParts, address_parts, is_loopback, parse_pattern
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import TRUSTED_ADDRESSES_MAX
from escrowmq.base.nameserver_settings import NameServerGuardSettings
from escrowmq.base.ports import Disk, RandomSource
from escrowmq.codec.acl2_bodies import parse_first_user, parse_inner_user
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

FILES_POLL_MS: Final = 300
"""Interval in ms of polls of the account files."""

_NEVER_MS: Final = (1 << 62) - 1
_SETTING: Final = "escrowNameServerChangesFrom"
_AUTO: Final = "auto"
_PRIVATE: Final = "private"
_LOOPBACK: Final = "loopback"

_PRIVATE_PATTERNS: Final = tuple(
    map(
        parse_pattern,
        ("10.*.*.*", "172.16-31.*.*", "192.168.*.*", "169.254.*.*"),
    )
)
_PRIVATE_V6: Final = ((0xFE00, 0xFC00), (0xFFC0, 0xFE80))
"""Mask and value of an IPv6 address's first group: unique local and link-local addresses."""

OPEN_REQUESTS: Final = frozenset(
    {
        Request.GET_KV_CONFIG, Request.GET_KVLIST_BY_NAMESPACE, Request.GET_BROKER_MEMBER_GROUP,
        Request.GET_ROUTEINFO_BY_TOPIC, Request.GET_BROKER_CLUSTER_INFO,
        Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Request.GET_TOPICS_BY_CLUSTER,
        Request.GET_SYSTEM_TOPIC_LIST_FROM_NS, Request.GET_UNIT_TOPIC_LIST,
        Request.GET_HAS_UNIT_SUB_TOPIC_LIST, Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Request.ESCROW_GONE_BROKERS,
    }
)  # fmt: skip
"""Requests that change nothing and show no setting. They are open to all; all others are
guarded."""


class TrustedAddresses:
    """Matches the addresses listed in a setting."""

    def __init__(self, text: str, *, is_by_accounts: bool) -> None:
        words = [word.strip() for word in text.split(";") if word.strip()]
        if words == [_AUTO]:
            words = [] if is_by_accounts else [_PRIVATE]
        if len(words) > TRUSTED_ADDRESSES_MAX:
            raise UsageError(
                f"{_SETTING}: {len(words)} addresses; {TRUSTED_ADDRESSES_MAX} are allowed"
            )
        self._has_private = _PRIVATE in words
        self._has_loopback = self._has_private or _LOOPBACK in words
        try:
            self._patterns = [
                parse_pattern(word) for word in words if word not in (_PRIVATE, _LOOPBACK)
            ]
        except UsageError as error:
            raise UsageError(f"{_SETTING}: {error}; or auto, private, loopback") from error

    def __contains__(self, host: str) -> bool:
        parts = address_parts(host)
        return (
            (self._has_loopback and is_loopback(host))
            or (self._has_private and _is_private_address(parts))
            or any(pattern.matches(parts) for pattern in self._patterns)
        )


def _is_private_address(parts: AddressParts) -> bool:
    if len(parts) == 8:
        return any(parts[0] & mask == value for mask, value in _PRIVATE_V6)
    return any(pattern.matches(parts) for pattern in _PRIVATE_PATTERNS)


class GuardedConnection(msgspec.Struct):
    """A connection, with what access control must know about it
    (acl.request_proofs.ProvingConnection)."""

    host: str
    identity: str = ""
    session: str = ""
    signed_number: int = 0


class RegistryDenial(msgspec.Struct, frozen=True):
    """Why a request is not allowed, and its response code."""

    code: int
    reason: str


class RegistryGuard:
    """Decides, by address and by account, whether a request is allowed."""

    def __init__(
        self,
        settings: NameServerGuardSettings,
        *,
        accounts: Disk | None = None,
        users: Disk | None = None,
        own: tuple[str, str] | None = None,
        chance: RandomSource | None = None,
    ) -> None:
        self._settings = settings
        self.is_by_accounts = settings.acl_enabled or settings.authenticates
        assert chance is not None or not self.is_by_accounts, "sessions are chosen by chance"
        self._is_open = settings.acl_as_rocketmq
        self._trusted = TrustedAddresses(settings.changes_from, is_by_accounts=self.is_by_accounts)
        self._accounts = AccountFiles(accounts) if accounts and settings.acl_enabled else None
        self._disk = users if settings.authenticates else None
        self._book = UserTable(self._disk) if self._disk is not None else None
        self._own = own
        self._secrets = dict([own] if own else [])
        self._first_user = ""
        self._proofs = (
            RequestProofs(settings.own_signatures, chance=chance, find=self._secrets_of)
            if chance is not None
            else None
        )
        self._users_seen = (0, 0)
        self._trouble = ""
        self._look_at_ms = _NEVER_MS

    def load(self, now_ms: int) -> None:
        """Load accounts and users; raises UsageError if they cannot be read."""
        if self._is_open:
            _log.warning(
                "escrowAclAsRocketMQ=true: anyone may change this name server, as with RocketMQ's"
            )
        named = _configured_secrets(self._settings)
        self._secrets |= named
        self._first_user = next(iter(named), "") if self._settings.first_user.strip() else ""
        if self._accounts is not None:
            self._accounts.load()
        if self._book is not None:
            self._users_seen = self._users_file_state()
            self._book.load()
        if self._accounts is not None or self._book is not None:
            self._look_at_ms = now_ms + FILES_POLL_MS

    def trusts(self, host: str) -> bool:
        """Whether an address may change everything without credentials."""
        return self._is_open or host in self._trusted

    @property
    def may_admit_strangers(self) -> bool:
        """Whether a request from an address that is not trusted may be allowed by its signature."""
        return self.is_by_accounts or self._own is not None

    def session_of(self, visitor: GuardedConnection) -> str:
        """Return the session of a connection, which our own clients sign with each request; empty
        without access control."""
        if self._proofs is None or not self.is_by_accounts:
            return ""
        return self._proofs.session_of(visitor)

    def refusal(self, visitor: GuardedConnection, request: Command) -> RegistryDenial | None:
        """Return why a request is not allowed; None if it is allowed. A connection's certificate
        may stand for an account. Then a request without an account counts as that account's, and so
        does one that names this account without a signature."""
        host = visitor.host
        if request.code in OPEN_REQUESTS or self.trusts(host):
            return None
        if not self.is_by_accounts:
            if self._is_own(request):
                return None
            return RegistryDenial(
                Response.NO_PERMISSION,
                f"{host} may request routes, but not change this name server: list it in "
                f"{_SETTING}, or use accounts (aclEnable, authenticationEnabled)",
            )
        if self._accounts is not None and self._accounts.rules.is_trusted(address_parts(host)):
            return None
        if visitor.identity:
            request_proofs.name_account(request, visitor.identity)
        is_proved = False
        if self._proofs is not None:
            proof = self._proofs.verify_request(visitor, request, is_held=False)
            if proof.fault:
                return RegistryDenial(proof.code, proof.fault)
            is_proved = proof.is_proved
        reason = self._missing_right(request, is_proved=is_proved)
        return RegistryDenial(Response.NO_PERMISSION, reason) if reason else None

    def _is_own(self, request: Command) -> bool:
        """Whether a request is signed by this process itself. It calls from a public address, if
        that is the one its servers are bound to."""
        if self._own is None:
            return False
        name, secret = self._own
        return (request.ext or {}).get(ACCESS_KEY) == name and is_signed(request, secret)

    def _missing_right(self, request: Command, *, is_proved: bool) -> str:
        """Return why a request's account may not make changes; empty if it may."""
        reasons = []
        secret = self._secrets.get((request.ext or {}).get(ACCESS_KEY, ""))
        if secret is not None and (is_proved or is_signed(request, secret)):
            return ""
        if self._accounts is not None:
            reasons.append(
                administrator_refusal(self._accounts.rules, request, is_proved=is_proved)
            )
        if self._book is not None:
            reasons.append(super_user_refusal(self._book, request, is_proved=is_proved))
        if "" in reasons:
            return ""
        why = "; ".join(reasons) or "there are no accounts"
        return f"only administrators may change this name server: {why}"

    def _secrets_of(self, key: str) -> list[AccountSecrets]:
        """Return the possible secrets of an account. For a name in the settings, only those in the
        settings count."""
        if key in self._secrets:
            return [AccountSecrets((self._secrets[key],), is_admin=key == self._first_user)]
        found = []
        if self._accounts is not None:
            account = self._accounts.rules.accounts.get(key)
            if account is not None:
                found.append(AccountSecrets((account.secret, account.former), account.is_admin))
        if self._book is not None:
            user = self._book.users.get(key)
            if user is not None:
                found.append(AccountSecrets((user.password, user.former), user.is_super))
        return found

    # -- time --------------------------------------------------------------------------------

    def wake(self, now_ms: int) -> None:
        """Reload changed files."""
        if now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + FILES_POLL_MS
        if self._accounts is not None:
            self._accounts.reload_if_changed()
        if self._book is not None:
            self._reload_users_if_changed(self._book)

    def wake_at_ms(self) -> int:
        """Return when to call `wake` next."""
        return self._look_at_ms

    def _reload_users_if_changed(self, book: UserTable) -> None:
        try:
            seen = self._users_file_state()
            if seen == self._users_seen:
                return
            book.load()
            self._users_seen, self._trouble = seen, ""
        except (EscrowMQError, OSError) as error:
            if str(error) != self._trouble:
                _log.error("users were not reloaded, the last valid ones stay in force: %s", error)
            self._trouble = str(error)

    def _users_file_state(self) -> tuple[int, int]:
        """Return size and time of the users' file, which is reloaded when they change."""
        assert self._disk is not None
        size = self._disk.size(USERS_FILE)
        return (0, 0) if size is None else (size, self._disk.modified_ms(USERS_FILE))


def _configured_secrets(settings: NameServerGuardSettings) -> dict[str, str]:
    """Return the names and secrets in the settings: the brokers' credentials, and the first
    administrator's."""
    found = {}
    for name, text, read in (
        ("initAuthenticationUser", settings.first_user, parse_first_user),
        ("innerClientAuthenticationCredentials", settings.inner_user, parse_inner_user),
    ):
        if not text.strip():
            continue
        try:
            info = read(text.encode())
        except EscrowMQError:
            # The text of a decoder may quote the value.
            raise UsageError(f"{name}: invalid value; see docs/security.md") from None
        if info.username and info.password:
            found[info.username] = info.password
    return found
