from __future__ import annotations

from escrowmq.cli.main import build_parser


def test_dead_letters_are_all_of_them_unless_something_is_said() -> None:
    found = build_parser().parse_args(["group", "redeliver-dead", "G"])
    assert (found.group, found.topic, found.limit, found.dry_run) == ("G", "", None, False)
    words = ["group", "redeliver-dead", "G", "--topic", "T", "--limit", "5", "--dry-run"]
    found = build_parser().parse_args(words)
    assert (found.topic, found.limit, found.dry_run) == ("T", 5, True)
