import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.ids import offset_id
from escrowmq.codec.sent_template import SentTemplate

HOST = bytes([10, 0, 0, 1]) + (10_911).to_bytes(4, "big")
KEYS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=300)
ALWAYS = [{"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}, {"MSG_REGION": '50% "größer"'}]


@pytest.mark.parametrize("always", ALWAYS)
@given(
    opaque=st.integers(0, (1 << 31) - 1),
    log_offset=st.integers(0, (1 << 62) - 1),
    queue_offsets=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=3),
    key=KEYS,
    queue_id=st.integers(0, 2_000),
)
def test_template_writes_what_the_general_coder_writes(
    always: dict[str, str],
    opaque: int,
    log_offset: int,
    queue_offsets: list[int],
    key: str,
    queue_id: int,
) -> None:
    template = SentTemplate(always, HOST, queue_id)
    for queue_offset in queue_offsets:
        ext = always | {
            "msgId": offset_id(HOST, log_offset),
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            "transactionId": key,
        }
        number = opaque.to_bytes(4, "big")
        for is_binary in (True, False):
            request = Command(code=310, opaque=opaque, is_binary=is_binary)
            written = (
                template.binary(number, log_offset, queue_offset, key.encode())
                if is_binary
                else template.json(opaque, log_offset, queue_offset, key.encode())
            )
            assert written == encode_reply(request, 0, ext=ext)
            told = [ext["msgId"], str(queue_offset), key]
            if is_binary:
                assert written == _pieced_together(template, number, told)
            elif key.isalnum():
                assert written == _pieced_together_in_json(template, opaque, told)


def _pieced_together(template: SentTemplate, opaque: bytes, told: list[str]) -> bytes:
    front, rest, *names = template.pieces()[:5]
    values = [len(text).to_bytes(4, "big") + text.encode() for text in told]
    fields = b"".join([name + value for name, value in zip(names, values, strict=True)])
    header = front + opaque + rest + len(fields).to_bytes(4, "big") + fields
    sizes = len(header) + 4, 1 << 24 | len(header)
    return b"".join(size.to_bytes(4, "big") for size in sizes) + header


def _pieced_together_in_json(template: SentTemplate, opaque: int, told: list[str]) -> bytes:
    *fronts, end = template.pieces()[5:]
    texts = [text.encode() for text in (*told, str(opaque))]
    header = b"".join([front + text for front, text in zip(fronts, texts, strict=True)]) + end
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@pytest.mark.parametrize("always", ALWAYS)
@given(
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    ids=st.lists(st.integers(0, (1 << 62) - 1).map(lambda at: offset_id(HOST, at)), min_size=1),
    queue_offset=st.integers(0, 1 << 40),
    key=KEYS | st.just(""),
)
def test_template_writes_of_batches_what_the_general_coder_writes(
    always: dict[str, str], opaque: int, ids: list[str], queue_offset: int, key: str
) -> None:
    told = {"msgId": ",".join(ids), "queueId": "7", "queueOffset": str(queue_offset)}
    ext = always | told | ({"transactionId": key} if key else {})
    template, number = SentTemplate(always, HOST, 7), opaque.to_bytes(4, "big", signed=True)
    for form in (opaque, number):
        request = Command(code=320, opaque=opaque, is_binary=form is number)
        written = template.of_batch(form, told["msgId"].encode(), queue_offset, key.encode())
        assert written == encode_reply(request, 0, ext=ext)
