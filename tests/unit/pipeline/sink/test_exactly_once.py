"""The epochs of named writes: one that would be dropped is refused, one that is done is not done
again."""

from __future__ import annotations

import logging

import msgspec
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.epoch_bodies import DecideEpoch, EpochDecision, EpochId
from escrowmq.errors import UsageError
from escrowmq.pipeline.sink.exactly_once import (
    AttemptTokens,
    decide_batch,
    open_epoch,
    write_halves,
)
from escrowmq.pipeline.sink.options import SinkOptions, parse_sink_options
from escrowmq.txn.decisions import LastDecision
from escrowmq.txn.epoch import Epochs, parse_epoch

from .test_deciding_broker import options_of
from .test_halves import Broker


class Deciding(Broker):
    """A broker that knows the last decision of each query."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = Epochs()

    def store(self, request: Command) -> bytes:
        """The answer to a question about an epoch."""
        kind = DecideEpoch if request.code == Request.ESCROW_DECIDE else EpochId
        wish = msgspec.json.decode(request.body, type=kind)
        query, batch = parse_epoch(wish.group, wish.epoch)
        known = self.epochs.decision(query, batch)
        if known is not None:
            found = EpochDecision(decided="before", tokens=known.tokens, count=1)
        elif isinstance(wish, DecideEpoch):
            self.epochs.decisions.record(query, LastDecision(batch, wish.tokens))
            found = EpochDecision(decided="now", tokens=wish.tokens, count=1)
        else:
            found = EpochDecision(decided="no", tokens={}, count=0)
        return encode_reply(request, 0, body=msgspec.json.encode(found))


@pytest.fixture
def broker() -> Deciding:
    return Deciding()


def named(broker: Deciding, version: int, *, topic: str = "t") -> SinkOptions:
    return options_of(broker, txnAppId="nightly", txnVersion=str(version), topic=topic)


def routed_rows(broker: Deciding, name: str, version: int) -> SinkOptions:
    """The options of a write whose rows have a column `topic`."""
    options = {"nameServer": broker.server.address, "producerGroup": "g", "transactional": "true"}
    options |= {"txnAppId": name, "txnVersion": str(version)}
    return parse_sink_options(options, is_stream=False, columns=["body", "topic"])


def epoch_of(options: SinkOptions) -> str:
    return open_epoch(options, broker_name="broker-a")


def write(options: SinkOptions, epoch: str) -> None:
    decide_batch([AttemptTokens(epoch, {"a": 1})], options, broker_name="broker-a")


def test_a_smaller_number_than_the_last_one_is_refused(broker: Deciding) -> None:
    late = named(broker, 20)
    epoch = epoch_of(late)
    write(named(broker, 21), epoch_of(named(broker, 21)))
    refusal = r"'nightly', txnVersion=20: .* larger number is done, .* Numbers must grow"
    with pytest.raises(UsageError, match=refusal):
        epoch_of(late)
    # One that began before the other was decided learns it while it writes, or at the end.
    with pytest.raises(UsageError, match=refusal):
        write_halves([], late, broker_name="broker-a", epoch=epoch)
    with pytest.raises(UsageError, match=refusal):
        write(late, epoch)
    no = msgspec.json.encode(EpochDecision(decided="no", tokens={}, count=0))
    broker.script = [
        lambda request: encode_reply(request, 0, body=no),
        broker.refuse(Response.TRANSACTION_STATE_UNKNOW),
    ]
    rows = pa.RecordBatch.from_pydict({"body": ["x"]})
    with pytest.raises(UsageError, match=refusal):
        write_halves([rows], late, broker_name="broker-a", epoch=epoch)


def test_the_same_number_is_a_retry(broker: Deciding, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    options = named(broker, 21)
    write(options, epoch_of(options))
    assert not caplog.messages
    epoch = epoch_of(options)
    assert "txnVersion=21: this write was done before" in caplog.text
    assert write_halves([], options, broker_name="broker-a", epoch=epoch).counts == {}


def test_each_topic_counts_by_itself(broker: Deciding) -> None:
    write(named(broker, 21), epoch_of(named(broker, 21)))
    other = named(broker, 20, topic="other")
    assert epoch_of(other) == " nightly/other/20"
    assert epoch_of(options_of(broker)) != epoch_of(options_of(broker)), "no name, no number"


def test_writes_whose_rows_have_topics_count_by_themselves(broker: Deciding) -> None:
    routed = routed_rows(broker, "nightly", 21)
    write(routed, epoch_of(routed))
    assert epoch_of(named(broker, 21)) == " nightly/t/21"
    assert epoch_of(named(broker, 20)) == " nightly/t/20"
    assert epoch_of(routed) == " nightly//21"


def test_a_slash_in_a_name_is_no_topic(broker: Deciding) -> None:
    write(named(broker, 21), epoch_of(named(broker, 21)))
    for name in ("nightly/t", "nightly%2Ft", "nightly/t/"):
        routed = routed_rows(broker, name, 20)
        write(routed, epoch_of(routed))
    assert epoch_of(routed_rows(broker, "nightly/", 20)) == " nightly%2F//20"


def test_keys_of_plain_sends_tell_writes_apart(broker: Deciding) -> None:
    epochs = {open_epoch(each, broker_name="") for each in (
        named(broker, 7), named(broker, 7, topic="other"), routed_rows(broker, "nightly", 7)
    )}  # fmt: skip
    assert len(epochs) == 3


def test_a_write_of_a_release_in_which_topics_counted_together_is_known(broker: Deciding) -> None:
    write(named(broker, 21), "nightly/21")
    assert epoch_of(named(broker, 21)) == "nightly/21", "so that its retry writes nothing"
    assert epoch_of(named(broker, 22)) == " nightly/t/22"
    with pytest.raises(UsageError, match="larger number is done"):
        epoch_of(named(broker, 20))
