from __future__ import annotations

import pytest

from escrowmq.base.command import Command
from escrowmq.codec.client_bodies import (
    CheckClientBody,
    HeartbeatBody,
    LockBody,
    decode_body,
    read_own_body,
)
from escrowmq.errors import RemoteProtocolError, UsageError


@pytest.mark.parametrize("kind", [HeartbeatBody, LockBody, CheckClientBody])
def test_a_body_is_not_read_before_its_size_is_known_to_be_allowed(
    kind: type[HeartbeatBody | LockBody | CheckClientBody],
) -> None:
    body = b'{"clientID":"c"}'
    decode_body(kind, body + b" " * (kind.size_max - len(body)))
    with pytest.raises(RemoteProtocolError, match=f"{kind.size_max} are allowed"):
        decode_body(kind, b"[" * (kind.size_max + 1))


def test_bodies_of_our_own_requests_are_bounded_too() -> None:
    with pytest.raises(UsageError, match="1048577 bytes; 1048576 are allowed"):
        read_own_body(Command(code=7709, body=b"[" * 1_048_577), HeartbeatBody)
