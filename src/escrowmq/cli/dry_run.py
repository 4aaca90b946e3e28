"""`--dry-run`: shows what a change would do, by the same previews as the console's API."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from escrowmq.cli.cluster_verbs import OK
from escrowmq.cli.printing import print_json, print_line

if TYPE_CHECKING:
    from escrowmq.client.admin.admin import Admin as AsyncAdmin
    from escrowmq.client.admin.previews.preview import Preview
    from escrowmq.client.blocking.admin import Admin

P = ParamSpec("P")
T = TypeVar("T")


def add_dry_run_option(*actions: argparse.ArgumentParser) -> None:
    """Add the option `--dry-run` to actions."""
    for action in actions:
        action.add_argument(
            "--dry-run", action="store_true", help="show what would be changed, and change nothing"
        )


def call_with_admin(
    admin: Admin,
    action: Callable[Concatenate[AsyncAdmin, P], Awaitable[T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a coroutine function with the asyncio admin client; return its result."""
    from escrowmq.client.blocking.face import asyncio_client_of

    async def call_function() -> T:
        return await action(asyncio_client_of(admin), *args, **kwargs)

    return admin.topics.portal.call(call_function())


def call_preview(
    admin: Admin,
    action: Callable[Concatenate[AsyncAdmin, P], Awaitable[Preview]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Preview:
    """Call a preview function with the asyncio admin client; return the preview."""
    return call_with_admin(admin, action, *args, **kwargs)


def print_preview(arguments: argparse.Namespace, found: Preview) -> int:
    """Print a preview for programs or for people; return the exit code."""
    if arguments.json:
        print_json({"isDryRun": True, "said": found.said, "count": found.count, "rows": found.rows})
        return OK
    print_line(f"dry run: {found.said}")
    if found.rows:
        print_line("WHAT", "BEFORE", "AFTER")
    for row in found.rows:
        print_line(row.what, row.before or "-", row.after or "-")
    if found.count is not None and found.count > len(found.rows) > 1:
        print_line(f"{len(found.rows)} of {found.count} are shown")
    return OK
