"""What a run has shown: findings of both judges, whether the logs are equal, and how long each
client waited."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.codec import fastjson
from escrowmq.drill import history
from escrowmq.drill.history import AcknowledgedEnd, AcknowledgedSend, Event, ReadMessage
from escrowmq.drill.judge import find_violations
from escrowmq.drill.report import longest_gap_ns
from tests.crash.link import Link, read_queue
from tests.group import porcupine
from tests.interop.process import until

from .clients import Clients
from .group import QUEUES, Group, Member

SETTLED_S: Final = 60.0
NS: Final = 1e9


class Verdict(msgspec.Struct, kw_only=True):
    """Of one run."""

    fault: str
    rounds: int
    acknowledged: int
    """Sends and halves."""
    ends: int
    """Of halves that were acknowledged; the outcome of each was checked."""
    findings: list[str]
    """What the judges found; empty when nothing is wrong."""
    pauses_s: dict[str, list[float]]
    """The longest pause without an acknowledgement in each round, by client."""

    def pause_s(self, client: str, share: float) -> float:
        """The pause that this share of rounds did not exceed."""
        found = sorted(self.pauses_s[client])
        return found[min(len(found) - 1, int(share * len(found)))]


def look(
    fault: str, group: Group, topic: str, clients: Clients, spans: list[tuple[int, int]]
) -> Verdict:
    """Judge a run of a group that is whole, with a network that works. `spans`: when each round's
    fault began, and when the round ended."""
    for sender in clients.senders:
        sender.stop()
    final = group.folder / "final.history"
    _read_all(group, topic, _committed(clients), final)
    events = list(history.read_events([*clients.files, final]))
    stored = {e.transaction for e in events if isinstance(e, AcknowledgedSend) and e.end_ns} - {""}
    findings = [str(finding) for finding in find_violations(events)]
    findings += porcupine.violations(events)
    findings += [
        f"epoch {epoch} has several masters: {sorted(names)}"
        for epoch, names in group.masters_by_epoch().items()
        if len(names) > 1
    ]
    findings += _unequal(group)
    return Verdict(
        fault=fault,
        rounds=len(spans),
        acknowledged=sum(isinstance(e, AcknowledgedSend) and e.end_ns > 0 for e in events),
        ends=len(stored & {e.transaction for e in events if isinstance(e, AcknowledgedEnd)}),
        findings=findings,
        pauses_s={
            sender.name: [pause_s(sender.tail.acknowledged(), *span) for span in spans]
            for sender in clients.senders
        },
    )


def pause_s(acknowledged: list[AcknowledgedSend], begin_ns: int, end_ns: int) -> float:
    """The longest time within a span in which nothing was acknowledged."""
    return longest_gap_ns([each.end_ns for each in acknowledged], begin_ns, end_ns) / NS


def _committed(clients: Clients) -> set[str]:
    """Keys that have to become visible."""
    events: list[Event] = [e for sender in clients.senders for e in sender.tail.look()]
    stored = {e.key for e in events if isinstance(e, AcknowledgedSend) and e.end_ns}
    committed = {
        e.transaction for e in events if isinstance(e, AcknowledgedEnd) and e.outcome == "commit"
    }
    return stored & committed


def _read_all(group: Group, topic: str, wanted: set[str], path: Path) -> None:
    """Wait until no transaction is pending, then read all queues to their ends into a history."""
    link = Link(group.master().clients.address)

    def is_settled() -> bool:
        reply = link.ask(Request.ESCROW_PENDING_COUNT, {})
        assert reply.code == 0, reply.remark
        return int(fastjson.decode_fastjson(reply.body)["count"]) == 0

    try:
        until("every transaction has its end", is_settled, within_s=SETTLED_S)
        with path.open("wb") as file:
            for queue in range(QUEUES):
                begin_ns = time.monotonic_ns()
                messages = read_queue(link, topic, queue)
                end_ns = time.monotonic_ns()
                for each in messages:
                    key = each.properties["KEYS"]
                    place = queue, each.queue_offset, key, each.log_offset
                    history.append_event(file, ReadMessage(topic, *place, begin_ns, end_ns))
                end = messages[-1].queue_offset + 1 if messages else 0
                history.append_event(file, ReadMessage(topic, queue, end, "", -1, begin_ns, end_ns))
    finally:
        link.close()


def _unequal(group: Group) -> list[str]:
    """Where logs of members differ up to what is confirmed."""
    master = group.master()
    link = Link(master.clients.address)
    reply = link.ask(Request.GET_BROKER_HA_STATUS, {})
    link.close()
    end = int(fastjson.decode_fastjson(reply.body)["masterCommitLogMaxOffset"])

    def differing() -> list[str]:
        return [
            f"the log of {other.name} is not that of {master.name} up to {end}"
            for other in group.others(master)
            if not _same(master, other, end)
        ]

    deadline = time.monotonic() + 10
    while (found := differing()) and time.monotonic() < deadline:
        time.sleep(0.2)  # a copy may get its last bytes just now
    return found


def _same(one: Member, other: Member, end: int) -> bool:
    ours, theirs = _files(one), _files(other)
    common = sorted(ours.keys() & theirs.keys())
    if not common or common[-1] + ours[common[-1]].stat().st_size < end:
        return False
    return all(
        ours[begin].read_bytes()[: end - begin] == theirs[begin].read_bytes()[: end - begin]
        for begin in common
        if begin < end
    )


def _files(member: Member) -> dict[int, Path]:
    return {int(path.name): path for path in (member.folder / "commitlog").iterdir()}
