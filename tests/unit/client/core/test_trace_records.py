"""Trace records field by field, and how they are packed; tests/sdk/test_trace.py compares them with
those of the Java client."""

from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outcome, SendResult, SendStatus
from escrowmq.client.core.trace_records import (
    BODY_SIZE_MAX,
    KEYS_SIZE_MAX,
    ConsumeResult,
    TraceRecord,
    consumed_record,
    delivered_record,
    end_record,
    pack,
    sent_record,
)

PLACE = ("DefaultRegion", "127.0.0.1:10911")


def sent(
    message: Message, *, is_half: bool = False, status: SendStatus = SendStatus.OK
) -> TraceRecord:
    result = SendResult(
        status=status, message_id="ID", queue=MessageQueue("T", "b", 0), offset=0,
        offset_id="OFF", is_half=is_half,
    )  # fmt: skip
    return sent_record(message, result, group="g", place=PLACE, span=range(1000, 1007))


def fields(record: TraceRecord) -> list[str]:
    assert record.text.endswith("\x02")
    return record.text[:-1].split("\x01")


def test_a_sent_message() -> None:
    record = sent(Message("T", b"abc", tag="a", keys=["k1", "k2"]))
    assert "|".join(fields(record)) == (
        "Pub|1000|DefaultRegion|g|T|ID|a|k1 k2|127.0.0.1:10911|3|7|0|OFF|true"
    )
    assert record.keys == ("ID", "k1", "k2")


def test_what_is_not_known_is_null_and_what_is_stored_unsafely_is_no_success() -> None:
    plain = fields(sent(Message("T", b"abc"), status=SendStatus.FLUSH_DISK_TIMEOUT))
    assert (plain[6], plain[7], plain[13]) == ("null", "null", "false")


def test_kinds_of_messages() -> None:
    kinds = [
        fields(sent(message, is_half=is_half))[11]
        for message, is_half in [
            (Message("T", b"x"), False),
            (Message("T", b"x", delay=1), True),
            (Message("T", b"x", delay_level=3), False),
            (Message("T", b"x", order_key="o"), False),
        ]
    ]
    assert kinds == ["0", "1", "3", "4"]


def test_a_consumed_message() -> None:
    message = Message("T", b"abc", keys=["k"])
    taken = delivered_record(
        message, "ID", group="g", region="r", request_id="R", now_ms=5, deliveries_before=2
    )
    assert "|".join(fields(taken)) == "SubBefore|5|r|g|R|ID|2|k"
    done = consumed_record(
        message, "ID", group="g", request_id="R", span=range(5, 9), end=ConsumeResult.EXCEPTION
    )
    assert "|".join(fields(done)) == "SubAfter|R|ID|4|false|k|2|9|g"


def test_the_end_of_a_transaction() -> None:
    record = end_record(
        Message("T", b"abc", tag="a"), "ID", group="g", place=PLACE, now_ms=5,
        outcome=Outcome.ROLLBACK, is_from_check=True,
    )  # fmt: skip
    assert "|".join(fields(record)) == (
        "EndTransaction|5|DefaultRegion|g|T|ID|a|null|127.0.0.1:10911|2|ID|ROLLBACK_MESSAGE|true"
    )


def test_trace_messages_stay_within_their_bounds_and_lose_no_record() -> None:
    records = [TraceRecord("é" * 1000 + "\x02", (f"key-{n}" * 20,)) for n in range(200)]
    packed = list(pack(records))
    assert len(packed) > 1
    assert sum(each.body.count(b"\x02") for each in packed) == 200
    assert [key for each in packed for key in each.keys] == [
        key for record in records for key in record.keys
    ]
    for each in packed:
        assert len(each.body) <= BODY_SIZE_MAX
        assert sum(len(key) + 1 for key in each.keys) <= KEYS_SIZE_MAX
    assert list(pack([])) == []


def test_a_key_of_several_records_is_given_once() -> None:
    (packed,) = pack([TraceRecord("a\x02", ("ID", "k")), TraceRecord("b\x02", ("ID", "k"))])
    assert (packed.body, packed.keys) == (b"a\x02b\x02", ["ID", "k"])


def test_a_message_without_keys_has_none_in_any_record() -> None:
    bare, keyed = Message("T", b"abc"), Message("T", b"abc", keys=["k"])
    span, place = range(5, 9), PLACE

    def keys_of(message: Message) -> list[str]:
        taken = delivered_record(
            message, "ID", group="g", region="r", request_id="R", now_ms=5, deliveries_before=2
        )
        done = consumed_record(
            message, "ID", group="g", request_id="R", span=span, end=ConsumeResult.SUCCESS
        )
        ended = end_record(
            message, "ID", group="g", place=place, now_ms=5, outcome=Outcome.COMMIT,
            is_from_check=False,
        )  # fmt: skip
        assert fields(ended)[6] == "null", "nor a tag"
        return [fields(taken)[7], fields(done)[5], fields(ended)[7]]

    assert (keys_of(bare), keys_of(keyed)) == (["null"] * 3, ["k"] * 3)


def test_a_trace_message_is_filled_to_its_bounds() -> None:
    def count(*records: tuple[int, int]) -> int:
        """Of records with so many letters in their text and in their key."""
        return len(list(pack([TraceRecord("x" * size, ("k" * key,)) for size, key in records])))

    half = BODY_SIZE_MAX // 4 // 2
    assert (count((half, 1), (half, 1)), count((half, 1), (half + 1, 1))) == (1, 2)
    assert count((4 * half, 1)) == 1, "one that is too large by itself goes alone"
    long = [(1, 1_000)] * 3
    assert KEYS_SIZE_MAX == 4 * (3 * 1_000 + 999) + 4
    assert (count(*long, (1, 999)), count(*long, (1, 1_000))) == (1, 2)
