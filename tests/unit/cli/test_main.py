from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from escrowmq.cli.main import EXIT_BAD, build_parser, main
from escrowmq.node.build import release_with_commit


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--set", "transactionTimeOut=abc"],
        ["serve", "--set", "nothing"],
        ["serve", "-c", "/nonexistent/broker.conf"],
        ["broker", "-n", "nowhere"],
        ["nameserver", "--set", "scanNotActiveBrokerInterval=x"],
    ],
)
def test_server_that_cannot_start_says_why_in_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--data", str(tmp_path)]) == EXIT_BAD
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    assert found.err.startswith(f"escrowmq {arguments[0]}: ")


def test_taken_port_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["nameserver", "--data", str(tmp_path), "--port", port]) == EXIT_BAD
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_every_setting_is_listed_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    about = (
        "checks before a half message is given up; at least 1; a change by request takes effect "
        "at once"
    )
    assert f"transactionCheckMax=15    # {about}" in lines
    assert "# name server" in lines
    assert not [line for line in lines if line.startswith("is_sync_flush")]


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["serve", "--port", "many"]])
def test_command_line_that_cannot_be_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_BAD
    assert "usage: escrowmq" in capsys.readouterr().err


def test_no_command_shows_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == EXIT_BAD
    told = capsys.readouterr().err
    assert "a name server alone" in told


def test_options_of_a_server_are_read() -> None:
    found = build_parser().parse_args(
        ["serve", "--nameserver-port", "0", "--broker-port", "5", "--set", "a=1", "--set", "b=2"]
    )
    assert (found.nameserver_port, found.port, found.pairs) == (0, 5, ["a=1", "b=2"])


def test_version_is_that_of_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"escrowmq {release_with_commit()}\n"
    assert release_with_commit().partition("+")[0] == version("escrowmq")


@pytest.mark.parametrize(
    ("words", "code"),
    [(["broker", "--settings"], 128 + signal.SIGPIPE), (["--help"], 0), (["tx", "--help"], 0)],
)
def test_who_reads_no_further_is_told_nothing(words: list[str], code: int) -> None:
    """As `| head` does. The pipe is closed before the command writes; what argparse cannot print it
    does not print."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "escrowmq", *words],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode == code


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (
            "transactionTimeOut=5s",
            "a whole number of milliseconds from 0 is expected, such as 6000",
        ),
        ("transactionCheckMax=0", "a whole number from 1 is expected, such as 15"),
        ("fileReservedTime=soon", "a whole number of hours"),
        ("maxMessageSize=4M", "a whole number of bytes"),
        ("maxMessageSize=99999999999", "a whole number of bytes from 1 to 2147483647"),
        (f"flushIntervalCommitLog={10**20}", "a whole number of milliseconds"),
    ],
)
def test_a_number_that_is_none_is_told_in_which_unit_it_is_wanted(
    pair: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--set", pair, "--data", str(tmp_path)]) == EXIT_BAD
    assert f"{pair}: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "tx count --timeout inf", "doctor --timeout nan", "tx top --interval nan",
        "health 127.0.0.1:1 --timeout -1", "pipeline reconcile --out x --timeout inf",
        "pipeline reconcile --out x --grace nan", "pipeline replay a --to-topic b --rate inf",
        "check-from-db sqlite:///x --group g --forget-after inf",
        "cluster drill b --pause inf", "cluster drill b --within nan",
    ],
)  # fmt: skip
def test_a_number_that_is_not_finite_is_refused(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended in a traceback, with the exit code of a refusal."""
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert "a number from 0 to 100000000 is expected" in capsys.readouterr().err
