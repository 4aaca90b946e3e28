"""`escrowmq doctor`: what is wrong in a cluster, and what to do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from escrowmq.cli.cluster_verbs import NO, OK, add_cluster, run_action, show_all
from escrowmq.cli.printing import say

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options; it has no actions."""
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """1 when there is a problem, 0 with warnings alone, 2 when the cluster cannot be asked."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    findings = admin.diagnosis.cluster()
    show_all(
        findings,
        is_json=arguments.json,
        columns=("SEVERITY", "SUBJECT", "WHAT", "NEXT"),
        row=lambda one: (one.severity, one.subject, one.what, one.hint),
    )
    if not findings and not arguments.json:
        say("nothing is wrong that could be seen")
    return NO if any(one.severity == "problem" for one in findings) else OK
