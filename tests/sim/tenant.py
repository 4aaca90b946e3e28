"""Somebody whose topic is deleted and made again under the same name, over and over, while the
broker and its machine go down: what was sent in one life is there in that life, and in no other."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record
from tests.sim.client import SimClient
from tests.sim.network import Address, SimNetwork
from tests.sim.stage import Stage, Violation

GROUP = "tenants"
_BURSTS = (1, 1, 2, 5, 30)
_READ_COUNT = 64


class Life:
    """One topic from its creation to its deletion."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.kept: dict[int, bytes] = {}
        """Bodies that were acknowledged, by log offset."""


class SimTenant(SimClient):
    """It does one thing at a time, so that it knows in which life a message was stored."""

    def __init__(self, stage: Stage, network: SimNetwork, broker: Address) -> None:
        super().__init__(stage, network, broker, name="tenant@sim", host=("10.0.4.1", 50_002))
        self.is_kept: Callable[[], bool] = lambda: True
        """Whether the broker has on disk which topics were deleted."""
        self._is_busy = False
        self._is_made = False
        self._is_deleting = False
        self._serial = 0
        self._topics_count = 0
        self._is_late: set[bytes] = set()
        """Messages of which nobody knows whether, and when, they were stored."""
        self._present = Life("", 0)
        self._move()

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [], "consumerDataSet": []}

    def act(self) -> None:
        """Do the next thing."""
        if not self.is_connected or self._is_busy:
            return
        self._is_busy = True
        chance = self.stage.chance
        if not self._is_made:
            self._create()
        elif chance.random() < 0.25:
            self._delete()
        elif chance.random() < 0.2:
            self._commit()
        else:
            self._post(chance.choice(_BURSTS))

    # -- what it does ----------------------------------------------------------------------------

    def _move(self) -> None:
        """Names that end alike, one behind the other."""
        self._topics_count += 1
        self._present = Life(
            "x" * (self._topics_count % 3) + f"tenant-{self._topics_count // 3}", 1
        )
        self._is_made = False

    def _create(self) -> None:
        ext = {
            "topic": self._present.topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        self.call(Request.UPDATE_AND_CREATE_TOPIC, ext, self._created)

    def _created(self, reply: Command | None) -> None:
        self._is_busy = False
        self._is_made = reply is not None and reply.code == Response.SUCCESS

    def _delete(self) -> None:
        life = self._present

        def heard(reply: Command | None) -> None:
            self._is_busy = self._is_deleting = False
            if reply is None or (reply.remark or "").endswith("saving it is retried"):
                self._move()  # it may be gone, now or after a crash
            elif reply.code == Response.SUCCESS and not self.is_kept():
                self.stage.done["topics deleted without a note of it"] += 1
                self._move()  # a crash may bring it back
            elif reply.code == Response.SUCCESS:
                self.stage.done["topics deleted"] += 1
                self._is_made = False
                self._present = Life(life.topic, life.number + 1)

        self._is_deleting = True
        self.stage.note("tenant: %s, life %d, is deleted", life.topic, life.number)
        self.call(Request.DELETE_TOPIC_IN_BROKER, {"topic": life.topic}, heard)

    def _commit(self) -> None:
        offset = len(self._present.kept)

        def heard(_: Command | None) -> None:
            self._is_busy = False

        ext = {"consumerGroup": GROUP, "topic": self._present.topic, "queueId": "0"}
        self.call(Request.UPDATE_CONSUMER_OFFSET, {**ext, "commitOffset": str(offset)}, heard)

    def _post(self, count: int) -> None:
        """Several, one after another."""
        life = self._present
        self._serial += 1
        body = b"%s life %d: %d" % (life.topic.encode(), life.number, self._serial)

        def heard(reply: Command | None) -> None:
            if reply is None:
                self._is_late.add(body)
            elif reply.code == Response.SUCCESS:
                log_offset = parse_offset_id((reply.ext or {})["msgId"])[1]
                life.kept[log_offset] = body
                self.stage.done["messages of tenants"] += 1
                if count > 1:
                    self._post(count - 1)
                    return
            else:
                self._is_late.add(body)  # FLUSH_DISK_TIMEOUT: it may be there all the same
            self._is_busy = False

        properties = {Property.UNIQ_KEY: f"L{self._serial:012d}", Property.WAIT: "true"}
        ext = {
            "producerGroup": GROUP,
            "topic": life.topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(self.stage.clock.now_ms()),
            "flag": "0",
            "properties": encode_properties(properties).decode(),
            "reconsumeTimes": "0",
            "unitMode": "false",
        }
        self.call(Request.SEND_MESSAGE, ext, heard, body=body)

    # -- what must be so -------------------------------------------------------------------------

    def check(self, core: BrokerCore, *, survives: int, loses: bool) -> None:
        """Look at what a broker has of the present life: all that was acknowledged below a log
        offset, in its order, and nothing of an earlier life. `loses` says that the rest is lost
        for good."""
        store, life = core.broker.store, self._present
        if self._is_deleting or store.dispatcher.stalled is not None:
            return
        found: dict[int, bytes] = {}
        at, end = store.bounds(life.topic, 0)
        while at < end:
            entries = store.read_units(life.topic, 0, at, _READ_COUNT)
            for log_offset, size, _ in entries:
                if log_offset < store.min_log_offset:
                    continue  # its queue could not be trimmed for want of a descriptor
                found[log_offset] = decode_record(store.read_record(log_offset, size)).body
            at += len(entries)
        mine = b"%s life %d: " % (life.topic.encode(), life.number)
        for log_offset, body in found.items():
            if not body.startswith(mine) and body not in self._is_late:
                raise Violation(f"{body!r} at {log_offset} is readable in life {life.number}")
        gone = [offset for offset, body in life.kept.items() if found.get(offset) != body]
        for offset in gone:
            if store.min_log_offset <= offset < survives:
                raise Violation(f"{life.kept[offset]!r} at {offset} was acknowledged and is gone")
        if loses:
            for offset in gone:
                self._is_late.add(life.kept.pop(offset))
        offset = core.broker.offsets.get(GROUP, life.topic, 0)
        if offset > end and survives:
            raise Violation(f"{GROUP} has read {life.topic} up to {offset}, it ends at {end}")
