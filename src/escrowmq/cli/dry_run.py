"""`--dry-run`: what a change would do, from the previews that the console's API shows as well."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from escrowmq.cli.cluster_verbs import OK
from escrowmq.cli.printing import say, show_json

if TYPE_CHECKING:
    from escrowmq.client.admin.admin import Admin as AsyncAdmin
    from escrowmq.client.admin.previews.preview import Preview
    from escrowmq.client.blocking.admin import Admin

P = ParamSpec("P")
T = TypeVar("T")


def add_dry_run(*actions: argparse.ArgumentParser) -> None:
    """Let actions show what they would change, and change nothing."""
    for action in actions:
        action.add_argument(
            "--dry-run", action="store_true", help="show what would be changed, and change nothing"
        )


def admin_call(
    admin: Admin,
    deed: Callable[Concatenate[AsyncAdmin, P], Awaitable[T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """The result of a function of the asyncio client."""
    from escrowmq.client.blocking.face import engine_of

    async def ask() -> T:
        return await deed(engine_of(admin), *args, **kwargs)

    return admin.topics.portal.call(ask())


def preview(
    admin: Admin,
    deed: Callable[Concatenate[AsyncAdmin, P], Awaitable[Preview]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Preview:
    """What a change would do."""
    return admin_call(admin, deed, *args, **kwargs)


def show_preview(arguments: argparse.Namespace, found: Preview) -> int:
    """Print a preview for programs or for people; return the exit code."""
    if arguments.json:
        show_json({"isDryRun": True, "said": found.said, "count": found.count, "rows": found.rows})
        return OK
    say(f"dry run: {found.said}")
    if found.rows:
        say("WHAT", "BEFORE", "AFTER")
    for row in found.rows:
        say(row.what, row.before or "-", row.after or "-")
    if found.count is not None and found.count > len(found.rows) > 1:
        say(f"{len(found.rows)} of {found.count} are shown")
    return OK
