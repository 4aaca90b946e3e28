"""The broker that decides: found, kept, and asked until it answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

pytest.importorskip("pyarrow")

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import EPOCH_TOKENS_MAX
from escrowmq.codec.command import encode_reply
from escrowmq.codec.epoch_bodies import AbandonedCount, EpochDecision
from escrowmq.errors import SLAVE_REMARK, BrokerFault, StorageError, UsageError
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.sink import checkpoint
from escrowmq.pipeline.sink.checkpoint import load_stored, store_durably
from escrowmq.pipeline.sink.deciding_broker import BrokerDecider, StockBrokerError, choose_broker
from escrowmq.pipeline.sink.options import SinkOptions, parse_sink_options

from .test_halves import Broker


class Deciding(Broker):
    """A broker that decides, when `script` says nothing else."""

    def store(self, request: Command) -> bytes:
        """The answer to a question about an epoch."""
        if request.code == Request.ESCROW_ABANDON:
            return encode_reply(request, 0, body=msgspec.json.encode(AbandonedCount(count=3)))
        found = EpochDecision(decided="now", tokens={"a": 1}, count=1)
        return encode_reply(request, 0, body=msgspec.json.encode(found))


def decider_of(broker: Broker) -> BrokerDecider:
    access = ClusterAccess(name_servers=(broker.server.address,))
    return BrokerDecider(access, broker_name="broker-a", group="g")


def options_of(server: Broker, **more: str) -> SinkOptions:
    options = {"nameServer": server.server.address, "topic": "t", "transactional": "true"}
    return parse_sink_options(
        options | {"producerGroup": "g"} | more, is_stream=False, columns=["body"]
    )


def test_a_decision_is_asked_for_until_it_is_answered() -> None:
    broker = Deciding()
    unavailable = broker.refuse(Response.SERVICE_NOT_AVAILABLE)
    broker.script = [lambda _: None, unavailable, lambda _: None]
    decider = decider_of(broker)
    assert decider.decide("q/1", {"a": 1}).decided == "now"
    decider.close()
    asked = [each for each in broker.server.requests if each.code == Request.ESCROW_DECIDE]
    assert len(asked) == 4
    assert {each.body for each in asked} == {b'{"group":"g","epoch":"q/1","tokens":{"a":1}}'}


def test_after_a_planned_switch_the_new_master_decides() -> None:
    """The old one, now a copy, was asked for two minutes; then the batch failed."""
    broker, heir = Deciding(), Deciding()
    broker.hand_over_to(heir, SLAVE_REMARK)
    decider = decider_of(broker)
    assert decider.decide("q/1", {"a": 1}, patience_ms=5_000).decided == "now"
    decider.close()
    assert [each.code for each in heir.server.requests] == [Request.ESCROW_DECIDE]


def test_a_refusal_is_raised() -> None:
    broker = Deciding()
    broker.script = [broker.refuse(Response.SYSTEM_ERROR, "token a has 0 pending halves")]
    decider = decider_of(broker)
    with pytest.raises(BrokerFault, match="has 0 pending halves"):
        decider.decide("q/1", {"a": 1})
    assert decider.abandon("q/1", ["a"]) == 3
    decider.close()


def test_too_many_tokens_are_refused_before_anything_is_asked() -> None:
    broker = Deciding()
    tokens = {str(number): 1 for number in range(EPOCH_TOKENS_MAX + 1)}
    with pytest.raises(UsageError, match="use coalesce"):
        decider_of(broker).decide("q/1", tokens)
    assert not broker.server.requests


def test_a_stock_broker_is_told_from_one_that_decides(tmp_path: Path) -> None:
    stock = Deciding()
    stock.script = [stock.refuse(Response.REQUEST_CODE_NOT_SUPPORTED)]
    with pytest.raises(StockBrokerError, match="set onStockBroker=at-least-once"):
        choose_broker(options_of(stock))
    assert choose_broker(options_of(stock)) == "broker-a"


def test_the_choice_is_kept_in_the_checkpoint(tmp_path: Path) -> None:
    broker = Deciding()
    folder = str(tmp_path / "checkpoint")
    options = options_of(broker, checkpointLocation=folder)
    assert choose_broker(options) == "broker-a"
    kept = {"v": 1, "broker": "broker-a", "producerGroup": "g"}
    assert load_stored(folder, "escrowmq-sink.json") == kept
    store_durably(folder, "escrowmq-sink.json", {"v": 1, "broker": "another"})
    assert choose_broker(options) == "another"


def test_a_checkpoint_that_spark_keeps_elsewhere_is_not_taken_for_a_local_folder(
    tmp_path: Path,
) -> None:
    """Spark reads `/x` on its default file system, such as HDFS. The choice was stored on the
    driver's disk, and forgotten when the query went on elsewhere."""
    broker = Deciding()
    options = replace(options_of(broker, checkpointLocation=str(tmp_path)), is_stream=True)
    with pytest.raises(StorageError, match=f"{tmp_path}.* in full, .* name the broker"):
        choose_broker(options)
    assert not list(tmp_path.iterdir())
    named = replace(options, broker="broker-a")
    assert choose_broker(named) == "broker-a"
    assert not list(tmp_path.iterdir())
    (tmp_path / "metadata").touch()  # as Spark does
    assert choose_broker(options) == "broker-a"
    (tmp_path / "metadata").unlink()
    assert choose_broker(options) == "broker-a", "what was chosen before still holds"


@pytest.mark.parametrize("option", ["broker", "producerGroup"])
def test_a_query_does_not_change_who_decides(tmp_path: Path, option: str) -> None:
    broker = Deciding()
    folder = str(tmp_path / "checkpoint")
    choose_broker(options_of(broker, checkpointLocation=folder))
    changed = options_of(broker, checkpointLocation=folder, **{option: "other"})
    with pytest.raises(UsageError, match=f"{option}='other', but .* with {option}='(broker-a|g)'"):
        choose_broker(changed)


def test_a_named_broker_must_be_there_and_decide() -> None:
    broker = Deciding()
    assert choose_broker(options_of(broker, broker="broker-a")) == "broker-a"
    with pytest.raises(UsageError, match=r"broker='named' is not among .* on now: broker-a"):
        choose_broker(options_of(broker, broker="named"))
    broker.script = [broker.refuse(Response.REQUEST_CODE_NOT_SUPPORTED)]
    with pytest.raises(StockBrokerError):
        choose_broker(options_of(broker, broker="broker-a"))


@pytest.mark.parametrize("kept", [{}, {"v": 1, "broker": None}, {"broker": ["broker-a"]}])
def test_a_choice_without_a_broker_is_named_with_what_to_do(
    tmp_path: Path, kept: dict[str, object]
) -> None:
    """It was a KeyError, which says nothing of the checkpoint."""
    store_durably(str(tmp_path), "escrowmq-sink.json", kept)
    with pytest.raises(UsageError, match=r"escrowmq-sink\.json .* damaged: it names no broker"):
        choose_broker(options_of(Deciding(), checkpointLocation=str(tmp_path)))


@pytest.mark.parametrize("form", [str, lambda path: f"file:{path}", lambda path: f"file://{path}"])
def test_small_files_in_a_checkpoint(tmp_path: Path, form: Callable[[Path], str]) -> None:
    folder = form(tmp_path / "a" / "b")
    assert load_stored(folder, "x.json") is None
    store_durably(folder, "x.json", {"n": 1})
    store_durably(folder, "x.json", {"n": 2})
    assert load_stored(folder, "x.json") == {"n": 2}
    assert [each.name for each in (tmp_path / "a" / "b").iterdir()] == ["x.json"]


@pytest.mark.parametrize("data", [b"", b'{"v": 1, "bro', b"[]", b"\xff"])
def test_a_small_file_that_is_torn_is_named_with_what_to_do(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(UsageError, match=rf"{tmp_path}/x\.json .* delete it .* restore it"):
        load_stored(str(tmp_path), "x.json")


def test_a_crash_on_a_file_system_far_away_leaves_the_small_file_whole_or_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import fs

    class Crash(Exception):
        pass

    class Far:
        is_dying = True

        def __getattr__(self, name: str) -> Any:
            return getattr(near, name)

        def move(self, source: str, target: str) -> None:
            if self.is_dying:
                raise Crash
            near.move(source, target)

    near = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    far = Far()
    monkeypatch.setattr(checkpoint, "_locate", lambda folder, name: (far, f"{folder}/{name}"))
    with pytest.raises(Crash):
        store_durably("a", "x.json", {"n": 1})
    assert load_stored("a", "x.json") is None
    far.is_dying = False
    store_durably("a", "x.json", {"n": 2})
    assert load_stored("a", "x.json") == {"n": 2}
