"""A live broker whose topic was deleted and made anew, or whose clock is wrong."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escrowmq
from escrowmq.cli.main import main
from escrowmq.errors import DataLost, OutcomeUnknown
from escrowmq.testing import Broker
from tests.compensation.services import start_forgetful
from tests.interop.process import until
from tests.interop.servers import Server
from tests.unit.pipeline.brokers.test_cluster import Moving
from tests.unit.pipeline.scripted import QUEUE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from escrowmq.pipeline.brokers.keyed_sends import KeyedSender
from escrowmq.pipeline.brokers.options import UserOptions, parse_access
from escrowmq.pipeline.reconcile.differences import DifferenceClass, Repair
from escrowmq.pipeline.reconcile.live_messages import BrokerMessages
from escrowmq.pipeline.reconcile.progress import RunProgress, make_window, to_offsets
from escrowmq.pipeline.reconcile.repair import Redo, RepairResult

TOPIC = "purged"
HOURS_MS = 3 * 3_600_000


@pytest.fixture
def reconcile(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Runs the command on a name server; its report."""

    def run(nameserver: str, *words: str) -> dict[str, Any]:
        common = ["-n", nameserver, "--out", str(tmp_path / "out"), "--json", *words]
        assert main(["pipeline", "reconcile", *common]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def commit(nameserver: str, *bodies: str) -> list[str]:
    """Transactions that are committed; the ids of their messages."""
    with escrowmq.Producer(nameserver, group="orders") as producer:
        found = []
        for body in bodies:
            with producer.transaction(TOPIC, body.encode()) as tx:
                pass
            found.append(tx.results[0].message_id)
        return found


def bodies_of(admin: escrowmq.Admin) -> list[str]:
    """What is in the topic."""
    return sorted(
        message.body.decode()
        for status in admin.topics.describe(TOPIC).queues
        if status.max_offset
        for message in admin.messages.at(status.queue, 0, count_max=32)
    )


@pytest.mark.parametrize(
    "new", [["new 0", "new 1", "new 2"], pytest.param([], marks=pytest.mark.long)]
)
def test_what_was_purged_is_named_so_and_never_brought_back(
    own_server: Callable[..., Server],
    reconcile: Callable[..., dict[str, Any]],
    new: list[str],
) -> None:
    server = own_server()
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create(TOPIC, queues=2)
        old = commit(server.nameserver, *(f"old {number}" for number in range(6)))
        admin.topics.delete(TOPIC)
        admin.topics.create(TOPIC, queues=2)
        commit(server.nameserver, *new)
        quick = ["--grace", "0", "--redo", "--rate", "0"]
        report = reconcile(server.nameserver, *quick)
        assert report["classes"] == {"purged": len(old)}
        assert report["deeds"] == {"proposed": len(old)}
        assert bodies_of(admin) == new
        # A difference of an older run, from before the topic was deleted.
        access = parse_access(
            UserOptions({"nameServer": server.nameserver}), needs_name_server=True
        )
        with KeyedSender(access, group="redo") as sender:
            redo = Redo(admin, sender, is_dry=False)
            row = {
                "class": DifferenceClass.NO_FINAL, "messageId": old[0], "topic": TOPIC,
                "broker": "broker-a", "repair": Repair.STORE_FINAL,
            }  # fmt: skip
            assert redo.run([row]) == {RepairResult.PROPOSED.value: 1}
        assert "it was deleted since" in redo.findings[0].detail
        assert bodies_of(admin) == new


@pytest.mark.parametrize(("times", "begin_times"), [(0, 1), (1, 0), (9, 0)])
def test_a_topic_from_which_retention_removes_messages_now_is_not_taken_for_a_new_one(
    times: int, begin_times: int
) -> None:
    nobody: Any = None
    source = BrokerMessages(nobody, {"nameServer": "h:1"}, admin=nobody)
    assert len(source._begin_times_of(Moving(times), [QUEUE])) == begin_times


def test_a_lost_delayed_message_is_delivered_when_it_is_due(
    own_server: Callable[..., Server],
) -> None:
    server = own_server()
    due = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    with (
        escrowmq.Admin(server.nameserver) as admin,
        escrowmq.Producer(server.nameserver, group="orders") as producer,
    ):
        admin.topics.create(TOPIC, queues=1)
        producer.send(TOPIC, b"older")
        with producer.transaction(escrowmq.Message(TOPIC, b"x", deliver_at=due)) as tx:
            pass
        row = {
            "class": DifferenceClass.NO_FINAL, "messageId": tx.results[0].message_id,
            "topic": TOPIC, "broker": "broker-a", "repair": Repair.STORE_FINAL,
        }  # fmt: skip
        access = parse_access(
            UserOptions({"nameServer": server.nameserver}), needs_name_server=True
        )
        with KeyedSender(access, group="redo") as sender:
            assert Redo(admin, sender, is_dry=False).run([row]) == {RepairResult.DONE.value: 1}
        assert bodies_of(admin) == ["older"]


def test_a_topic_may_lose_read_queues_of_which_everything_was_read() -> None:
    nobody: Any = None
    far_ms = 10**15
    with Broker(sockets=True) as broker, escrowmq.Admin(broker.nameserver) as admin:
        options = {"nameServer": broker.nameserver}
        admin.topics.create(TOPIC, queues=8)
        queues = [escrowmq.MessageQueue(TOPIC, "broker-a", number) for number in range(8)]
        with escrowmq.Producer(broker.nameserver, group="orders") as producer:
            producer.send(TOPIC, b"x", queue=queues[7])
        admin.topics.update(TOPIC, read_queues=4, write_queues=4)

        def queues_found(read_to: int, again_ms: int, **more: str) -> int:
            positions = dict.fromkeys(queues, 0) | {queues[7]: read_to}
            before = RunProgress(run=1, until_ms=again_ms + 1, ends=to_offsets(positions))
            window = make_window(before, now_ms=2 * far_ms, grace_ms=1, lookback_ms=1)
            source = BrokerMessages(nobody, options | more, admin=nobody)
            cluster = source._cluster()
            try:
                return len(source._queues(cluster, TOPIC, window))
            finally:
                cluster.close()

        assert queues_found(read_to=1, again_ms=far_ms) == 4
        for read_to, again_ms in ((0, far_ms), (1, 0)):
            with pytest.raises(DataLost, match="queues now, and 0 to 0 remain"):
                queues_found(read_to, again_ms)
            assert queues_found(read_to, again_ms, failOnDataLoss="false") == 4


@pytest.mark.parametrize(
    ("broker", "advice"), [("broker-a", "--skip-topic"), ("broker-b", "start the broker")]
)
def test_a_broker_without_a_queue_of_a_topic_is_told_from_one_that_is_down(
    broker: str, advice: str
) -> None:
    nobody: Any = None
    queue = escrowmq.MessageQueue(TOPIC, broker, 0)
    before = RunProgress(run=1, ends=to_offsets({queue: 5}))
    window = make_window(before, now_ms=1, grace_ms=0, lookback_ms=0)
    source = BrokerMessages(nobody, {"nameServer": "h:1"}, admin=nobody)
    with pytest.raises(
        DataLost, match=rf"{broker}', which the last run has read up to 5, .*{advice}"
    ):
        source._require_brokers(Running(times=0), [queue], {"broker-c"}, window)


class Running(Moving):
    def refresh_brokers(self) -> set[str]:
        return {"broker-a", "broker-c"}


def test_a_first_run_before_any_half_is_old_enough_finds_nothing(
    own_server: Callable[..., Server], reconcile: Callable[..., dict[str, Any]]
) -> None:
    server = own_server()
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create(TOPIC, queues=1)
    commit(server.nameserver, "young")
    assert reconcile(server.nameserver)["balance"]["halves"] == 0


@pytest.mark.parametrize(
    ("ahead_ms", "overdue_s", "found"),
    [
        (HOURS_MS, "0", "overdue"),
        pytest.param(0, "600", "pending", marks=pytest.mark.long),
        pytest.param(-HOURS_MS, "600", "pending", marks=pytest.mark.long),
    ],
)
def test_a_broker_whose_clock_is_wrong_is_judged_by_this_machines(
    reconcile: Callable[..., dict[str, Any]],
    tmp_path: Path,
    ahead_ms: int,
    overdue_s: str,
    found: str,
) -> None:
    process, nameserver = start_forgetful(tmp_path, share=1, ahead_ms=ahead_ms)
    try:
        with escrowmq.Admin(nameserver) as admin:
            admin.topics.create(TOPIC, queues=1)
            with escrowmq.Producer(nameserver, group="orders") as producer:
                with pytest.raises(OutcomeUnknown), producer.transaction(TOPIC, b"x"):
                    pass
                times = ["--grace", "0", "--lookback", "3600", "--overdue", overdue_s]
                until(
                    "it is judged", lambda: reconcile(nameserver, *times)["classes"] == {found: 1}
                )
    finally:
        process.kill()
