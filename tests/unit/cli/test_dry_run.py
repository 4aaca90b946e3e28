"""Every verb that changes something has `--dry-run`."""

from __future__ import annotations

import pytest

from escrowmq.cli.completion import continuations
from escrowmq.cli.dry_run import print_preview
from escrowmq.cli.main import build_parser
from escrowmq.client.admin.previews.preview import Preview, PreviewRow, format_by_broker

READS = {
    "acl explain", "acl policy list", "acl user list", "broker config", "broker list",
    "broker producers", "broker show", "cluster status", "completion", "context list",
    "context show", "doctor", "events", "group list", "group show", "group top", "health",
    "message at", "message explain", "message find", "message show", "offset show", "outbox status",
    "pipeline export", "pipeline funnel", "store check", "store dump", "topic list", "topic show",
    "tx count", "tx discarded", "tx list", "tx show", "tx top",
}  # fmt: skip
"""They change nothing of a cluster. `export` and `funnel` write into a folder of their own."""

SERVES = {"", "broker", "check-from-db", "console", "mcp", "nameserver", "serve"}
"""They run until they are stopped; what they change is up to their clients."""


def leaves() -> dict[str, bool]:
    """Each verb with its action, and whether it has a dry run."""
    found = {one.path: one for one in continuations(build_parser(), "")}
    inner = {path.rpartition(" ")[0] for path in found}
    return {
        path: "--dry-run" in one.options
        for path, one in found.items()
        if path not in inner or path in SERVES
    }


def test_a_verb_reads_or_serves_or_has_a_dry_run() -> None:
    found = leaves()
    without = {path for path, has_dry_run in found.items() if not has_dry_run}
    assert without - READS - SERVES == set(), "they change something: add_dry_run"
    assert without >= READS | SERVES, "a name that is no verb any more, or has a dry run by now"
    assert len(found) > 50


@pytest.fixture
def found() -> Preview:
    row = PreviewRow(what="queues", before="4", after="8")
    return Preview(said="It would be changed.", count=30, rows=[row, row])


def test_a_preview_is_a_sentence_and_a_table(
    found: Preview, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = build_parser().parse_args(["topic", "delete", "t", "--dry-run"])
    assert print_preview(arguments, found) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dry run: It would be changed.", "WHAT\tBEFORE\tAFTER", "queues\t4\t8", "queues\t4\t8",
        "2 of 30 are shown",
    ]  # fmt: skip


def test_brokers_are_named_where_they_differ() -> None:
    assert format_by_broker([("a", "4"), ("b", "4")]) == "4"
    assert format_by_broker([("a", "4"), ("b", "8")]) == "4 on a, 8 on b"
    assert format_by_broker([]) == ""
