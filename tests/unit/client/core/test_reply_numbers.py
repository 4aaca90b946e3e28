from __future__ import annotations

import pytest

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.client.core.reply_numbers import parse_number_field
from escrowmq.errors import RemoteProtocolError


def reply(**ext: str) -> Command:
    return Command(code=0, ext=ext)


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("-1", -1), ("0", 0), (str(LONG_MAX), LONG_MAX), ("0" * 19 + "5", 5)],
)
def test_a_number_is_read(text: str, number: int) -> None:
    assert parse_number_field(reply(offset=text), "offset") == number
    assert parse_number_field(reply(offset=text), "offset", otherwise=99) == number


@pytest.mark.parametrize(
    "text", ["", "-", "-2", "1.0", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}",
             str(LONG_MAX + 1), "0" * 20 + "5", "--1"]
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="a number up to"):
        parse_number_field(reply(offset=text), "offset", otherwise=99)


def test_a_number_that_is_absent_is_another_if_there_is_one() -> None:
    for without in (Command(code=0), reply(other="5")):
        assert parse_number_field(without, "offset", otherwise=0) == 0
        with pytest.raises(RemoteProtocolError, match="offset in a reply is nothing"):
            parse_number_field(without, "offset")
