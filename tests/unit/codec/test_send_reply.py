from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.send_reply import SentReplies


@given(
    st.booleans(),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 99),
    st.integers(0, 1 << 62),
    st.text(max_size=300) | st.from_regex(r"[A-Z0-9]{1,300}", fullmatch=True),
    st.sampled_from([{}, {"MSG_REGION": "R", "TRACE_ON": "true"}, {"MSG_REGION": 'odd "%s" é'}]),
)
def test_template_of_a_reply_gives_what_the_general_coder_gives(
    is_binary: bool, opaque: int, queue_id: int, offset: int, key: str, always: dict[str, str]
) -> None:
    request = Command(opaque=opaque, is_binary=is_binary)
    found = SentReplies(always).encode(
        request, "0A" * 16, queue_id=queue_id, queue_offset=offset, unique_key=key
    )
    ext = {
        **always,
        "msgId": "0A" * 16,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "transactionId": key,
    }
    assert found == encode_reply(request, 0, ext=ext)
    assert msgspec.structs.asdict(request)["opaque"] == opaque
