"""Users and policies of the brokers, and explanations of why a user may or may not do something."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from escrowmq.client.admin.access import AccessExplanation as Verdict
from escrowmq.client.admin.access import PolicyEntry, UserSummary
from escrowmq.console.operations import Caller, Operation
from escrowmq.console.paging import Listed, Paging, cut_page
from escrowmq.errors import UsageError


class UsersWanted(Paging, kw_only=True):
    """Selects which users to list."""

    part: Annotated[str, Meta(description="part of the name")] = ""


class PoliciesWanted(Paging, kw_only=True):
    """Selects which policies to list."""

    user: str = ""
    resource: Annotated[str, Meta(description="part of the resource")] = ""


class Asked(msgspec.Struct, kw_only=True):
    """A question to the brokers: may this user do this?"""

    user: Annotated[str, Meta(min_length=1)]
    action: Annotated[str, Meta(min_length=1, description="pub, sub, get, update, ...")]
    resource: Annotated[str, Meta(min_length=1, description="a topic, Group:g, Cluster:c")]
    address: Annotated[str, Meta(description="address that the user connects from")] = "127.0.0.1"


async def list_users(caller: Caller, wanted: UsersWanted) -> Listed[UserSummary]:
    """List the users of ACL 2.0, by name."""
    admin = await caller.account_client.open_admin()
    found = await caller.account_client.memo.get_or_request(
        ("users", wanted.part), lambda: admin.access.users(wanted.part), fresh_s=10
    )
    return cut_page(sorted(found, key=lambda one: (one.name, one.broker)), wanted)


async def list_policies(caller: Caller, wanted: PoliciesWanted) -> Listed[PolicyEntry]:
    """List the policy entries of ACL 2.0, by user."""
    admin = await caller.account_client.open_admin()
    found = await caller.account_client.memo.get_or_request(
        ("policies", wanted.user, wanted.resource),
        lambda: admin.access.policies(wanted.user, resource=wanted.resource),
        fresh_s=10,
    )
    return cut_page(sorted(found, key=lambda one: (one.user, one.resource, one.broker)), wanted)


async def explain_access(caller: Caller, wanted: Asked) -> list[Verdict]:
    """Ask each broker whether a user may do something, and which rule decides. Only the stored
    rules are evaluated: the user is not authenticated."""
    try:
        ipaddress.ip_address(wanted.address)
    except ValueError as error:
        raise UsageError(f"address={wanted.address}: an IP address is expected") from error
    admin = await caller.account_client.open_admin()
    return await admin.access.explain(
        wanted.user, wanted.action, wanted.resource, address=wanted.address
    )


OPERATIONS: Final = (
    Operation(name="access.users", method="GET", path="/access/users", wants=UsersWanted,
              gives=Listed[UserSummary], summary="Users of the brokers", handler=list_users),
    Operation(name="access.policies", method="GET", path="/access/policies",
              wants=PoliciesWanted, gives=Listed[PolicyEntry], summary="What users may do",
              handler=list_policies),
    Operation(name="access.explain", method="GET", path="/access/explain", wants=Asked,
              gives=list[Verdict], summary="Why somebody may do something, or not",
              handler=explain_access),
)  # fmt: skip
