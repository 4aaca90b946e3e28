from __future__ import annotations

import json

import pytest

from escrowmq import errors
from escrowmq.cli.error_codes import code_and_hint, print_error
from escrowmq.console.problems import to_problem
from escrowmq.errors import EscrowMQError, ResponseError


def every_kind() -> list[EscrowMQError]:
    found: list[EscrowMQError] = [
        errors.UsageError("u"), errors.ConnectFailed("c"), errors.RequestTimeout("r"),
        errors.NotSupported("n"), EscrowMQError("e"),
    ]  # fmt: skip
    found += [
        kind("no", code=code, address="a:1") for code, kind in sorted(ResponseError.by_code.items())
    ]
    return found


def test_words_are_those_of_the_api() -> None:
    for error in every_kind():
        assert code_and_hint(error)[0] == to_problem(error).refused.code, error


def test_an_error_is_one_line_for_people_and_an_object_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = errors.GroupNotFound("there is\nno group \x1b[1m", code=26, address="a:1")
    print_error(error, where="escrowmq group show", is_json=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("escrowmq group show: there is no group ")
    assert "(no_group: `escrowmq group list`" in line
    assert "\x1b" not in line
    print_error(error, where="", is_json=True)
    told = json.loads(capsys.readouterr().err)
    assert told.keys() == {"code", "message", "hint"}
    assert told["code"] == "no_group"


def test_what_says_by_itself_what_to_do_has_no_second_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(errors.ConnectFailed("no connection; does it run there?"), where="w", is_json=False)
    assert capsys.readouterr().err == "w: no connection; does it run there? (unreachable)\n"
