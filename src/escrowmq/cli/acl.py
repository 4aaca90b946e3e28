"""`escrowmq acl`: users, policies, and explanations of who may do what."""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escrowmq.cli.cluster_verbs import (
    OK,
    REFUSED,
    UNUSABLE,
    add_action,
    print_change,
    print_items,
    run_action,
)
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.printing import print_error_line, print_json, print_line
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from escrowmq.client.admin.access import PolicyEntry, UserFields
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.codec.acl2_bodies import AccessJudgement

_USER_COLUMNS = ("USER", "TYPE", "STATUS", "BROKER")
_POLICY_COLUMNS = ("USER", "RESOURCE", "ACTIONS", "DECISION", "SOURCES", "TYPE", "BROKER")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_user_action(actions)
    _add_policy_action(actions)
    explain = add_action(actions, "explain", "explain which rule allows or denies a user something")
    explain.add_argument("user", metavar="USER", help="user, or access key of ACL 1.0")
    explain.add_argument("wish", metavar="ACTION", help="pub, sub, create, update, get, ...")
    explain.add_argument(
        "resource", metavar="TOPIC", help="a topic, or Topic:T, Group:g, Cluster:c"
    )
    explain.add_argument(
        "--address", default="127.0.0.1", help="address that the user connects from"
    )
    explain.add_argument("--broker", default="", help="only this broker (default: all)")
    explain.add_argument(
        "--accounts",
        metavar="PATH",
        help="offline: use this plain_acl.yml, or the folder that contains it",
    )
    explain.add_argument("--data", metavar="DIR", help="offline: use the users in this data folder")


def _add_user_action(actions: Any) -> None:  # noqa: ANN401
    user = actions.add_parser("user", help="users of ACL 2.0")
    steps = user.add_subparsers(dest="step", required=True, metavar="STEP")
    listed = add_action(steps, "list", "list users")
    listed.add_argument("part", metavar="PART", nargs="?", default="", help="part of the name")
    create = add_action(steps, "create", "add a user; the password is read from standard input")
    update = add_action(steps, "update", "change a user")
    delete = add_action(steps, "delete", "remove a user and its policies")
    update.add_argument(
        "--password", action="store_true", help="read a new password from standard input"
    )
    for one in (create, update):
        one.add_argument("--super", action=argparse.BooleanOptionalAction, help="may do everything")
    update.add_argument(
        "--keep-former",
        action=argparse.BooleanOptionalAction,
        help="the previous password stays valid beside the new one, until --no-keep-former",
    )
    update.add_argument("--enabled", action=argparse.BooleanOptionalAction, help="may log in")
    for one in (create, update, delete):
        one.add_argument("user", metavar="USER")
    add_dry_run_option(create, update, delete)
    for one in (listed, create, update, delete):
        one.add_argument("--broker", default="", help="only this broker (default: all)")


def _add_policy_action(actions: Any) -> None:  # noqa: ANN401
    policy = actions.add_parser("policy", help="what users may do")
    steps = policy.add_subparsers(dest="step", required=True, metavar="STEP")
    listed = add_action(steps, "list", "list entries")
    listed.add_argument(
        "user", metavar="USER", nargs="?", default="", help="user, or part of the name"
    )
    listed.add_argument("--resource", default="", help="part of the resource")
    put = add_action(steps, "set", "set what a user may do with a resource")
    put.add_argument("--deny", action="store_true", help="deny the actions instead")
    put.add_argument(
        "--source",
        action="append",
        default=[],
        help="address or network of the user; may be repeated",
    )
    delete = add_action(steps, "delete", "remove the entry for a resource, or all entries")
    for one in (put, delete):
        one.add_argument("user", metavar="USER")
        one.add_argument(
            "--default",
            action="store_true",
            help="a default policy, which applies if no custom one does",
        )
    put.add_argument("resource", metavar="RESOURCE", help="Topic:T, Topic:prefix*, Group:g, *")
    put.add_argument("actions", metavar="ACTION", nargs="+", help="pub, sub, get, all, ...")
    delete.add_argument("resource", metavar="RESOURCE", nargs="?", default="")
    add_dry_run_option(put, delete)
    for one in (listed, put, delete):
        one.add_argument("--broker", default="", help="only this broker (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code. That of `explain` is 1 if the user may not do
    it."""
    if arguments.action == "explain":
        _check_address(arguments.address)
        if arguments.accounts or arguments.data:
            return _explain_from_files(arguments)
    work = {"user": _run_user, "policy": _run_policy, "explain": _run_explain}[arguments.action]
    return run_action(arguments, lambda admin: work(admin, arguments))


# -- users and policies --------------------------------------------------------------------------


def _run_user(admin: Admin, arguments: argparse.Namespace) -> int:
    access, name = admin.access, getattr(arguments, "user", "")
    match arguments.step:
        case "list":
            print_items(
                access.users(arguments.part, broker=arguments.broker),
                is_json=arguments.json,
                columns=_USER_COLUMNS,
                row=lambda one: (
                    one.name,
                    "super" if one.is_super else "normal",
                    "enabled" if one.is_enabled else "disabled",
                    one.broker,
                ),
            )
            return OK
        case _ if arguments.dry_run:
            return _preview_user(admin, arguments)
        case "create":
            is_super = bool(arguments.super)
            access.create_user(name, _read_password(), is_super=is_super, broker=arguments.broker)
        case "update":
            access.update_user(name, broker=arguments.broker, **_changed_fields(arguments))
        case _:
            access.delete_user(name, broker=arguments.broker)
    return print_change(arguments, {"user": name}, f"{name} {arguments.step}d")


def _preview_user(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import access as previews

    name, broker = arguments.user, arguments.broker
    match arguments.step:
        case "create":
            is_super = bool(arguments.super)
            found = call_preview(
                admin, previews.create_user, name, is_super=is_super, broker=broker
            )
        case "update":
            changes = _changed_fields(arguments)
            found = call_preview(admin, previews.update_user, name, broker=broker, **changes)
        case _:
            found = call_preview(admin, previews.delete_user, name, broker=broker)
    return print_preview(arguments, found)


def _preview_policy(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.access import PolicyEntry
    from escrowmq.client.admin.previews import access as previews

    if arguments.step == "delete":
        found = call_preview(
            admin, previews.delete_policy, arguments.user, arguments.resource,
            is_default=arguments.default, broker=arguments.broker,
        )  # fmt: skip
        return print_preview(arguments, found)
    entry = PolicyEntry(
        broker=arguments.broker, user=arguments.user, resource=arguments.resource,
        policy_type=previews.POLICY_TYPES[arguments.default], actions=arguments.actions,
        sources=arguments.source, decision="Deny" if arguments.deny else "Allow",
    )  # fmt: skip
    return print_preview(arguments, call_preview(admin, previews.put_policy, entry))


def _changed_fields(arguments: argparse.Namespace) -> UserFields:
    found: UserFields = {}
    if arguments.password:
        found["password"] = "" if arguments.dry_run else _read_password()
    if arguments.super is not None:
        found["is_super"] = arguments.super
    if arguments.keep_former is not None:
        found["keeps_former"] = arguments.keep_former
    if arguments.enabled is not None:
        found["is_enabled"] = arguments.enabled
    return found


def _read_password() -> str:
    """Read a password from standard input, because all users of the machine can read command
    lines."""
    import getpass
    import sys

    if sys.stdin.isatty():
        found = getpass.getpass("password: ")
    else:
        found = sys.stdin.readline().rstrip("\r\n")
    if not found:  # which brokers take for "leave it as it is"
        raise UsageError("the password is empty; write it on the first line of standard input")
    return found


def _check_resource_and_actions(arguments: argparse.Namespace) -> None:
    """Raise UsageError for an invalid resource or action, naming what is allowed; a broker's
    refusal would not name it."""
    from escrowmq.acl.acl2_policies import Action, enum_member, parse_resource

    if arguments.resource and parse_resource(arguments.resource) is None:
        raise UsageError(
            f"{arguments.resource!r} is not a resource; '*', or Cluster:, Namespace:, Topic: "
            "or Group: with a name, a prefix such as Topic:orders*, or * is expected"
        )
    for action in getattr(arguments, "actions", ()):
        if enum_member(Action, action) is None:
            allowed = ", ".join(one.value.lower() for one in Action)
            raise UsageError(f"{action!r} is not an action; allowed are {allowed}")


def _run_policy(admin: Admin, arguments: argparse.Namespace) -> int:
    access = admin.access
    if arguments.step != "list":
        _check_resource_and_actions(arguments)
    match arguments.step:
        case "list":
            print_items(
                access.policies(
                    arguments.user, resource=arguments.resource, broker=arguments.broker
                ),
                is_json=arguments.json,
                columns=_POLICY_COLUMNS,
                row=_policy_row,
            )
            return OK
        case _ if arguments.dry_run:
            return _preview_policy(admin, arguments)
        case "set":
            access.put_policy(
                arguments.user,
                arguments.resource,
                arguments.actions,
                decision="Deny" if arguments.deny else "Allow",
                sources=arguments.source,
                is_default=arguments.default,
                broker=arguments.broker,
            )
        case _:
            access.delete_policy(
                arguments.user,
                arguments.resource,
                is_default=arguments.default,
                broker=arguments.broker,
            )
    done = {"user": arguments.user, "resource": arguments.resource}
    return print_change(arguments, done, f"policies of {arguments.user} are changed")


def _policy_row(entry: PolicyEntry) -> tuple[object, ...]:
    return (
        entry.user, entry.resource, ",".join(entry.actions), entry.decision,
        ",".join(entry.sources), entry.policy_type, entry.broker,
    )  # fmt: skip


# -- explanations --------------------------------------------------------------------------------


def _run_explain(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.access.explain(
        arguments.user,
        arguments.wish,
        arguments.resource,
        address=arguments.address,
        broker=arguments.broker,
    )
    for answer in found:
        _print_judgement(answer, arguments, where=f" at {answer.broker}")
    if not found and not arguments.json:
        print_line("there is no access control: aclEnable and authenticationEnabled are false")
    return OK if all(answer.is_allowed for answer in found) else REFUSED


def _explain_from_files(arguments: argparse.Namespace) -> int:
    """Explain a permission from account files, without a broker."""

    from escrowmq.codec.acl2_bodies import AccessQuestion
    from escrowmq.errors import EscrowMQError

    question = AccessQuestion(
        user=arguments.user,
        action=arguments.wish,
        resource=arguments.resource,
        address=arguments.address,
    )
    try:
        found = list(_judgements_from_files(arguments, question))
    except (EscrowMQError, OSError) as error:
        print_error_line(f"escrowmq acl explain: {error}")
        return UNUSABLE
    for verdict in found:
        _print_judgement(verdict, arguments)
    return OK if all(verdict.is_allowed for verdict in found) else REFUSED


def _judgements_from_files(arguments: argparse.Namespace, question: Any) -> Any:  # noqa: ANN401 - see above
    from escrowmq.acl.access_explanation import explain_account, explain_user
    from escrowmq.acl.acl1_accounts import merge_files, read_accounts
    from escrowmq.acl.acl1_files import AccountFiles
    from escrowmq.acl.acl2_users import PATH, parse_users_file
    from escrowmq.net.disk import FileDisk

    if arguments.accounts:
        path = Path(arguments.accounts)
        if path.is_dir():
            files = AccountFiles(FileDisk(str(path)))
            files.load()
            rules = files.rules
        else:
            rules = merge_files([(path.name, read_accounts(_read_file(path)))], default=path.name)
        yield explain_account(rules, question)
    if arguments.data:
        book = parse_users_file(_read_file(Path(arguments.data) / PATH))
        yield explain_user(book, question)


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise UsageError(f"--address {text}: an IP address is expected") from error


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; --accounts takes plain_acl.yml or its folder, --data the "
            "data folder of a broker that has users"
        ) from error


def _print_judgement(
    verdict: AccessJudgement, arguments: argparse.Namespace, *, where: str = ""
) -> None:
    if arguments.json:
        print_json(verdict)
        return
    may = "may" if verdict.is_allowed else "may not"
    print_line(
        f"{arguments.user} {may} {arguments.wish} {arguments.resource} from {arguments.address} "
        f"(ACL {verdict.acl}{where}): {verdict.decided_by}"
    )
    for number, step in enumerate(verdict.steps, 1):
        print_line(f"  {number} {step}")
