from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from escrowmq.cli import contexts
from escrowmq.cli.main import build_parser, main
from escrowmq.cli.printing import print_json, set_yaml
from escrowmq.errors import UsageError


@pytest.fixture(name="file", autouse=True)
def make_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "inner" / "contexts.json"
    monkeypatch.setenv("ESCROWMQ_CONTEXTS", str(file))
    for name in ("NAMESRV_ADDR", "ESCROWMQ_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return file


def filled(*words: str) -> argparse.Namespace:
    arguments = build_parser().parse_args(["tx", "list", *words])
    contexts.fill_from_context(arguments)
    return arguments


def test_a_context_says_where_and_as_whom(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-n", "a:9876", "--access-key", "admin", "--secret-key-file", "/s", "--tls"]
    assert main(["context", "set", "prod", *words]) == 0
    assert main(["context", "set", "test", "-n", "b:9876"]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    found = filled()
    assert (found.name_servers, found.access_key, found.secret_key_file) == (
        "a:9876",
        "admin",
        "/s",
    )
    assert found.tls
    found = filled("--context", "test")
    assert (found.name_servers, found.access_key, found.tls) == ("b:9876", None, False)
    assert main(["context", "use", "test"]) == 0
    assert filled().name_servers == "b:9876"
    monkeypatch.setenv("ESCROWMQ_CONTEXT", "prod")
    assert filled().name_servers == "a:9876"
    assert filled("--access-key", "bob").access_key == "bob"


def test_an_account_is_not_used_at_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["context", "set", "prod", "-n", "a:9876", "--access-key", "admin"]) == 0
    found = filled("-n", "b:9876")  # the current context is not what is meant
    assert (found.name_servers, found.access_key) == ("b:9876", None)
    with pytest.raises(UsageError, match="different clusters"):
        filled("-n", "b:9876", "--context", "prod")
    monkeypatch.setenv("NAMESRV_ADDR", "c:9876")
    assert filled().access_key is None
    assert filled("--context", "prod").name_servers == "a:9876"


def test_what_a_context_cannot_be(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "set", "x"]) == 2
    assert "-n HOST:PORT" in capsys.readouterr().err
    assert main(["context", "set", "x", "-n", "a:1", "--secret-key", "hush"]) == 2
    assert "hush" not in capsys.readouterr().err
    assert not file.exists()
    assert main(["context", "set", "prod", "-n", "a:1"]) == 0
    assert main(["context", "set", " ", "-n", "a:1"]) == 2
    assert "a name that is not empty" in capsys.readouterr().err
    assert main(["context", "set", "x", "-n", "a:1", "--secret-key-file", "-"]) == 2
    assert "must name a file" in capsys.readouterr().err
    for words in (["use", "none"], ["show", "none"], ["delete", "none"]):
        assert main(["context", *words]) != 0
        assert "no context 'none'" in capsys.readouterr().err
    assert main(["tx", "list", "--context", "none"]) == 2
    assert "known: prod" in capsys.readouterr().err
    assert main(["context", "delete", "prod"]) == 0
    assert contexts.load_contexts() == contexts.Contexts()
    file.write_text("{")
    assert main(["context", "list"]) == 2
    assert str(file) in capsys.readouterr().err


def test_files_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path was kept as it was given, and read in the folder of the command that used it."""
    monkeypatch.chdir(tmp_path)
    words = ["--secret-key-file", "s", "--tls-trusted", "t", "--tls-cert", "c", "--tls-key", "k"]
    assert main(["context", "set", "prod", "-n", "a:9876", *words]) == 0
    monkeypatch.chdir("/")
    found = filled()
    files = (found.secret_key_file, found.tls_trusted, found.tls_cert, found.tls_key)
    assert files == tuple(str(tmp_path / name) for name in "stck")


def test_a_job_on_spark_takes_its_cluster_and_its_output_from_the_same_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repair of the context `prod` was done at the cluster of NAMESRV_ADDR."""
    pytest.importorskip("pyspark")
    from escrowmq.cli import spark_jobs
    from escrowmq.cli.spark_options import source_options

    def show(arguments: argparse.Namespace) -> int:
        print_json(source_options(arguments) | {"json": arguments.json})
        return 0

    monkeypatch.setitem(spark_jobs.DEEDS, "funnel", show)
    monkeypatch.setenv("NAMESRV_ADDR", "staging:9876")
    words = ["--access-key", "admin", "--secret-key-file", "/s"]
    assert main(["context", "set", "prod", "-n", "prod:9876", *words]) == 0
    capsys.readouterr()
    job = ["pipeline", "funnel", "--out", "x"]
    assert main([*job, "--context", "prod", "-o", "yaml"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert {"nameServer: prod:9876", "accessKey: admin", "json: true"} <= {*said}
    set_yaml(is_wanted=False)
    assert main(job) == 0
    assert "staging:9876" in capsys.readouterr().out
    monkeypatch.delenv("NAMESRV_ADDR")
    assert main(job) == 0
    assert "prod:9876" in capsys.readouterr().out
    assert main([*job, "--context", "none"]) == 2
    assert "escrowmq pipeline funnel: no context 'none'; known: prod" in capsys.readouterr().err
