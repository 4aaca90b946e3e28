from __future__ import annotations

import msgspec
import pytest

from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.codec.record import decode_record
from escrowmq.errors import RemoteProtocolError, UsageError


def test_what_cannot_be_read_is_told_with_who_said_it_and_to_what() -> None:
    for read in (
        lambda: msgspec.convert("x", int),
        b"\xff".decode,
        lambda: decode_record(b""),
    ):
        with (
            pytest.raises(
                RemoteProtocolError, match=r"^1\.2\.3\.4:5 answers request 17 .*is that a"
            ),
            convert_parse_errors("1.2.3.4:5", 17),
        ):
            read()


def test_what_the_user_asked_for_wrongly_is_not_the_brokers_fault() -> None:
    with pytest.raises(UsageError, match="mine"), convert_parse_errors("1.2.3.4:5", 17):
        raise UsageError("mine")
