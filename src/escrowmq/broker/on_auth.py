"""The guard of ACL 2.0 at the broker's door, and the requests about users and policies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from escrowmq.acl.addresses import is_loopback
from escrowmq.acl.book import Book, UserStatus, UserType
from escrowmq.acl.judge import Terms, missing, refusal
from escrowmq.acl.needs import Places
from escrowmq.acl.policies import Access, is_widened, misread, named, read_resource
from escrowmq.base.codes import NOT_SET, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.ports import Disk
from escrowmq.base.settings import BrokerSettings
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.auth import AclInfo, UserInfo, first_user, inner_user
from escrowmq.codec.bodies import decode_body
from escrowmq.codec.command import encode_reply
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

_BLANK: Final = "The username is blank"


def read_terms(settings: BrokerSettings) -> Terms:
    """What is asked of whom; UsageError when the settings contradict each other."""
    if settings.authorizes and not settings.authenticates:
        raise UsageError(
            "authorizationEnabled=true needs authenticationEnabled=true: a name that nobody "
            "proves opens nothing"
        )
    return Terms(
        cluster=settings.cluster,
        is_authorized=settings.authorizes,
        unauthenticated=_codes(settings.unauthenticated, "authenticationWhitelist"),
        unauthorized=_codes(settings.unauthorized, "authorizationWhitelist"),
        as_peer=settings.acl_as_peer,
    )


def _codes(text: str, name: str) -> frozenset[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    # Names of gRPC methods stand here too at the peer.
    numbers = [part for part in parts if "." not in part]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in numbers):
        raise UsageError(f"{name}={text[:128]}: request codes are expected, `,` between")
    return frozenset(map(int, numbers))


class AuthHandlers:
    """Codes 3001 to 3010; asks of every request whether it may pass."""

    def __init__(self, broker: Broker, disk: Disk, on_change: Callable[[], None]) -> None:
        self._broker = broker
        self.book = Book(disk, as_peer=broker.settings.acl_as_peer)
        self.terms = read_terms(broker.settings)
        self._on_change = on_change

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.AUTH_CREATE_USER: self._changing(self.create_user),
            Request.AUTH_UPDATE_USER: self._changing(self.update_user),
            Request.AUTH_DELETE_USER: self._changing(self.delete_user),
            Request.AUTH_GET_USER: self._answered(self.show_user),
            Request.AUTH_LIST_USER: self._answered(self.list_users),
            Request.AUTH_CREATE_ACL: self._changing(self.put_acl),
            Request.AUTH_UPDATE_ACL: self._changing(self.put_acl),
            Request.AUTH_DELETE_ACL: self._changing(self.delete_acl),
            Request.AUTH_GET_ACL: self._answered(self.show_acl),
            Request.AUTH_LIST_ACL: self._answered(self.list_acls),
        }

    def load(self) -> None:
        """Read users and policies, and make those that the settings name; UsageError when that
        cannot be done."""
        self.book.load()
        settings = self._broker.settings
        for name, text, read in (
            ("initAuthenticationUser", settings.first_user, first_user),
            ("innerClientAuthenticationCredentials", settings.inner_user, inner_user),
        ):
            if not text.strip():
                continue
            try:
                info = read(text.encode())
                info.user_type = UserType.SUPER.value
                if info.username not in self.book.users:
                    self.book.create_user(info)
            except EscrowMQError as error:
                # The text of a decoder may quote what stands there.
                reason = error if isinstance(error, UsageError) else "this is not its form"
                raise UsageError(f"{name}: {reason}; see docs/security.md") from None
        if self.terms.is_authorized and not any(u.is_super for u in self.book.users.values()):
            _log.warning(
                "authorizationEnabled=true, but there is no super user: set initAuthenticationUser"
            )

    # -- the door ----------------------------------------------------------------------------

    def refusal(
        self, peer: Peer, request: Command, places: Places, *, is_proved: bool = False
    ) -> str:
        """Why a request may not pass; empty when it may."""
        return refusal(self.book, request, peer.host, places, self.terms, is_proved=is_proved)

    def may(self, name: str, access: Access, host: str) -> bool:
        """Whether a user who was let in before may do something now."""
        user = self.book.users.get(name)
        if user is None or user.status is UserStatus.DISABLE:
            return False
        return not self.terms.is_authorized or not missing(self.book, user, access, host)

    # -- what all have in common -------------------------------------------------------------

    def _answered(self, handler: Callable[[Command, Peer], bytes]) -> Handler:
        """Those who may ask at all, and refusals in the peer's form."""

        def serve(peer: Peer, request: Command, now_ms: int) -> bytes:  # noqa: ARG001
            if not (self._broker.settings.authenticates or is_loopback(peer.host)):
                remark = (
                    "users and policies are served from loopback addresses while "
                    "authenticationEnabled is false: nobody else can prove who he is"
                )
                return encode_reply(request, Response.NO_PERMISSION, remark=remark)
            try:
                return handler(request, peer)
            except UsageError as error:
                return encode_reply(request, Response.NO_PERMISSION, remark=str(error))

        return serve

    def _changing(self, handler: Callable[[Command, Peer], bytes]) -> Handler:
        def serve(request: Command, peer: Peer) -> bytes:
            reply = handler(request, peer)
            self._on_change()
            return reply

        return self._answered(serve)

    def _is_super(self, request: Command) -> bool:
        """Whether the request is a super user's, or of somebody who was not asked for a name."""
        name = (request.ext or {}).get(ACCESS_KEY)
        if not name:
            return True
        user = self.book.users.get(name)
        if user is None:
            raise UsageError(f"User:{name} is not found")
        return user.is_super

    # -- users -------------------------------------------------------------------------------

    def create_user(self, request: Command, peer: Peer) -> bytes:
        """Add a user."""
        info = _user_of(request)
        if not info.username:
            return encode_reply(request, Response.INVALID_PARAMETER, remark=_BLANK)
        if named(UserType, info.user_type) is UserType.SUPER and not self._is_super(request):
            remark = "The super user can only be create by super user"
            return encode_reply(request, Response.SYSTEM_ERROR, remark=remark)
        self.book.create_user(info)
        return _done(request)

    def update_user(self, request: Command, peer: Peer) -> bytes:
        """Change what is given of a user."""
        info = _user_of(request)
        if not info.username:
            return encode_reply(request, Response.INVALID_PARAMETER, remark=_BLANK)
        remark = "The super user can only be update by super user"
        if named(UserType, info.user_type) is UserType.SUPER and not self._is_super(request):
            return encode_reply(request, Response.SYSTEM_ERROR, remark=remark)
        old = self.book.users.get(info.username)
        if old is not None and old.is_super and not self._is_super(request):
            raise UsageError(remark)
        self.book.update_user(info)
        return _done(request)

    def delete_user(self, request: Command, peer: Peer) -> bytes:
        """Remove a user and his policies."""
        name = (request.ext or {}).get("username", "")
        old = self.book.users.get(name)
        if old is not None and old.is_super and not self._is_super(request):
            raise UsageError("The super user can only be update by super user")
        self.book.delete_user(name)
        return _done(request)

    def show_user(self, request: Command, peer: Peer) -> bytes:
        """One user; no body when there is none."""
        name = (request.ext or {}).get("username", "")
        if not name.strip():
            return encode_reply(request, Response.INVALID_PARAMETER, remark=_BLANK)
        user = self.book.users.get(name)
        if user is None:
            return _done(request)
        return _done(request, user.told(with_password=self.terms.as_peer))

    def list_users(self, request: Command, peer: Peer) -> bytes:
        """The users whose names have a part; no body when there are none."""
        part = (request.ext or {}).get("filter", "").strip()
        shows = self.terms.as_peer
        found = [user.told(with_password=shows) for user in self.book.found_users(part)]
        return _done(request, found or None)

    # -- policies ----------------------------------------------------------------------------

    def put_acl(self, request: Command, peer: Peer) -> bytes:
        """Add entries to a user's policies, or put them in the place of those before."""
        info = decode_body(AclInfo, request.body)
        self.book.put_policies((request.ext or {}).get("subject", ""), info)
        return _done(request)

    def delete_acl(self, request: Command, peer: Peer) -> bytes:
        """Remove one entry, or all."""
        ext = request.ext or {}
        resource = read_resource(ext.get("resource"))
        if resource is None and ext.get("resource", "").strip():
            # The peer removes everything then.
            raise UsageError(f"{ext['resource'][:128]!r} is no resource; nothing is removed")
        if (
            resource is not None
            and not self.terms.as_peer
            and is_widened(resource, ext["resource"])
        ):
            raise UsageError(f"{misread(ext['resource'])}; nothing is removed")
        self.book.delete_policies(ext.get("subject", ""), ext.get("policyType"), resource)
        return _done(request)

    def show_acl(self, request: Command, peer: Peer) -> bytes:
        """What is said of one user; no body when nothing is."""
        return _done(request, self.book.told_policies((request.ext or {}).get("subject", "")))

    def list_acls(self, request: Command, peer: Peer) -> bytes:
        """What is said of users and resources; no body when there is nothing."""
        ext = request.ext or {}
        subject, resource = ext.get("subjectFilter", ""), ext.get("resourceFilter", "")
        found = list(self.book.found_policies(subject.strip(), resource.strip()))
        return _done(request, found or None)


def _done(request: Command, body: Any = None) -> bytes:  # noqa: ANN401 - JSON is what it is
    data = b"" if body is None else msgspec.json.encode(body)
    return encode_reply(request, Response.SUCCESS, body=data, remark=NOT_SET)


def _user_of(request: Command) -> UserInfo:
    info = decode_body(UserInfo, request.body)
    info.username = (request.ext or {}).get("username", "")
    return info
