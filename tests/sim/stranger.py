"""A client whose values are odd in every field that a broker stores and reads again later: of plain
messages, batches, halves, heartbeats, pops, receipts, messages given back, offsets and topics.

It may be answered anything, and may lose whatever it sent. Nothing may fail at what it leaves
behind, then or at any later start: an input, round or record that does is a Violation of its own
(see SimHost and World), and everybody else's promises are kept by the Checker as ever."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property, Topic
from escrowmq.base.own_properties import DELAYED, EPOCH, MESSAGES, ORDER_KEY, TRANSACTION
from escrowmq.codec import fastjson
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.pop_receipt import PopReceipt, decode_offset_list, encode_receipt
from escrowmq.codec.properties import decode_properties, encode_properties
from escrowmq.codec.record import decode_records
from tests.sim.client import SimClient
from tests.sim.halves import SEND, send_fields
from tests.sim.ledger import ROLLBACK, Ledger, Sent, Truth
from tests.sim.network import Address, SimNetwork
from tests.sim.plan import Plan
from tests.sim.stage import Stage

TOPIC: Final = "strange"
GROUP: Final = "strangers"
_RETRIES: Final = f"{Topic.RETRY_PREFIX}{GROUP}"

_INTS: Final = ("0", "1", "-1", "7", "65535", "2147483647", "-2147483648", "99999999999", "x", "")
_LONGS: Final = ("0", "1", "-1", str((1 << 63) - 1), str(-(1 << 63)), "1" * 30, "1e3", "soon")
_SPANS: Final = ("0", "1", "5", "1000", "1001", "60000", "-5", "999999999", "9" * 18, "never")
_TEXTS: Final = ("", " ", "a b", "\u00e9", "k" * 300, "%RETRY%x", "../..", "a+b@c", "\u0007", "{}")
_FLAGS: Final = ("0", "1", "2", "4", "8", "12", "16", "48", "768", "2147483647", "-1")

_ODD: Final[dict[str, tuple[str, ...]]] = {
    Property.DELAY: ("1", "3", "18", "19", "99", "-1", "0", "2147483648", "soon"),
    Property.TIMER_DELAY_SEC: _SPANS,
    Property.TIMER_DELAY_MS: _SPANS,
    Property.TIMER_DELIVER_MS: _LONGS,
    Property.TIMER_OUT_MS: _LONGS,
    Property.TIMER_DEL_UNIQKEY: ("strange+k", "k", ""),
    Property.TIMER_ROLL_TIMES: _INTS,
    Property.TAGS: _TEXTS,
    Property.KEYS: (*_TEXTS, "k " * 200),
    Property.UNIQ_KEY: _TEXTS,
    Property.REAL_TOPIC: (TOPIC, _RETRIES, "../..", ""),
    Property.REAL_QID: _INTS,
    Property.RETRY_TOPIC: (TOPIC, "nowhere", "../.."),
    Property.ORIGIN_MESSAGE_ID: _TEXTS,
    Property.MAX_RECONSUME_TIMES: _INTS,
    Property.RECONSUME_TIME: _INTS,
    Property.POP_CK: ("1 2 3", "0 0 0 0 0 b 0 0", "x y z"),
    Property.FIRST_POP_TIME: _LONGS,
    Property.SHARDING_KEY: _TEXTS,
    Property.INNER_NUM: _INTS,
    Property.INNER_BASE: _LONGS,
    Property.INNER_MULTI_DISPATCH: ("strange,nowhere", "%LMQ%a"),
    Property.TTL: _LONGS,
    Property.CRC32: ("0", "junk"),
    DELAYED: _TEXTS,
    ORDER_KEY: _TEXTS,
}
_ODD_OF_HALVES: Final[dict[str, tuple[str, ...]]] = {
    Property.TRAN_PREPARED_QUEUE_OFFSET: _LONGS,
    Property.REAL_TOPIC: ("../..", TOPIC),
    Property.REAL_QID: _INTS,
    Property.TIMER_OUT_MS: _LONGS,
    Property.INNER_NUM: _INTS,
    Property.RECONSUME_TIME: _INTS,
    TRANSACTION: ("", "n" * 64),
    MESSAGES: _INTS,
    EPOCH: ("q/x", "/"),
}
_PROPERTY_SHARE: Final = 0.2
_FIELD_SHARE: Final = 0.3
_RECEIPTS_MAX: Final = 20


class SimStranger(SimClient):
    """Its halves are of a producer group whose members roll them back when they are asked."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        broker: Address,
        *,
        plan: Plan,
        ledger: Ledger,
        group: str,
    ) -> None:
        super().__init__(stage, network, broker, name="stranger@sim", host=("10.0.9.8", 7_777))
        self._plan = plan
        self._ledger = ledger
        self._group = group
        self._made_count = 0
        self._receipts: list[tuple[str, PopReceipt]] = []
        self._places: list[int] = []
        self._tricks = (
            self._send_one, self._send_one, self._send_batch, self._half, self._give_back,
            self._pop, self._pop, self._acknowledge, self._change, self._commit, self._make,
            self._beat_oddly,
        )  # fmt: skip

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [], "consumerDataSet": []}

    def act(self) -> None:
        """Play one trick."""
        if self.is_connected:
            self.stage.chance.choice(self._tricks)()

    def _try(self, what: str, code: int, ext: dict[str, str], body: bytes = b"x") -> None:
        self.stage.done[f"strange values: {what}"] += 1
        self.call(code, ext, lambda _: None, body=body)

    def _some(self, odd: dict[str, tuple[str, ...]], share: float) -> dict[str, str]:
        chance = self.stage.chance
        return {
            name: chance.choice(texts) for name, texts in odd.items() if chance.random() < share
        }

    # -- messages --------------------------------------------------------------------------------

    def _fields(self, properties: dict[str, str]) -> dict[str, str]:
        fields = {
            "a": GROUP, "b": self.stage.chance.choice((TOPIC, TOPIC, _RETRIES)), "c": Topic.DEFAULT,
            "d": "2", "e": "0", "f": "0", "g": str(self.stage.clock.now_ms()), "h": "0",
            "i": encode_properties(properties).decode(), "j": "0",
        }  # fmt: skip
        odd = {"d": _INTS, "e": _INTS, "f": _FLAGS, "g": _LONGS, "h": _INTS, "j": _INTS, "l": _INTS}
        return {**fields, **self._some(odd, _FIELD_SHARE)}

    def _send_one(self) -> None:
        fields = self._fields(self._some(_ODD, _PROPERTY_SHARE))
        self.stage.done["strange values: a message"] += 1
        self.call(SEND, fields, self._sent, body=self.stage.chance.choice((b"", b"x", b"y" * 700)))

    def _sent(self, reply: Command | None) -> None:
        if reply is not None and reply.code == Response.SUCCESS:
            self._places.append(parse_offset_id((reply.ext or {})["msgId"])[1])

    def _send_batch(self) -> None:
        chance = self.stage.chance
        entries = [
            (int(chance.choice(_FLAGS)), b"b", encode_properties(self._some(_ODD, _PROPERTY_SHARE)))
            for _ in range(chance.randint(1, 3))
        ]
        fields = {**self._fields({}), "m": "true"}
        self._try("a batch", Request.SEND_BATCH_MESSAGE, fields, encode_batch(entries))

    def _half(self) -> None:
        self._made_count += 1
        chance = self.stage.chance
        topic, count = chance.choice(self._plan.topics)
        key = f"S{self._plan.seed:06d}{self._made_count:06d}"
        truth = Truth(group=self._group, verdict=ROLLBACK, known_ms=0)
        queue_id = chance.randrange(count)
        sent = Sent(key=key, topic=topic, queue_id=queue_id, body=key.encode(), truth=truth)
        self._ledger.sent[key] = sent
        born_ms = self.stage.clock.now_ms()
        fields = send_fields(sent, self._plan, born_ms=born_ms, immunity="", flag=0)
        properties = decode_properties(fields["i"].encode())
        odd = self._some(_ODD_OF_HALVES, _PROPERTY_SHARE)
        truth.name = odd.get(TRANSACTION, "")  # two that say the same are ended together
        fields["i"] = encode_properties({**properties, **odd}).decode()
        fields.update(self._some({"g": _LONGS, "h": _INTS, "j": _INTS}, _FIELD_SHARE))
        self.stage.done["strange values: a half"] += 1

        def heard(reply: Command | None) -> None:
            if reply is not None and reply.code == Response.SUCCESS:
                ext = reply.ext or {}
                ident = (sent.key, parse_offset_id(ext["msgId"])[1])
                self._ledger.halves[ident] = int(ext["queueOffset"])

        self.call(SEND, fields, heard, body=sent.body)

    def _give_back(self) -> None:
        odd = {
            "offset": _LONGS, "delayLevel": _INTS, "originMsgId": _TEXTS, "originTopic": _TEXTS,
            "unitMode": ("true", "x"), "maxReconsumeTimes": _INTS, "group": (GROUP, *_TEXTS),
        }  # fmt: skip
        ext = {"group": GROUP, "offset": "0", "delayLevel": "1", "originMsgId": "x"}
        if self._places:
            ext["offset"] = str(self.stage.chance.choice(self._places[-_RECEIPTS_MAX:]))
        ext = {**ext, "originTopic": TOPIC, **self._some(odd, _FIELD_SHARE)}
        self._try("a message given back", Request.CONSUMER_SEND_MSG_BACK, ext)

    # -- who it says it is -----------------------------------------------------------------------

    def _beat_oddly(self) -> None:
        chance = self.stage.chance
        consumer = {
            "groupName": chance.choice((GROUP, *_TEXTS)),
            "consumeType": chance.choice(("CONSUME_PASSIVELY", "CONSUME_ACTIVELY", "x")),
            "messageModel": chance.choice(("CLUSTERING", "BROADCASTING", "x")),
            "consumeFromWhere": chance.choice(("CONSUME_FROM_FIRST_OFFSET", "x")),
            "unitMode": False,
            "subscriptionDataSet": [
                {
                    "topic": chance.choice((TOPIC, *_TEXTS)),
                    "subString": chance.choice(("*", "a||", "\u00e9", "(", "a > '")),
                    "subVersion": chance.choice((0, -1, (1 << 63) - 1)),
                    "expressionType": chance.choice(("TAG", "SQL92", "x")),
                }
            ],
        }
        names = [{"groupName": chance.choice(_TEXTS)}]
        body = {"clientID": self.name, "producerDataSet": names, "consumerDataSet": [consumer]}
        self._try("a heartbeat", Request.HEART_BEAT, {}, fastjson.encode(body))

    def _make(self) -> None:
        odd = {
            "topic": (TOPIC, *_TEXTS), "readQueueNums": _INTS, "writeQueueNums": _INTS,
            "perm": _INTS, "topicFilterType": ("MULTI_TAG", "x"), "order": ("true", "x"),
            "topicSysFlag": _INTS, "attributes": ("+message.type=x", "-", "+a"),
        }  # fmt: skip
        ext = {
            "topic": TOPIC, "defaultTopic": Topic.DEFAULT, "readQueueNums": "2", "perm": "6",
            "writeQueueNums": "2", "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        ext.update(self._some(odd, _FIELD_SHARE))
        self._try("a topic", Request.UPDATE_AND_CREATE_TOPIC, ext, b"")

    def _commit(self) -> None:
        odd = {
            "consumerGroup": (GROUP, *_TEXTS), "topic": (TOPIC, _RETRIES, *_TEXTS),
            "queueId": _INTS, "commitOffset": _LONGS,
        }  # fmt: skip
        ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "0"}
        ext.update(self._some(odd, _FIELD_SHARE))
        self._try("an offset", Request.UPDATE_CONSUMER_OFFSET, ext, b"")

    # -- pops ------------------------------------------------------------------------------------

    def _pop(self) -> None:
        odd = {
            "queueId": _INTS, "maxMsgNums": _INTS, "invisibleTime": _SPANS, "pollTime": ("0", "-1"),
            "bornTime": _LONGS, "initMode": _INTS, "order": ("true", "x"), "attemptId": _TEXTS,
            "expType": ("TAG", "SQL92", "x"), "exp": ("*", "(", "a > '"),
        }  # fmt: skip
        now_ms = str(self.stage.clock.now_ms())
        ext = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "8",
            "invisibleTime": "10000", "pollTime": "0", "bornTime": now_ms, "initMode": "0",
            "order": "false",
        }  # fmt: skip
        ext.update(self._some(odd, _FIELD_SHARE / 2))
        self.stage.done["strange values: a pop"] += 1
        self.call(Request.POP_MESSAGE, ext, self._popped)

    def _popped(self, reply: Command | None) -> None:
        if reply is None or reply.code != Response.SUCCESS:
            return
        ext = reply.ext or {}
        starts = decode_offset_list(ext["startOffsetInfo"])
        self.stage.done["strange values: popped"] += len(decode_records(reply.body))
        for (kind, queue), offsets in decode_offset_list(ext["msgOffsetInfo"]).items():
            if queue.isdigit() and (kind, queue) in starts:
                receipt = PopReceipt(
                    start_offset=starts[kind, queue][0], pop_ms=int(ext["popTime"]),
                    invisible_ms=int(ext["invisibleTime"]), revive_queue=int(ext["reviveQid"]),
                    kind=kind, broker_name="sim-broker", queue_id=int(queue),
                    queue_offset=offsets[0],
                )  # fmt: skip
                self._receipts.append((TOPIC, receipt))
        del self._receipts[:-_RECEIPTS_MAX]

    def _receipt(self) -> dict[str, str]:
        """Of a message that it has, with a field or two changed."""
        chance = self.stage.chance
        topic, receipt = TOPIC, PopReceipt(0, 0, 0, 0, 0, "sim-broker", 0, 0)
        if self._receipts:
            topic, receipt = chance.choice(self._receipts)
        names = ("start_offset", "pop_ms", "invisible_ms", "revive_queue", "kind", "queue_offset")
        numbers = (0, 1, -1, 999, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 70)
        changed = {n: chance.choice(numbers) for n in names if chance.random() < _FIELD_SHARE / 2}
        text = encode_receipt(msgspec.structs.replace(receipt, **changed))
        ext = {
            "consumerGroup": GROUP, "topic": topic, "queueId": str(receipt.queue_id),
            "extraInfo": text, "offset": str(receipt.queue_offset),
        }  # fmt: skip
        odd = {"queueId": _INTS, "offset": _LONGS, "extraInfo": _TEXTS, "topic": (_RETRIES, "x")}
        return {**ext, **self._some(odd, _FIELD_SHARE / 3)}

    def _acknowledge(self) -> None:
        self._try("a receipt", Request.ACK_MESSAGE, self._receipt())

    def _change(self) -> None:
        ext = {**self._receipt(), "invisibleTime": self.stage.chance.choice(_SPANS)}
        self._try("a change of a receipt", Request.CHANGE_MESSAGE_INVISIBLETIME, ext)
