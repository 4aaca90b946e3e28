"""Scripts for shells have every word of the command line, and run in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from escrowmq.cli.completion import continuations
from escrowmq.cli.main import build_parser, main

ASKED = {
    ("tx", "c"): {"count", "commit", "check"},
    ("cont",): {"context"},
    ("tx", "list", "--older"): {"--older-than"},
    ("serve", "--grpc"): {"--grpc-port"},
}


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    file = folder / f"completion.{shell}"
    file.write_text(capsys.readouterr().out)
    return file


def test_every_verb_action_and_option_is_in_it() -> None:
    found = {one.path: one for one in continuations(build_parser(), "")}
    assert {"tx", "group", "serve", "completion"} <= set(found[""].words)
    assert {"list", "show", "commit"} <= set(found["tx"].words)
    assert {"--older-than", "--output", "--context"} <= set(found["tx list"].options)
    assert found["tx"].words["commit"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="not on this machine: bash")
@pytest.mark.parametrize("words", ASKED)
def test_bash_completes(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = script("bash", tmp_path, capsys)
    ask = (
        f"source {file}; COMP_WORDS=(escrowmq {' '.join(words)}); COMP_CWORD={len(words)}; "
        "_escrowmq; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == ASKED[words]
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="not on this machine: fish")
@pytest.mark.parametrize("words", ASKED)
def test_fish_completes(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = script("fish", tmp_path, capsys)
    (tmp_path / "escrowmq").touch(mode=0o755)
    line = " ".join(["escrowmq", *words])
    ask = f"set -p PATH {tmp_path}; source {file}; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert {row.partition("\t")[0] for row in done.stdout.splitlines()} == ASKED[words]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="not on this machine: zsh")
def test_zsh_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = script("zsh", tmp_path, capsys)
    subprocess.run(["zsh", "-n", str(file)], check=True)
