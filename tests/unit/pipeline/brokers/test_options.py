"""Options as texts: read, or refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.options import ClusterAccess, UserOptions, parse_access


def test_names_have_no_case_and_values_no_blanks() -> None:
    given = UserOptions({"SomeName": " x ", "option.other": "y"})
    assert given.text("someName") == "x"
    assert given.text("Other") == "y"
    assert given.text("third", default="d") == "d"


def test_two_names_of_one_option() -> None:
    with pytest.raises(UsageError, match="subscribe and topic mean the same option"):
        UserOptions({"subscribe": "a", "TOPIC": "b"}).text("subscribe", "topic")


@pytest.mark.parametrize(
    ("text", "size"), [("17", 17), ("2k", 2048), ("1M", 1 << 20), ("1g", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert UserOptions({"size": text}).size("size", default=0) == size


@pytest.mark.parametrize(
    ("text", "span"), [("17", 17), ("2s", 2_000), ("15m", 900_000), ("5ms", 5), ("1h", 3_600_000)]
)
def test_times(text: str, span: int) -> None:
    assert UserOptions({"time": text}).span_ms("time", default=0) == span


@pytest.mark.parametrize("text", ["", "-1", "1.5m", "m", "1 parsec", "5"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"size='.*'; bytes, as .* from 6 on, is expected"):
        UserOptions({"size": text}).size("size", default=9, low=6)


@pytest.mark.parametrize("text", ["", "x", "-1", "11", "1.0"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(UsageError, match="a whole number from 0 to 10 is expected"):
        UserOptions({"n": text}).number("n", default=3, high=10)


def test_flags_choices_names_and_json() -> None:
    given = UserOptions(
        {"a": "TRUE", "b": "Two", "c": "x, y ,x,", "d": '{"k": 1}', "e": "{", "f": "yes"}
    )
    assert given.flag("a", default=False)
    assert given.choice("b", allowed=("one", "two"), default="one") == "two"
    assert given.names("c") == ("x", "y")
    assert given.value("d") == {"k": 1}
    with pytest.raises(UsageError, match="is not JSON"):
        given.value("e")
    with pytest.raises(UsageError, match="f='yes'; true or false is expected"):
        given.flag("f", default=False)
    with pytest.raises(UsageError, match="one of one, three is expected"):
        given.choice("b", allowed=("one", "three"), default="one")


def test_what_nobody_asks_for_is_refused_with_what_was_meant() -> None:
    given = UserOptions({"subscrbe": "x", "checkpointLocation": "y"})
    given.text("subscribe")
    with pytest.raises(UsageError, match=r"no option 'subscrbe' here; is subscribe meant\?"):
        given.refuse_others(passed_over=["checkpointlocation"])
    given = UserOptions({"zzz": "x"})
    given.text("subscribe")
    with pytest.raises(UsageError, match="leave it out"):
        given.refuse_others()


def access_of(**options: str) -> ClusterAccess:
    return parse_access(UserOptions({"nameServer": "h:1", **options}), needs_name_server=True)


def test_addresses() -> None:
    assert access_of().name_servers == ("h:1",)
    given = UserOptions({"namesrvAddr": "a:1;b:2"})
    assert parse_access(given, needs_name_server=True).name_servers == ("a:1", "b:2")
    with pytest.raises(UsageError, match="nameServer is missing"):
        parse_access(UserOptions({}), needs_name_server=True)
    assert parse_access(UserOptions({}), needs_name_server=False).name_servers == ()


def test_secrets_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    found = access_of(accessKey="k", secretKeyFile=str(file), securityToken="t")
    who = found.credentials()
    assert who is not None
    assert (who.access_key, who.secret_key, who.security_token) == ("k", "s3cret", "t")
    assert "s3cret" not in repr(found)
    file.unlink()
    with pytest.raises(UsageError, match="every executor need it"):
        found.credentials()
    found = access_of(accessKey="k", secretKeyEnv="SOME_SECRET")
    with pytest.raises(UsageError, match="environment variable SOME_SECRET is empty"):
        found.credentials()
    monkeypatch.setenv("SOME_SECRET", "x")
    assert found.credentials() is not None
    assert access_of().credentials() is None


@pytest.mark.parametrize(
    "options",
    [
        {"accessKey": "k"},
        {"secretKeyFile": "f"},
        {"accessKey": "k", "secretKeyFile": "f", "secretKeyEnv": "e"},
    ],
)
def test_accounts_that_are_not_whole(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="accessKey and one of secretKeyFile and secretKeyEnv"):
        access_of(**options)


def test_a_secret_in_an_option_is_refused() -> None:
    with pytest.raises(UsageError, match="would be visible to everyone"):
        access_of(accessKey="k", secretKey="s")


def test_tls() -> None:
    assert access_of().tls() is None
    checked = access_of(useTls="true").tls()
    assert checked is not None
    assert checked.verify_mode is ssl.CERT_REQUIRED
    any_name = access_of(useTls="true", tlsCheckName="false").tls()
    assert any_name is not None
    assert (any_name.check_hostname, any_name.verify_mode) == (False, ssl.CERT_REQUIRED)
    unchecked = access_of(useTls="true", tlsVerify="false").tls()
    assert unchecked is not None
    assert unchecked.verify_mode is ssl.CERT_NONE


def test_options_that_spark_has_lost_are_explained() -> None:
    with pytest.raises(UsageError, match="use CREATE TEMPORARY VIEW"):
        parse_access(UserOptions({"provider": "escrowmq"}), needs_name_server=True)
    with pytest.raises(UsageError, match=r"separated by"):
        parse_access(UserOptions({"subscribe": "t"}), needs_name_server=True)


def test_a_secret_that_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"\xff\xfe\x00")
    found = access_of(accessKey="k", secretKeyFile=str(file))
    with pytest.raises(UsageError, match="secret' cannot be read here: it is no text"):
        found.credentials()
