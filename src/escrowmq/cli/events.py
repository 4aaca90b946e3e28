"""`escrowmq events`: lists what happened in a cluster, and who did it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import OK, add_cluster_options, print_items, run_action

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser; the verb has no actions."""
    add_cluster_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the events, the newest first; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    print_items(
        admin.diagnosis.events(),
        is_json=arguments.json,
        columns=("WHEN", "SUBJECT", "WHAT", "BY"),
        row=lambda one: (format_moment(one.at_ms), one.subject, one.what, one.who),
    )
    return OK
