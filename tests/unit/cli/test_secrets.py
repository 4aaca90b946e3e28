"""Where the command line takes a secret from (cli/secrets.py)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from escrowmq.cli.main import build_parser
from escrowmq.cli.secrets import ACCESS_ENV, SECRET_ENV, credentials_of
from escrowmq.errors import UsageError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ACCESS_ENV, raising=False)
    monkeypatch.delenv(SECRET_ENV, raising=False)


def given(*words: str) -> tuple[str, str] | None:
    found = credentials_of(build_parser().parse_args(["topic", "list", *words]))
    return None if found is None else (found.access_key, found.secret_key)


def test_a_secret_comes_from_the_environment_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given() is None
    assert given("--access-key", "operator", "--secret-key", "of-words") == ("operator", "of-words")
    file = tmp_path / "secret"
    file.write_text("of-a-file\n")
    of_file = ("--secret-key-file", str(file))
    assert given("--access-key", "operator", *of_file) == ("operator", "of-a-file")
    monkeypatch.setattr("sys.stdin", io.StringIO("of-stdin\nthe next line is a password\n"))
    assert given("--access-key", "operator", "--secret-key-file", "-") == ("operator", "of-stdin")
    monkeypatch.setenv(ACCESS_ENV, "somebody")
    monkeypatch.setenv(SECRET_ENV, "of-the-environment")
    assert given() == ("somebody", "of-the-environment")
    assert given("--access-key", "operator", *of_file) == ("operator", "of-a-file")


def test_two_secrets_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for file, reason in ((tmp_path / "none", "No such file"), (tmp_path / "bytes", "no text")):
        with pytest.raises(UsageError, match=reason):
            given("--access-key", "operator", "--secret-key-file", str(file))
    with pytest.raises(UsageError, match="one of them"):
        given("--access-key", "operator", "--secret-key-file", "-", "--secret-key", "words")
