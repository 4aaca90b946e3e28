"""Users and policies of ACL 2.0, and explanations of who may do what. Each broker keeps its own
users: changes go to all brokers, or to the named one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack

import msgspec

from escrowmq.base.codes import Request
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.codec.acl2_bodies import (
    AccessJudgement,
    AccessJudgements,
    AccessQuestion,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import UsageError

_SUBJECT = "User:"


class UserFields(TypedDict, total=False):
    """Fields of a user; fields that are not given stay unchanged."""

    password: str
    is_super: bool
    is_enabled: bool
    keeps_former: bool
    """Whether the previous password stays valid after a change. False without a new password makes
    the previous one invalid now."""


class UserSummary(msgspec.Struct, kw_only=True, rename="camel"):
    """A user, as one broker has it."""

    broker: str
    name: str
    is_super: bool
    is_enabled: bool


class PolicyEntry(msgspec.Struct, kw_only=True, rename="camel"):
    """One entry of a user's policies, as one broker has it."""

    broker: str
    user: str
    policy_type: str
    resource: str
    actions: list[str]
    sources: list[str]
    decision: str


class AccessExplanation(AccessJudgement, kw_only=True, rename="camel"):
    """One broker's answer to `explain`, with its reasons."""

    broker: str = ""


class Access:
    """Users and policies: `Admin.access`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    # -- users -------------------------------------------------------------------------------

    async def users(self, part: str = "", *, broker: str = "") -> list[UserSummary]:
        """Return the users; if `part` is given, only those whose names contain it."""

        async def list_users_on(name: str, address: str) -> list[UserSummary]:
            reply = await self._cluster.ask(address, Request.AUTH_LIST_USER, {"filter": part})
            with convert_parse_errors(address, Request.AUTH_LIST_USER):
                found = decode_body(list[UserInfo], reply.body) if reply.body else []
            return [
                UserSummary(
                    broker=name,
                    name=one.username or "",
                    is_super=one.user_type == "Super",
                    is_enabled=one.user_status == "enable",
                )
                for one in found
            ]

        masters = await self._cluster.masters(broker)
        return [
            one
            for found in await self._cluster.run_on_each(masters, list_users_on)
            for one in found
        ]

    async def create_user(
        self, name: str, password: str, *, is_super: bool = False, broker: str = ""
    ) -> None:
        """Add a user. Raises PermissionDenied if the name is taken."""
        info = UserInfo(password=password, user_type=_user_type(is_super), user_status="enable")
        await self._send_change(Request.AUTH_CREATE_USER, {"username": name}, info, broker)

    async def update_user(
        self, name: str, *, broker: str = "", **fields: Unpack[UserFields]
    ) -> None:
        """Change a user. Raises PermissionDenied if there is no such user."""
        info = UserInfo(password=fields.get("password"))
        if "is_super" in fields:
            info.user_type = _user_type(fields["is_super"])
        if "is_enabled" in fields:
            info.user_status = "enable" if fields["is_enabled"] else "disable"
        info.keeps_former = fields.get("keeps_former")
        if info == UserInfo():
            raise UsageError("nothing to change was given; name a password, a type or a status")
        await self._send_change(Request.AUTH_UPDATE_USER, {"username": name}, info, broker)

    async def delete_user(self, name: str, *, broker: str = "") -> None:
        """Remove a user and its policies; does nothing if there is no such user."""
        await self._send_change(Request.AUTH_DELETE_USER, {"username": name}, None, broker)

    # -- policies ----------------------------------------------------------------------------

    async def policies(
        self, user: str = "", *, resource: str = "", broker: str = ""
    ) -> list[PolicyEntry]:
        """Return policy entries, filtered by parts of the names of users and resources."""
        fields = {"subjectFilter": user, "resourceFilter": resource}

        async def list_policies_on(name: str, address: str) -> list[PolicyEntry]:
            reply = await self._cluster.ask(address, Request.AUTH_LIST_ACL, fields)
            with convert_parse_errors(address, Request.AUTH_LIST_ACL):
                found = decode_body(list[AclInfo], reply.body) if reply.body else []
            return [entry for acl in found for entry in _policy_entries(name, acl)]

        masters = await self._cluster.masters(broker)
        return [
            one
            for found in await self._cluster.run_on_each(masters, list_policies_on)
            for one in found
        ]

    async def put_policy(
        self,
        user: str,
        resource: str,
        actions: Sequence[str],
        *,
        decision: Literal["Allow", "Deny"] = "Allow",
        sources: Sequence[str] = (),
        is_default: bool = False,
        broker: str = "",
    ) -> None:
        """Allow or deny a user something. Replaces the user's earlier entry for that resource."""
        entry = PolicyEntryInfo(
            resource=resource, actions=list(actions), source_ips=list(sources), decision=decision
        )
        kind = "Default" if is_default else "Custom"
        info = AclInfo(
            subject=_SUBJECT + user, policies=[PolicyInfo(policy_type=kind, entries=[entry])]
        )
        await self._send_change(Request.AUTH_UPDATE_ACL, {"subject": _SUBJECT + user}, info, broker)

    async def delete_policy(
        self, user: str, resource: str = "", *, is_default: bool = False, broker: str = ""
    ) -> None:
        """Remove a user's entry for a resource, or all entries if no resource is given."""
        fields = {"subject": _SUBJECT + user, "policyType": "Default" if is_default else "Custom"}
        if resource:
            fields["resource"] = resource
        await self._send_change(Request.AUTH_DELETE_ACL, fields, None, broker)

    # -- questions ---------------------------------------------------------------------------

    async def explain(
        self,
        user: str,
        action: str,
        resource: str,
        *,
        address: str = "127.0.0.1",
        broker: str = "",
    ) -> list[AccessExplanation]:
        """Say whether a user may do something from an address, and which rule decides: one answer
        per broker and kind of access control that is on. EscrowMQ's brokers only; others raise
        NotSupported."""
        question = AccessQuestion(user=user, action=action, resource=resource, address=address)

        async def ask_broker(name: str, to: str) -> list[AccessExplanation]:
            body = msgspec.json.encode(question)
            reply = await self._cluster.ask_decoded(
                to, Request.ESCROW_ACL_EXPLAIN, AccessJudgements, body=body
            )
            return [
                AccessExplanation(**msgspec.structs.asdict(one), broker=name)
                for one in reply.answers
            ]

        masters = await self._cluster.masters(broker)
        return [
            one for found in await self._cluster.run_on_each(masters, ask_broker) for one in found
        ]

    async def _send_change(
        self, code: int, fields: dict[str, str], body: msgspec.Struct | None, broker: str
    ) -> None:
        data = b"" if body is None else msgspec.json.encode(body)

        async def change_broker(_: str, address: str) -> None:
            await self._cluster.ask(address, code, fields, data)

        await self._cluster.run_on_each(await self._cluster.masters(broker), change_broker)


def _user_type(is_super: bool) -> str:
    return "Super" if is_super else "Normal"


def _policy_entries(broker: str, acl: AclInfo) -> list[PolicyEntry]:
    return [
        PolicyEntry(
            broker=broker,
            user=(acl.subject or "").removeprefix(_SUBJECT),
            policy_type=policy.policy_type or "",
            resource=entry.resource or "",
            actions=entry.actions or [],
            sources=entry.source_ips or [],
            decision=entry.decision or "",
        )
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]
