"""`escrowmq doctor`: reports what is wrong in a cluster, and what to do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from escrowmq.cli.cluster_verbs import OK, REFUSED, add_cluster_options, print_items, run_action
from escrowmq.cli.printing import print_line

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser; the verb has no actions."""
    add_cluster_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what is wrong in the cluster. Return 1 if there are problems, 0 if there are at most
    warnings, and 2 if the cluster cannot be queried."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    findings = admin.diagnosis.cluster()
    print_items(
        findings,
        is_json=arguments.json,
        columns=("SEVERITY", "SUBJECT", "WHAT", "NEXT"),
        row=lambda one: (one.severity, one.subject, one.what, one.hint),
    )
    if not findings and not arguments.json:
        print_line("nothing is wrong that could be seen")
    return REFUSED if any(one.severity == "problem" for one in findings) else OK
