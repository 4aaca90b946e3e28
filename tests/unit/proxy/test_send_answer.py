from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import OK
from escrowmq.proxy.send_answer import encode_send_response

IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(IDS, IDS, st.integers(0, (1 << 63) - 1), IDS)
def test_what_is_written_by_hand_is_what_protobuf_writes(
    message_id: str, transaction_id: str, offset: int, recall_handle: str
) -> None:
    entry = v2.SendResultEntry(
        status=OK,
        message_id=message_id,
        transaction_id=transaction_id,
        offset=offset,
        recall_handle=recall_handle,
    )
    expected = v2.SendMessageResponse(status=OK, entries=[entry]).SerializeToString()
    found = encode_send_response(
        message_id, transaction_id, offset=offset, recall_handle=recall_handle
    )
    assert found == expected
