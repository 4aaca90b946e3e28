"""Options of `escrowmq pipeline` as the source takes them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from escrowmq.cli.main import build_parser
from escrowmq.cli.spark_options import (
    new_admin,
    new_lease,
    parse_stores,
    range_options,
    source_options,
)
from escrowmq.client.lease_base import Lease
from escrowmq.errors import UsageError


def options_of(*words: str) -> dict[str, str]:
    return source_options(build_parser().parse_args(["pipeline", "export", *EXPORT, *words]))


EXPORT = ("--out", "x", "paid")


def test_the_environment_names_the_servers_when_the_command_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "mq:9876")
    assert options_of() == {"nameServer": "mq:9876"}
    assert options_of("-n", "other:9876") == {"nameServer": "other:9876"}


def test_each_option_of_tls_reaches_the_source() -> None:
    found = options_of(
        "-n", "mq:9876", "--tls-trusted", "root", "--tls-cert", "own", "--tls-key", "key",
        "--tls-any-name",
    )  # fmt: skip
    assert found == {
        "nameServer": "mq:9876", "useTls": "true", "tlsCaFile": "root", "tlsCertFile": "own",
        "tlsKeyFile": "key", "tlsCheckName": "false",
    }  # fmt: skip
    assert options_of("-n", "mq:9876", "--tls-no-verify")["tlsVerify"] == "false"


def test_a_secret_travels_as_the_name_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESCROWMQ_SECRET_KEY", raising=False)
    words = ("-n", "mq:9876", "--access-key", "me")
    of_file = options_of(*words, "--secret-key-file", "secret")
    assert of_file == {"nameServer": "mq:9876", "accessKey": "me", "secretKeyFile": "secret"}
    monkeypatch.setenv("ESCROWMQ_SECRET_KEY", "")
    assert "hidden" not in options_of(*words, "--secret-key", "hidden").values()
    with pytest.raises(UsageError, match="on a cluster the secret comes from --secret-key-file"):
        options_of(*words, "--secret-key", "hidden", "--master", "spark://host:7077")


def test_a_file_without_the_secret_and_a_namespace_are_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    words = ["-n", "127.0.0.1:1", "--access-key", "me", "--secret-key-file", missing]
    arguments = build_parser().parse_args(["pipeline", "export", *EXPORT, *words])
    with pytest.raises(UsageError, match=f"--secret-key-file {missing} cannot be read"):
        new_admin(arguments)
    with pytest.raises(UsageError, match="--namespace is not used here"):
        options_of("-n", "mq:9876", "--namespace", "shop")


def test_stores_have_names_of_their_own() -> None:
    assert parse_stores(["/data/a"]) == {"": "/data/a"}
    assert parse_stores(["a=/data/a", "b=/data/b=2"]) == {"a": "/data/a", "b": "/data/b=2"}
    for words, which in (
        (["/data/a", "/data/b"], "no name"),
        (["a=/data/a", "/data/c", "a=/data/b"], "the name 'a'"),
        (["=/data/a", "/data/b"], "no name"),
    ):
        with pytest.raises(UsageError, match=f"/data/a and --store /data/b have {which}"):
            parse_stores(words)


@pytest.mark.parametrize("out", ["", " "])
def test_a_folder_without_a_name_is_refused(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable that was not set made it the root of the file system."""
    with pytest.raises(SystemExit):
        build_parser().parse_args(["pipeline", "export", "--out", out, "paid"])
    assert "--out: it is empty; name a folder" in capsys.readouterr().err


def lease_in(out: str) -> Lease:
    return new_lease(argparse.Namespace(lease="", out=out))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_lease_is_in_the_folder_of_the_results(tmp_path: Path, scheme: str) -> None:
    """That of `file:/x` was below the folder of the command: two runs held it at once."""
    with lease_in(f"{scheme}{tmp_path}"):
        assert (tmp_path / "lease").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hdfs://lake/x", "hdfs://lake/x/"),
        ("/lake/x", "/lake/x/"),
        ("/lake/x", "file:///lake/x"),
        ("/lake/x", "/lake//x"),
    ],
)
def test_two_spellings_of_a_folder_are_one_lease_on_a_redis_server(one: str, other: str) -> None:
    """Two runs held one each, and wrote the same tables at once."""
    pytest.importorskip("redis")
    leases = [
        new_lease(argparse.Namespace(lease="redis://127.0.0.1:1/0", out=out))
        for out in (one, other)
    ]
    assert {vars(lease)["_key"] for lease in leases} == {f"escrowmq:{one}:lease"}


def test_a_range_begins_where_any_option_of_the_source_lets_it() -> None:
    def begin(place: str) -> dict[str, str]:
        words = ["pipeline", "export", *EXPORT, "-n", "mq:9876", "--from", place]
        found = range_options(build_parser().parse_args(words), topics="paid")
        return {name: value for name, value in found.items() if name.startswith("starting")}

    assert begin("group:mailer") == {"startingOffsets": "group:mailer"}
    assert begin("Earliest") == {"startingOffsets": "Earliest"}
    assert begin('{"paid": {}}') == {"startingOffsets": '{"paid": {}}'}
    assert begin("5000")["startingTimestamp"] == "5000"
    with pytest.raises(UsageError, match="'yesterday' is not a time"):
        begin("yesterday")


@pytest.mark.parametrize("out", ["hdfs:/x", "s3a://bucket/x", "file:x", "dbfs:/x"])
def test_no_lease_is_kept_on_another_machine(out: str) -> None:
    with pytest.raises(UsageError, match=f"stored in {out}; give --lease"):
        lease_in(out)
