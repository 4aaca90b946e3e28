"""A client that sends what no client should: each piece is refused, or ignored, as stated, and
nobody else notices."""

from __future__ import annotations

from functools import partial

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property, Topic
from escrowmq.base.own_properties import DELAYED, ORDER_KEY, TRANSACTION
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import decode_properties, encode_properties
from tests.sim.client import SimClient
from tests.sim.halves import SEND, end_fields, send_fields
from tests.sim.ledger import COMMIT, ROLLBACK, Ledger, Sent, Truth
from tests.sim.network import Address, SimNetwork
from tests.sim.plan import Plan
from tests.sim.stage import Stage, Violation

_HUGE = "99999999999999999999"
_ODD_OFFSETS = ("-1", "-9223372036854775808", str(1 << 62), str((1 << 63) - 1), "1")
_ODD_SPANS = ("never", "-5", "1.5", "", _HUGE, str(10**17), "0")
_ODD_TEXTS = ("", " ", "\u00e9" * 30, "k" * 200, "a:b;c|d", "0")
_ODD_IDS = ("x", "A" * 60, "A" * 600, "-_-_" * 20, "====")
_BUSY = frozenset(
    {Response.SYSTEM_BUSY, Response.SERVICE_NOT_AVAILABLE, Response.FLUSH_DISK_TIMEOUT}
)


class SimVandal(SimClient):
    """It claims to be of a producer group whose members answer for what it leaves behind."""

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
        super().__init__(stage, network, broker, name="vandal@sim", host=("10.0.9.9", 6_666))
        self._plan = plan
        self._ledger = ledger
        self._group = group
        self._made_count = 0
        self._tricks = (
            self._send_to_system_topic,
            self._send_without_group,
            self._end_elsewhere,
            self._end_of_stranger,
            self._end_with_odd_id,
            self._end_with_odd_count,
            self._odd_half,
            self._odd_delay,
            self._long_name,
            self._administer,
        )

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [], "consumerDataSet": []}

    def act(self) -> None:
        """Play one trick."""
        if self.is_connected:
            self.stage.chance.choice(self._tricks)()

    def _try(
        self, what: str, code: int, ext: dict[str, str], allowed: set[int], body: bytes = b"x"
    ) -> None:
        self.stage.done[f"bad input: {what}"] += 1

        def heard(reply: Command | None) -> None:
            if reply is not None and reply.code not in allowed | self._busy():
                raise Violation(f"{what} {ext} was answered {reply.code}: {reply.remark}")

        self.call(code, ext, heard, body=body)

    def _busy(self) -> frozenset[int]:
        """What anybody may be answered now and then: without descriptors also a plain failure,
        and that there is no such queue where a topic has lost one."""
        found = set(_BUSY)
        if self.stage.faults["no descriptors"]:
            found.add(Response.SYSTEM_ERROR)
        if self.stage.done["topics narrowed"]:
            found.add(Response.INVALID_PARAMETER)
        return frozenset(found)

    # -- messages --------------------------------------------------------------------------------

    def _fields(self, sent: Sent, **changed: str) -> dict[str, str]:
        born_ms = self.stage.clock.now_ms()
        ext = send_fields(sent, self._plan, born_ms=born_ms, immunity="", flag=0)
        properties = {**decode_properties(ext["i"].encode()), **changed}
        kept = {name: text for name, text in properties.items() if text != "\x00"}
        return {**ext, "i": encode_properties(kept).decode()}

    def _message(self) -> Sent:
        """What whoever is asked about it rolls back."""
        self._made_count += 1
        key = f"V{self._plan.seed:06d}{self._made_count:06d}"
        chance = self.stage.chance
        topic, count = chance.choice(self._plan.topics)
        truth = Truth(group=self._group, verdict=ROLLBACK, known_ms=0)
        sent = Sent(
            key=key, topic=topic, queue_id=chance.randrange(count), body=key.encode(), truth=truth
        )
        self._ledger.sent[key] = sent
        return sent

    def _send_to_system_topic(self) -> None:
        topics = (Topic.OP, Topic.HALF, Topic.CHECK_MAX_TIME, Topic.SCHEDULE)
        changed = {"b": self.stage.chance.choice(topics), "e": "0"}
        fields = {**self._fields(self._message(), TAGS="d", TRAN_MSG="\x00"), **changed}
        body = self.stage.chance.choice((b"0,1,2,3,", b"7", b",,,,", b"\xff" * 9))
        self._try("a forged op record", SEND, fields, {Response.NO_PERMISSION}, body)

    def _send_without_group(self) -> None:
        fields = self._fields(self._message(), PGROUP=self.stage.chance.choice(("\x00", "")))
        self._try("a half without a group", SEND, fields, {Response.MESSAGE_ILLEGAL})

    def _long_name(self) -> None:
        fields = self._fields(self._message(), **{TRANSACTION: "n" * 65})
        self._try("a long transaction name", SEND, fields, {Response.MESSAGE_ILLEGAL})

    def _odd_delay(self) -> None:
        changed = self.stage.chance.choice(
            ({Property.DELAY: "soon"}, {Property.TIMER_DELIVER_MS: _HUGE},
             {Property.TIMER_DELAY_SEC: "999999999"}, {Property.TIMER_DELAY_MS: "1e3"})
        )  # fmt: skip
        fields = self._fields(self._message(), **{DELAYED: "true", **changed})
        self._try("a delay that cannot be kept", SEND, fields, {Response.MESSAGE_ILLEGAL})

    def _odd_half(self) -> None:
        """Wishes that make no sense are ignored; the half is one as any other."""
        chance = self.stage.chance
        name, texts = chance.choice(
            ((Property.CHECK_IMMUNITY_TIME, _ODD_SPANS), (ORDER_KEY, _ODD_TEXTS),
             (TRANSACTION, ("",)), (DELAYED, _ODD_TEXTS))
        )  # fmt: skip
        text = chance.choice(texts)
        sent = self._message()
        if name == ORDER_KEY:
            sent.order_key = text
        if text.isdecimal() and len(text) == 18:
            self._ledger.immune.add(sent.key)
        self.stage.done[f"bad input: odd {name}"] += 1

        def heard(reply: Command | None) -> None:
            if reply is not None and reply.code == Response.SUCCESS:
                ext = reply.ext or {}
                ident = (sent.key, parse_offset_id(ext["msgId"])[1])
                self._ledger.halves[ident] = int(ext["queueOffset"])
            elif reply is not None and reply.code not in self._busy():
                raise Violation(f"half with {name}={text!r}: {reply.code} {reply.remark}")

        self.call(SEND, self._fields(sent, **{name: text}), heard, body=sent.body)

    # -- ends ------------------------------------------------------------------------------------

    def _end_elsewhere(self) -> None:
        """At offsets of no half, or of a record of another topic."""
        chance = self.stage.chance
        ext = end_fields(self._message(), ("", 0), 0, COMMIT, group=self._group, is_check=False)
        ext["commitLogOffset"] = chance.choice((*_ODD_OFFSETS, _HUGE))
        ext["tranStateTableOffset"] = chance.choice((*_ODD_OFFSETS, _HUGE, "x"))
        self._try("an END at odd offsets", Request.END_TRANSACTION, ext, {Response.SYSTEM_ERROR})

    def _end_of_stranger(self) -> None:
        """Of somebody else's half, in the name of another group."""
        if not self._ledger.halves:
            return
        chance = self.stage.chance
        ident, queue_offset = chance.choice(list(self._ledger.halves.items())[-9:])
        sent = self._ledger.sent[ident[0]]
        is_check = chance.random() < 0.5
        make = partial(end_fields, sent, ident, queue_offset, COMMIT)
        ext = make(group="strangers", is_check=is_check)
        what = "an answer" if is_check else "an END"
        allowed = {Response.SYSTEM_ERROR}
        self._try(f"{what} of another group", Request.END_TRANSACTION, ext, allowed)

    def _end_with_odd_id(self) -> None:
        ext = {"escrowId": self.stage.chance.choice(_ODD_IDS), "commitOrRollback": str(COMMIT)}
        if self._ledger.given and self.stage.chance.random() < 0.5:
            text = self.stage.chance.choice(self._ledger.given).text
            ext["escrowId"] = text[:20] + ("B" if text[20] == "A" else "A") + text[21:]
        allowed = {Response.NO_PERMISSION}
        self._try("a forged signed id", Request.END_TRANSACTION, ext, allowed)

    def _end_with_odd_count(self) -> None:
        if not self._ledger.halves:
            return
        chance = self.stage.chance
        ident, queue_offset = chance.choice(list(self._ledger.halves.items())[-9:])
        sent = self._ledger.sent[ident[0]]
        ext = end_fields(sent, ident, queue_offset, COMMIT, group=sent.truth.group, is_check=True)
        ext["escrowCount"] = chance.choice(("-1", "0", "300", "many"))
        told = {
            Response.SUCCESS,
            Response.SYSTEM_ERROR,
            Response.TRANSACTION_SHOULD_ROLLBACK,
            Response.TRANSACTION_STATE_UNKNOW,
        }
        self._try("an END with an odd count", Request.END_TRANSACTION, ext, told)

    def _administer(self) -> None:
        code = self.stage.chance.choice((Request.ESCROW_SETTLE, Request.ESCROW_DISCARDED_RESUME))
        self._try("an administrator from afar", code, {}, {Response.NO_PERMISSION}, b"{}")
