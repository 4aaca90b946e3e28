"""Creates, changes and deletes users and policies, each with a preview."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from escrowmq.client.admin.access import PolicyEntry, UserFields
from escrowmq.client.admin.previews import access as previews
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.console.problems import Problem

_User = Annotated[str, Meta(min_length=1)]
_Broker = Annotated[str, Meta(description="only this broker; all if empty")]
_Password = Annotated[
    str,
    Meta(description="not needed for a dry run", extra_json_schema={"format": "password"}),
]
_Resource = Annotated[
    str,
    Meta(
        pattern=r"^(\*|(Cluster|Namespace|Topic|Group):.+)$",
        description="*, or Cluster:, Namespace:, Topic: or Group: with a name, a prefix such as "
        "Topic:orders*, or *",
    ),
]
_Action = Literal["All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]


class UserMade(ChangeParameters, kw_only=True):
    """A user to create."""

    user: _User
    password: _Password = ""
    is_super: bool = False
    broker: _Broker = ""


class UserChanged(ChangeParameters, kw_only=True):
    """Changes of a user; a field that is null stays as it is."""

    user: _User
    is_super: bool | None = None
    is_enabled: bool | None = None
    broker: _Broker = ""


class PasswordSet(ChangeParameters, kw_only=True):
    """A new password for a user."""

    user: _User
    password: _Password = ""
    keeps_former: Annotated[bool, Meta(description="the previous password stays valid as well")] = (
        False
    )
    broker: _Broker = ""


class UserGone(ChangeParameters, kw_only=True):
    """A user to delete, with its policies."""

    user: _User
    broker: _Broker = ""


class PolicySet(ChangeParameters, kw_only=True):
    """Allowed or denied actions of a user on a resource; they replace the user's entry for it."""

    user: _User
    resource: _Resource
    actions: list[_Action] = field(default_factory=list)
    decision: Literal["Allow", "Deny"] = "Allow"
    sources: list[str] = field(default_factory=list)
    """Addresses and networks from which the entry applies; all if empty."""
    is_default: bool = False
    """Whether the entry belongs to the default policy, which applies if no other does."""
    broker: _Broker = ""


class PolicyGone(ChangeParameters, kw_only=True):
    """The entry to delete: a user's for one resource, or all of the user's entries."""

    user: _User
    resource: str = ""
    is_default: bool = False
    broker: _Broker = ""


async def create_user(caller: Caller, wanted: UserMade) -> Change:
    """Create a user."""
    admin = await caller.account_client.open_admin()
    user, is_super, broker = wanted.user, wanted.is_super, wanted.broker
    if wanted.dry_run:
        found = await previews.create_user(admin, user, is_super=is_super, broker=broker)
        return Change.dry_run_answer(found)
    await admin.access.create_user(
        user, _require_password(wanted.password), is_super=is_super, broker=broker
    )
    return Change(is_dry_run=False, said=f"The user {user} was created.", count=1)


async def update_user(caller: Caller, wanted: UserChanged) -> Change:
    """Change a user's type or status."""
    fields: UserFields = {}
    if wanted.is_super is not None:
        fields["is_super"] = wanted.is_super
    if wanted.is_enabled is not None:
        fields["is_enabled"] = wanted.is_enabled
    return await _update_user(caller, wanted.user, wanted.broker, fields, is_dry=wanted.dry_run)


async def set_password(caller: Caller, wanted: PasswordSet) -> Change:
    """Give a user a new password."""
    fields: UserFields = {"keeps_former": wanted.keeps_former}
    fields["password"] = wanted.password if wanted.dry_run else _require_password(wanted.password)
    return await _update_user(caller, wanted.user, wanted.broker, fields, is_dry=wanted.dry_run)


async def _update_user(
    caller: Caller, user: str, broker: str, fields: UserFields, *, is_dry: bool
) -> Change:
    admin = await caller.account_client.open_admin()
    if is_dry:
        return Change.dry_run_answer(
            await previews.update_user(admin, user, broker=broker, **fields)
        )
    await admin.access.update_user(user, broker=broker, **fields)
    return Change(is_dry_run=False, said=f"The user {user} is changed.", count=1)


async def delete_user(caller: Caller, wanted: UserGone) -> Change:
    """Delete a user with its policies."""
    admin = await caller.account_client.open_admin()
    found = await previews.delete_user(admin, wanted.user, broker=wanted.broker)
    if wanted.dry_run:
        return Change.dry_run_answer(found)
    await admin.access.delete_user(wanted.user, broker=wanted.broker)
    return Change(is_dry_run=False, said=f"The user {wanted.user} is deleted.", count=1)


async def put_policy(caller: Caller, wanted: PolicySet) -> Change:
    """Allow or deny a user actions on a resource."""
    if not wanted.actions:
        raise Problem(400, "bad_request", "no action is marked", "All stands for every action")
    admin = await caller.account_client.open_admin()
    if wanted.dry_run:
        entry = PolicyEntry(
            broker=wanted.broker, user=wanted.user, resource=wanted.resource,
            policy_type=previews.POLICY_TYPES[wanted.is_default], actions=list(wanted.actions),
            sources=wanted.sources, decision=wanted.decision,
        )  # fmt: skip
        return Change.dry_run_answer(await previews.put_policy(admin, entry))
    await admin.access.put_policy(
        wanted.user, wanted.resource, wanted.actions, decision=wanted.decision,
        sources=wanted.sources, is_default=wanted.is_default, broker=wanted.broker,
    )  # fmt: skip
    said = f"The policy of {wanted.user} for {wanted.resource} is set."
    return Change(is_dry_run=False, said=said, count=1)


async def delete_policy(caller: Caller, wanted: PolicyGone) -> Change:
    """Delete a user's entry for a resource, or all of its entries."""
    admin = await caller.account_client.open_admin()
    user, resource, broker = wanted.user, wanted.resource, wanted.broker
    found = await previews.delete_policy(
        admin, user, resource, is_default=wanted.is_default, broker=broker
    )
    if wanted.dry_run:
        return Change.dry_run_answer(found)
    await admin.access.delete_policy(user, resource, is_default=wanted.is_default, broker=broker)
    said = f"{found.count} policy entries of {user} are deleted."
    return Change(is_dry_run=False, said=said, count=found.count)


def _require_password(password: str) -> str:
    if not password:
        raise Problem(400, "bad_request", "the password is missing", "give one; dry runs need none")
    return password


_USER: Final = "/access/users/{user}"
_POLICIES: Final = "/access/policies"
OPERATIONS: Final = (
    Operation(name="access.create-user", method="POST", path="/access/users", wants=UserMade,
              gives=Change, summary="Create the user", handler=create_user, takes_password=True),
    Operation(name="access.update-user", method="POST", path=_USER, wants=UserChanged,
              gives=Change, summary="Change the user", handler=update_user),
    Operation(name="access.set-password", method="POST", path=f"{_USER}/password",
              wants=PasswordSet, gives=Change, summary="Set the password",
              handler=set_password, takes_password=True),
    Operation(name="access.delete-user", method="DELETE", path=_USER, wants=UserGone,
              gives=Change, summary="Delete the user", handler=delete_user),
    Operation(name="access.put-policy", method="POST", path=_POLICIES, wants=PolicySet,
              gives=Change, summary="Set the policy", handler=put_policy),
    Operation(name="access.delete-policy", method="DELETE", path=_POLICIES, wants=PolicyGone,
              gives=Change, summary="Delete the policy", handler=delete_policy),
)  # fmt: skip
