"""`escrowmq cluster drill` with a group of real processes over a real etcd."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from escrowmq.drill import history
from escrowmq.drill.history import AcknowledgedSend, ReadMessage
from escrowmq.drill.report import DrillReport, violations_in, with_verdict
from tests.authority import etcd_servers
from tests.crash.test_group import MemberProcess
from tests.interop.process import until

from .test_cluster_command import NAMES, Group

pytestmark = pytest.mark.crash

QUICK = {"escrowSilence": 1_000, "escrowTakeover": 1_500}
DRILLS = ("--set", "escrowDrills=true")
SECONDS = "4"
SHORT = ("--yes", "--rate", "100", "--pause", "0.5", "--seconds", SECONDS, "--json")


QUICKLY = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
HASTY = """
import sys
from escrowmq.cli.main import main
from escrowmq.store.log_ends import LogEnds

def answers_at_once(ends, *, timeout_ms):
    ends._hides_unconfirmed = True
    ends._update_ends()

LogEnds.lead_group = answers_at_once
sys.exit(main(sys.argv[1:]))
"""
"""A broker with a bug: its senders do not wait for the copies."""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with ExitStack() as stack:
        yield Group(tmp_path_factory.mktemp("drill"), stack, *QUICKLY, *DRILLS)


@contextlib.contextmanager
def supervised(group: Group) -> Iterator[None]:
    """A member that ends is started again."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.05):
            for member in group.members.values():
                if member.process is not None and member.process.poll() is not None:
                    member.kill()
                    member.start()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def drilled(
    group: Group, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One drill with every fault, and where its history is."""
    keep = tmp_path_factory.mktemp("kept") / "drill"
    faults = "switch,authority,cut,isolate,freeze,kill,freeze@copy,cut@copy"
    with supervised(group):
        done = group.run(
            "drill", "pair", *SHORT, "--faults", faults, "--kill", "--keep", str(keep),
            within_s=300,
        )  # fmt: skip
    return done, keep


def test_every_fault_is_survived_and_reported(
    group: Group, drilled: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    done, _ = drilled
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(done.stdout, type=DrillReport)
    assert report.is_ok
    assert report.findings == report.notes == report.hints == []
    rows = {row.fault: row for row in report.rows}
    assert [*rows] == [
        "none", "switch", "authority", "cut", "isolate", "freeze", "kill", "freeze@copy", "cut@copy"
    ]  # fmt: skip
    assert all(row.violations_count == 0 and row.notes == [] for row in report.rows)
    assert all(row.in_sync_after_ms >= 0 and row.acknowledged and row.ends for row in report.rows)
    for name in ("switch", "isolate", "freeze", "kill"):
        row = rows[name]
        assert row.member == row.master_before != row.master_after
        assert row.epoch_after > row.epoch_before
    for name in ("authority", "none"):
        assert rows[name].epoch_before == rows[name].epoch_after
    for name in ("freeze@copy", "cut@copy"):
        assert rows[name].member != rows[name].master_before
    for name in ("cut", "isolate", "freeze", "authority"):
        assert rows[name].in_sync_after_ms >= int(SECONDS) * 1_000
    # Of the silent master nobody knows before escrowTakeover has passed.
    assert rows["freeze"].longest_gap_ms >= QUICK["escrowTakeover"]
    assert rows["isolate"].longest_gap_ms >= QUICK["escrowTakeover"]
    assert rows["authority"].longest_gap_ms < int(SECONDS) * 1_000


def test_nothing_of_a_drill_is_left(
    group: Group, drilled: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    assert group.is_whole()
    assert [name for name in group.admin.topics.names() if "drill" in name] == []
    assert [name for name in group.admin.groups.names() if "drill" in name] == []
    assert group.admin.transactions.count().count == 0


def test_members_remember_who_did_what_to_them(
    group: Group, drilled: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    report = msgspec.json.decode(drilled[0].stdout, type=DrillReport)
    events = [one for one in group.admin.diagnosis.events() if report.drill in one.what]
    done = {one.what.split(": ")[1].split(" for ")[0] for one in events}
    assert done == {"switch", "authority", "cut", "isolate", "freeze", "kill"}
    assert all(one.who and one.subject.startswith("broker pair, member ") for one in events)
    logs = "".join(member.log for member in group.members.values())
    assert f"drill {report.drill} of 127.0.0.1" in logs
    assert "request=ESCROW_GROUP_DRILL" in logs


def test_a_kept_history_can_be_judged_again_and_a_loss_in_it_is_found(
    drilled: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, keep = drilled
    report = msgspec.json.decode((keep / "report.json").read_bytes(), type=DrillReport)
    assert report == msgspec.json.decode(done.stdout, type=DrillReport)
    assert (keep / "clients.log").exists()
    events = list(history.read_events([keep / "history.jsonl"]))
    final = list(history.read_events([keep / "final.jsonl"]))
    assert violations_in(events, final) == []
    plain = [
        e for e in events if isinstance(e, AcknowledgedSend) and e.end_ns and not e.transaction
    ]
    lost = plain[len(plain) // 2]
    # A consumer has read it, and at the end it is not there any more.
    findings = violations_in(
        events, [e for e in final if not (isinstance(e, ReadMessage) and e.key == lost.key)]
    )
    assert {finding.kind.name for finding in findings} == {"LOST", "GAP"}
    verdict = with_verdict(msgspec.structs.replace(report, rows=[]), findings)
    assert not verdict.is_ok
    assert verdict.verdict.startswith("WRONG: 1 GAP, 1 LOST")
    assert verdict.findings[1].startswith(f"LOST: {lost.key} at ")


def test_a_group_that_loses_messages_is_found_out(tmp_path: Path) -> None:
    """The isolated master acknowledges what its successor never gets."""
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with ExitStack() as stack:
        group = Group(tmp_path, stack, *QUICKLY, *DRILLS, program=("-c", HASTY))
        done = group.run("drill", "pair", *SHORT, "--faults", "isolate", within_s=120)
    assert done.returncode == 1, done.stderr
    report = msgspec.json.decode(done.stdout, type=DrillReport)
    assert report.rows[-1].fault == "isolate"
    assert report.rows[-1].lost > 0
    assert report.findings_count == sum(row.violations_count for row in report.rows)
    assert report.verdict.startswith("WRONG: ")
    assert " LOST" in report.verdict


def test_what_would_be_done_is_shown_and_done_only_with_a_yes(group: Group) -> None:
    before = group.now
    shown = group.run("drill", "pair", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert f"master {before.master}" in shown.stdout
    assert "stops as by SIGSTOP for 10 s" in shown.stdout
    found = json.loads(group.run("drill", "pair", "--dry-run", "--json").stdout)
    assert found["isDryRun"]
    assert [row["fault"] for row in found["rows"]] == [
        "switch", "authority", "cut", "isolate", "freeze"
    ]  # fmt: skip
    asked = group.run("drill", "pair")
    assert asked.returncode == 1
    assert "nothing was done. To do it: --yes" in asked.stderr
    refused = group.run("drill", "pair", "--faults", "kill", "--yes")
    assert refused.returncode == 2
    assert "--kill" in refused.stderr
    assert group.now.epoch == before.epoch


def test_an_interrupt_heals_and_reports(group: Group) -> None:
    until("three members in sync", group.is_whole)
    command = group.command("drill", "pair", *SHORT, "--faults", "isolate", "--seconds", "60")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("isolate: ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, err
    assert "interrupted" in err
    report = msgspec.json.decode(out, type=DrillReport)
    assert report.is_interrupted
    assert report.is_judged
    assert report.findings == []
    assert [row.fault for row in report.rows] == ["none", "isolate"]
    assert "it was interrupted" in report.verdict
    assert [name for name in group.admin.topics.names() if "drill" in name] == []
    until("three members in sync", group.is_whole)


def test_a_second_interrupt_ends_the_wait_for_the_rest(group: Group) -> None:
    until("three members in sync", group.is_whole)
    command = group.command("drill", "pair", *SHORT, "--faults", "isolate", "--seconds", "60")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for begins in ("isolate: ", "transactions settle"):
            while not (line := process.stderr.readline()).startswith(begins):
                assert line, f"it has ended before {begins!r}"
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, err
    report = msgspec.json.decode(out, type=DrillReport)
    assert not report.is_judged
    assert "the history is not judged" in report.verdict
    assert [name for name in group.admin.topics.names() if "drill" in name] == []
    until("three members in sync", group.is_whole)


def test_a_member_that_nobody_starts_again_is_reported(group: Group) -> None:
    until("three members in sync", group.is_whole)
    done = group.run("drill", "pair", *SHORT, "--faults", "kill,freeze", "--kill", "--within", "3")
    assert done.returncode == 1, done.stderr
    report = msgspec.json.decode(done.stdout, type=DrillReport)
    assert [row.fault for row in report.rows] == ["none", "kill"]  # and nothing more is done
    killed = report.rows[-1].member
    assert report.rows[-1].in_sync_after_ms == -1
    assert report.rows[-1].notes == [
        f"{killed} did not come back within 3 s: no supervisor started it"
    ]
    assert report.findings == []
    assert report.verdict.startswith("NOT PASSED: ")
    refused = group.run("drill", "pair", "--dry-run")
    assert refused.returncode == 2
    assert "without a master" in refused.stderr
    group.members[killed].kill()
    group.members[killed].start()
    until("three members in sync", group.is_whole)


def test_all_members_must_have_been_started_for_drills(group: Group) -> None:
    until("three members in sync", group.is_whole)
    name = next(one for one in NAMES if one != group.now.master)
    member: MemberProcess = group.members[name]
    member.kill()
    command = [*member._command]
    at = command.index("escrowDrills=true")
    member._command[at] = "escrowDrills=false"
    member.start()
    until("three members in sync", group.is_whole)
    for words in (("--dry-run",), ("--yes",)):
        refused = group.run("drill", "pair", *words)
        assert refused.returncode == 1
        assert f"member {name} takes part in no drill" in refused.stderr
        assert "escrowDrills=true" in refused.stderr
    member.kill()
    member._command[at] = "escrowDrills=true"
    member.start()
    until("three members in sync", group.is_whole)


def test_at_a_terminal_it_asks(group: Group) -> None:
    until("three members in sync", group.is_whole)
    for answer, code in ((b"no\n", 1), (b"pair\n", 0)):
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer)
            command = group.command("drill", "pair", *SHORT[1:], "--faults", "switch")
            done = subprocess.run(
                command, stdin=theirs, capture_output=True, text=True, timeout=120, check=False
            )
        finally:
            os.close(ours)
            os.close(theirs)
        assert done.returncode == code, done.stderr
        assert "All clients of pair are concerned. To go on type its name:" in done.stderr
        assert ("nothing was done" in done.stderr) is (code == 1)
        until("three members in sync", group.is_whole)


def test_one_drill_at_a_time(group: Group) -> None:
    until("three members in sync", group.is_whole)
    copy = next(one for one in group.now.members if one.role == "in sync")
    group.admin.replicas.drill(copy.address, "another", member=copy.name)
    try:
        refused = group.run("drill", "pair", "--yes")
    finally:
        group.admin.replicas.drill(copy.address, "another", "end", member=copy.name)
    assert refused.returncode == 1
    assert "is in drill another of " in refused.stderr
    assert [name for name in group.admin.topics.names() if "drill" in name] == []


def test_a_group_without_its_authority_is_left_alone(group: Group) -> None:
    until("three members in sync", group.is_whole)
    for node in group.etcd.nodes:
        node.kill()
    try:
        until(
            "a member that notices",
            lambda: any("authority does not answer" in note for note in group.now.notes),
            within_s=30,
        )
        refused = group.run("drill", "pair", "--yes")
    finally:
        for node in group.etcd.nodes:
            group.etcd.restart(node)
        group.etcd.wait()
    assert refused.returncode == 2
    assert "does not reach the authority" in refused.stderr
    until("three members in sync", group.is_whole)
    until("the authority", lambda: not group.now.notes, within_s=30)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate", "0"), "--rate 0: 1 to 1000 is allowed"),
        (("--rate", "1001"), "--rate 1001"),
        (("--rounds", "0"), "--rounds 0: 1 to 10 is allowed"),
        (("--rounds", "11"), "--rounds 11"),
        (("--within", "0"), "--within: '0': more than 0 seconds are expected"),
        (("--pause", "nan"), "--pause: 'nan': a number from 0 to"),
        (("--seconds", "61"), "--seconds 61"),
    ],
)
def test_numbers_out_of_bounds_are_refused(group: Group, words: tuple[str, ...], said: str) -> None:
    refused = group.run("drill", "pair", "--dry-run", *words)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_a_folder_that_has_a_history_already_is_not_written_to(
    group: Group, tmp_path: Path
) -> None:
    (tmp_path / "history.jsonl").write_text("kept\n")
    refused = group.run("drill", "pair", *SHORT, "--faults", "switch", "--keep", str(tmp_path))
    assert refused.returncode == 2
    assert "name a new folder" in refused.stderr
    assert (tmp_path / "history.jsonl").read_text() == "kept\n"
