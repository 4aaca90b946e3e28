"""Replies made from a template are those that are encoded one by one."""

from __future__ import annotations

import pytest

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.ended_template import EndedTemplate

TOLD = {"escrowOutcome": "committed", "escrowDurability": "memory"}


@pytest.mark.parametrize("told", [TOLD, {}, {"odd": '100% "opaque":0, '}])
@pytest.mark.parametrize("opaque", [0, 1, -1, 7_654_321, 2**31 - 1, -(2**31)])
def test_a_reply_is_the_one_that_is_encoded(told: dict[str, str], opaque: int) -> None:
    template = EndedTemplate(told)
    binary = Command(code=37, opaque=opaque, is_binary=True)
    assert template.binary(opaque.to_bytes(4, "big", signed=True)) == encode_reply(
        binary, 0, ext=told
    )
    assert template.json(opaque) == encode_reply(Command(code=37, opaque=opaque), 0, ext=told)
