"""ACL 2.0: judges requests by users and policies, and serves the requests that change them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from escrowmq.acl.acl2_guard import AuthRequirements, missing_right, refusal
from escrowmq.acl.acl2_policies import (
    Access,
    covers_more_than_text,
    enum_member,
    parse_resource,
    rocketmq_misreading,
)
from escrowmq.acl.acl2_users import UserStatus, UserTable, UserType
from escrowmq.acl.trusted_addresses import is_loopback
from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import NOT_SET, Response
from escrowmq.base.ports import Disk
from escrowmq.broker.access.request_rights import RequestRights
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.codec.acl2_bodies import AclInfo, UserInfo, parse_first_user, parse_inner_user
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

_BLANK: Final = "The username is blank"


def read_auth_requirements(settings: BrokerSettings) -> AuthRequirements:
    """Which requests need authentication or rights, from the settings. Raises UsageError if the
    settings contradict each other."""
    if settings.authorizes and not settings.authenticates:
        raise UsageError(
            "authorizationEnabled=true needs authenticationEnabled=true: rights can only be "
            "checked for authenticated users"
        )
    return AuthRequirements(
        is_authorized=settings.authorizes,
        unauthenticated=_parse_codes(settings.unauthenticated, "authenticationWhitelist"),
        unauthorized=_parse_codes(settings.unauthorized, "authorizationWhitelist"),
        as_rocketmq=settings.acl_as_rocketmq,
    )


def _parse_codes(text: str, name: str) -> frozenset[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    # In RocketMQ, this setting may also name gRPC methods.
    numbers = [part for part in parts if "." not in part]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in numbers):
        raise UsageError(f"{name}={text[:128]}: request codes separated by `,` are expected")
    return frozenset(map(int, numbers))


def _permitted_only(
    handler: Callable[[Acl2Handlers, IncomingRequest[None]], Reply],
) -> Callable[[Acl2Handlers, IncomingRequest[None]], Reply]:
    """Wrap a handler so that it serves permitted senders only, and refuses others in RocketMQ's
    form."""

    def serve(self: Acl2Handlers, request: IncomingRequest[None]) -> Reply:
        if not (self.requires_authentication or is_loopback(request.peer.host)):
            remark = (
                "users and policies are served from loopback addresses while "
                "authenticationEnabled is false: clients elsewhere cannot prove their identity"
            )
            return Refusal(Response.NO_PERMISSION, remark)
        try:
            return handler(self, request)
        except UsageError as error:
            return Refusal(Response.NO_PERMISSION, str(error))

    return serve


def _applying_changes(
    handler: Callable[[Acl2Handlers, IncomingRequest[None]], Reply],
) -> Callable[[Acl2Handlers, IncomingRequest[None]], Reply]:
    """Wrap a handler that changes the rules, so that the changed rules are applied after it."""

    @_permitted_only
    def serve(self: Acl2Handlers, request: IncomingRequest[None]) -> Reply:
        reply = handler(self, request)
        self.on_change()
        return reply

    return serve


class Acl2Handlers:
    """Judges every request by ACL 2.0, and serves codes 3001 to 3010."""

    def __init__(self, settings: BrokerSettings, disk: Disk, on_change: Callable[[], None]) -> None:
        self._settings = settings
        self.book = UserTable(disk, as_rocketmq=settings.acl_as_rocketmq)
        self.terms = read_auth_requirements(settings)
        self.on_change = on_change

    def load(self) -> None:
        """Read users and policies, and create the users that the settings name. Raises UsageError
        if that fails."""
        self.book.load()
        settings = self._settings
        for name, text, read in (
            ("initAuthenticationUser", settings.first_user, parse_first_user),
            ("innerClientAuthenticationCredentials", settings.inner_user, parse_inner_user),
        ):
            if not text.strip():
                continue
            try:
                info = read(text.encode())
                info.user_type = UserType.SUPER.value
                if info.username not in self.book.users:
                    self.book.create_user(info)
            except EscrowMQError as error:
                # The text of a decoder may quote the value.
                reason = error if isinstance(error, UsageError) else "this is not its form"
                raise UsageError(f"{name}: {reason}; see docs/security.md") from None
        if self.terms.is_authorized and not any(u.is_super for u in self.book.users.values()):
            _log.warning(
                "authorizationEnabled=true, but there is no super user: set initAuthenticationUser"
            )

    @property
    def requires_authentication(self) -> bool:
        """Whether every peer must prove its identity."""
        return self._settings.authenticates

    # -- access check -------------------------------------------------------------------------

    def refusal(self, request: Question, rights: RequestRights, *, is_proved: bool = False) -> str:
        """Why a request is refused; empty when it is admitted."""
        host = request.peer.host
        return refusal(self.book, request.command, host, rights, self.terms, is_proved=is_proved)

    def has_right(self, name: str, access: Access, host: str) -> bool:
        """Whether a user that was admitted earlier still has a right."""
        user = self.book.users.get(name)
        if user is None or user.status is UserStatus.DISABLE:
            return False
        return not self.terms.is_authorized or not missing_right(self.book, user, access, host)

    def _is_super(self, request: IncomingRequest[None]) -> bool:
        """Whether a super user sent the request, or a peer that needs no authentication."""
        name = request.ext.get(ACCESS_KEY)
        if not name:
            return True
        user = self.book.users.get(name)
        if user is None:
            raise UsageError(f"User:{name} is not found")
        return user.is_super

    # -- users -------------------------------------------------------------------------------

    @_applying_changes
    def create_user(self, request: IncomingRequest[None]) -> Reply:
        """Add a user."""
        info = _user_of(request)
        if not info.username:
            return Refusal(Response.INVALID_PARAMETER, _BLANK)
        if enum_member(UserType, info.user_type) is UserType.SUPER and not self._is_super(request):
            remark = "The super user can only be create by super user"
            return Refusal(Response.SYSTEM_ERROR, remark)
        self.book.create_user(info)
        return _success()

    @_applying_changes
    def update_user(self, request: IncomingRequest[None]) -> Reply:
        """Change the given attributes of a user."""
        info = _user_of(request)
        if not info.username:
            return Refusal(Response.INVALID_PARAMETER, _BLANK)
        remark = "The super user can only be update by super user"
        if enum_member(UserType, info.user_type) is UserType.SUPER and not self._is_super(request):
            return Refusal(Response.SYSTEM_ERROR, remark)
        old = self.book.users.get(info.username)
        if old is not None and old.is_super and not self._is_super(request):
            raise UsageError(remark)
        self.book.update_user(info)
        return _success()

    @_applying_changes
    def delete_user(self, request: IncomingRequest[None]) -> Reply:
        """Remove a user and the user's policies."""
        name = request.ext.get("username", "")
        old = self.book.users.get(name)
        if old is not None and old.is_super and not self._is_super(request):
            raise UsageError("The super user can only be update by super user")
        self.book.delete_user(name)
        return _success()

    @_permitted_only
    def show_user(self, request: IncomingRequest[None]) -> Reply:
        """Answer with one user; without a body when it does not exist."""
        name = request.ext.get("username", "")
        if not name.strip():
            return Refusal(Response.INVALID_PARAMETER, _BLANK)
        user = self.book.users.get(name)
        if user is None:
            return _success()
        return _success(user.to_fields(with_password=self.terms.as_rocketmq))

    @_permitted_only
    def list_users(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the users whose names contain a text; without a body when there are none."""
        part = request.ext.get("filter", "").strip()
        shows = self.terms.as_rocketmq
        found = [user.to_fields(with_password=shows) for user in self.book.find_users(part)]
        return _success(found or None)

    # -- policies ----------------------------------------------------------------------------

    @_applying_changes
    def put_acl(self, request: IncomingRequest[None]) -> Reply:
        """Add entries to a user's policies, or replace them."""
        info = decode_body(AclInfo, request.body)
        self.book.put_policies(request.ext.get("subject", ""), info)
        return _success()

    @_applying_changes
    def delete_acl(self, request: IncomingRequest[None]) -> Reply:
        """Remove one entry of a user's policies, or all entries."""
        ext = request.ext
        resource = parse_resource(ext.get("resource"))
        if resource is None and ext.get("resource", "").strip():
            # RocketMQ removes everything then.
            raise UsageError(f"{ext['resource'][:128]!r} is not a resource; nothing is removed")
        if (
            resource is not None
            and not self.terms.as_rocketmq
            and covers_more_than_text(resource, ext["resource"])
        ):
            raise UsageError(f"{rocketmq_misreading(ext['resource'])}; nothing is removed")
        self.book.delete_policies(ext.get("subject", ""), ext.get("policyType"), resource)
        return _success()

    @_permitted_only
    def show_acl(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the policies of one user; without a body when it has none."""
        return _success(self.book.user_policies(request.ext.get("subject", "")))

    @_permitted_only
    def list_acls(self, request: IncomingRequest[None]) -> Reply:
        """Answer with policies filtered by user and resource; without a body when there are
        none."""
        ext = request.ext
        subject, resource = ext.get("subjectFilter", ""), ext.get("resourceFilter", "")
        found = list(self.book.find_policies(subject.strip(), resource.strip()))
        return _success(found or None)


def _success(body: Any = None) -> Answer:  # noqa: ANN401 - JSON is what it is
    data = b"" if body is None else msgspec.json.encode(body)
    return Answer(body=data, remark=NOT_SET)


def _user_of(request: IncomingRequest[None]) -> UserInfo:
    info = decode_body(UserInfo, request.body)
    info.username = request.ext.get("username", "")
    return info
