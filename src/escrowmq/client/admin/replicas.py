"""Brokers and their replicas: which is the master, which have all messages, and planned changes of
the master."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.group_report import GroupReport
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.routes import MASTER
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import SWITCHING_REMARK, EscrowMQError, RouteMissing, UsageError

_POLL_S: Final = 0.02
_POLL_MS: Final = 1_000
_ANSWER_WAIT_MS: Final = 5_000
"""How long the members may take to answer before their group is reported to have no master."""

SWITCH_S: Final = 10.0
"""The timeout of a planned change of the master. A member that is asked to take over has three
seconds; then the next one is asked."""


class Replica(msgspec.Struct, kw_only=True, rename="camel"):
    """One member of a group; or, for RocketMQ's kind of replication, a master or a slave. Unknown
    numbers are -1."""

    name: str
    """The member's name, or the broker's id."""
    address: str
    role: str
    """`master`, `in sync` (it has everything), `behind`, `out` (it neither serves nor copies) or
    `not reached`."""
    end: int = -1
    """The offset at which this replica's log ends."""
    behind: int = -1
    """Bytes of the master's log that this replica lacks."""
    incarnation: str = ""
    """The member's identity; it changes when the member may have lost stored data."""
    note: str = ""
    """What is wrong with this replica, in words; empty if nothing is."""


class ReplicaGroup(msgspec.Struct, kw_only=True, rename="camel"):
    """All brokers that share one name."""

    broker: str
    cluster: str
    kind: str
    """`group` (fails over by an authority), `pair` (a master with slaves) or `alone`."""
    master: str = ""
    """The member that serves clients; empty if none does."""
    master_address: str = ""
    epoch: int = 0
    """For a group: a number that grows with each change of the master."""
    confirmed: int = -1
    """For a group: the log offset up to which all members in sync have everything."""
    in_sync: list[str] = []
    min_copies: int = 1
    """While fewer members than this are in sync, the group accepts no messages
    (escrowMinCopies)."""
    authority: str = ""
    notes: list[str] = []
    """The problems of the group, if it has any."""
    members: list[Replica] = []


class SwitchResult(msgspec.Struct, kw_only=True, rename="camel"):
    """The result of a planned change of the master."""

    broker: str
    before: str
    master: str
    epoch: int
    took_ms: float
    """Milliseconds until the new master answered."""


class DrillMember(msgspec.Struct, kw_only=True, rename="camel"):
    """A member that takes part in a drill, that is, a rehearsed failure of a broker."""

    member: str
    takeover_ms: int
    """A master that is silent for this long (in ms) is replaced."""
    silence_ms: int
    """A member that has lacked data for this long (in ms) is no longer in sync."""


class _SlaveStatus(msgspec.Struct, rename="camel"):
    is_activated: bool = False
    max_offset: int = -1
    master_addr: str = ""


class _HaStatus(msgspec.Struct, rename="camel"):
    master_commit_log_max_offset: int = -1
    ha_client_runtime_info: _SlaveStatus | None = None
    escrow_fault: str = ""


class Replicas:
    """Shows, switches and rebuilds replicas of brokers: `Admin.replicas`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def status(
        self, broker: str = "", *, members: Sequence[str] = (), timeout_ms: int = _POLL_MS
    ) -> list[ReplicaGroup]:
        """Return all brokers with their replicas, or only those of one name. `members` are further
        addresses to ask: members that the name server does not know because their group has no
        master. A member that does not answer within `timeout_ms` is shown as not reached."""
        self._cluster.instance.check_usable()
        table = (await self._cluster.instance.names.fetch_brokers()).broker_addr_table
        reports = await self._fetch_reports(members, timeout_ms)
        found = []
        for name in sorted({*table, *(one.broker for one in reports.values())}):
            if broker and name != broker:
                continue
            data = table.get(name)
            addresses = {} if data is None else dict(data.broker_addrs)
            own = {at: one for at, one in reports.items() if one.broker == name}
            own |= await self._fetch_reports(addresses.values(), timeout_ms)
            unlisted = _reported_masters(own) - {*members, *addresses.values()}
            own |= await self._fetch_reports(unlisted, timeout_ms)
            if own:
                found.append(_replica_group(name, own, addresses.values()))
            else:
                cluster = "" if data is None else data.cluster or ""
                found.append(await self._pair_status(name, cluster, addresses))
        if broker and not found:
            raise RouteMissing(f"no broker {broker!r} is registered with the name server")
        return found

    async def switch(
        self, broker: str, to: str = "", *, within_s: float = SWITCH_S
    ) -> SwitchResult:
        """Make another member the master of a group: `to`, or the most up-to-date replica. Returns
        when it serves. No acknowledged message is lost; messages are refused meanwhile. If a member
        does not take over within three seconds, the next one is asked; with `to`, the same one
        again."""
        group = await self.group(broker)
        if not group.master:
            raise UsageError(f"{broker} has no master that could hand over")
        if to == group.master:
            raise UsageError(f"{to} is already the master of {broker}")
        began_s = asyncio.get_running_loop().time()

        async def request_handover() -> None:
            fields = {"member": to}
            await self._cluster.ask(group.master_address, Request.ESCROW_GROUP_SWITCH, fields)

        await request_handover()
        at = [one.address for one in group.members if one.address]
        after = await self._await_new_master(
            broker, at, above=group.epoch, within_s=within_s, hand_over=request_handover
        )
        took_s = asyncio.get_running_loop().time() - began_s
        return SwitchResult(
            broker=broker, before=group.master, master=after.member, epoch=after.epoch,
            took_ms=round(took_s * 1_000, 1),
        )  # fmt: skip

    async def rebuild(self, address: str, *, within_s: float = SWITCH_S) -> GroupReport:
        """Make the member at this address the master, although others may have acknowledged
        messages that it lacks: those are lost. Use it for a group whose members in sync will never
        come back. Returns when it serves."""
        before = await self.report(address)
        await self._cluster.ask(address, Request.ESCROW_GROUP_REBUILD, {"acceptLoss": "true"})
        return await self._await_new_master(
            before.broker, [address], above=before.epoch, within_s=within_s
        )

    async def drill(
        self,
        address: str,
        drill: str,
        fault: str = "",
        *,
        span_ms: int = 0,
        member: str = "",
        is_dry_run: bool = False,
    ) -> DrillMember:
        """Make the member at this address join the drill of this name, and no other. `fault` makes
        it fail on purpose: `switch` or `kill`; or, for `span_ms` milliseconds, `freeze`, `cut`,
        `isolate` or `authority`. `end` undoes its fault and makes it leave the drill. Raises
        ResponseError from members that were not started with escrowDrills=true."""
        fields = {
            "drill": drill, "fault": fault, "ms": str(span_ms), "member": member,
            "isDryRun": "true" if is_dry_run else "false",
        }  # fmt: skip
        reply = await self._cluster.ask(address, Request.ESCROW_GROUP_DRILL, fields)
        with convert_parse_errors(address, Request.ESCROW_GROUP_DRILL):
            return msgspec.convert(reply.ext or {}, DrillMember, strict=False)

    async def reports(self, addresses: Iterable[str] = ()) -> dict[str, GroupReport]:
        """Return the reports of the members of groups at these addresses; without addresses, of
        those that the name server knows. Members that do not answer are left out."""
        found = list(addresses)
        if not found:
            table = (await self._cluster.instance.names.fetch_brokers()).broker_addr_table
            found = [at for data in table.values() for at in dict(data.broker_addrs).values()]
        return await self._fetch_reports(found, _POLL_MS)

    async def group(self, broker: str) -> ReplicaGroup:
        """Return the group of this name. Raises UsageError for brokers that do not fail over."""
        (found,) = await self.status(broker)
        if not (found.kind == "group" and found.master):  # or the master is slow to answer
            (found,) = await self.status(broker, timeout_ms=_ANSWER_WAIT_MS)
        if found.kind != "group":
            raise UsageError(
                f"{broker} is not a group that fails over: its brokers were started without "
                "--authority"
            )
        return found

    async def report(self, address: str) -> GroupReport:
        """Return the report of the member at this address."""
        return await self._cluster.ask_decoded(address, Request.ESCROW_GROUP_STATUS, GroupReport)

    async def _await_new_master(
        self,
        broker: str,
        addresses: Sequence[str],
        *,
        above: int,
        within_s: float,
        hand_over: Callable[[], Awaitable[None]] | None = None,
    ) -> GroupReport:
        """Wait until a member is the master in a later epoch than `above`; return its report. Asks
        the members at these addresses, and at those that they report as their master's.
        `request_handover` is called again whenever the present master has stopped waiting for its
        successor."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        known = set(addresses)
        while True:
            reports = await self._fetch_reports(known, _POLL_MS)
            known |= _reported_masters(reports)
            for one in reports.values():
                if one.is_master and one.epoch > above and not one.refusal:
                    return one
            if loop.time() >= end_s:
                said = "; ".join(f"{r.member}: {_state_text(r)}" for r in reports.values())
                raise RouteMissing(
                    f"no new master of {broker} within {within_s:g} s ({said or 'no answers'}); "
                    "`escrowmq cluster status` shows the group"
                )
            if hand_over is not None and any(
                one.is_master and one.epoch == above and SWITCHING_REMARK not in one.refusal
                for one in reports.values()
            ):
                with contextlib.suppress(EscrowMQError):  # it has been replaced by now, or is gone
                    await hand_over()
            await asyncio.sleep(_POLL_S)

    async def _fetch_reports(
        self, addresses: Iterable[str], timeout_ms: int
    ) -> dict[str, GroupReport]:
        wanted = sorted(set(addresses))
        found = await asyncio.gather(*(self._fetch_report(at, timeout_ms) for at in wanted))
        return {at: one for at, one in zip(wanted, found, strict=True) if one is not None}

    async def _fetch_report(self, address: str, timeout_ms: int) -> GroupReport | None:
        try:
            reply = await self._cluster.instance.ask(
                address, Request.ESCROW_GROUP_STATUS, {}, timeout_ms=timeout_ms
            )
        except EscrowMQError:
            return None  # not reached, in no group, or RocketMQ's
        with convert_parse_errors(address, Request.ESCROW_GROUP_STATUS):
            return decode_body(GroupReport, reply.body)

    async def _pair_status(
        self, name: str, cluster: str, addresses: dict[int, str]
    ) -> ReplicaGroup:
        """Return the state of a broker name without an authority: a master and its slaves, as each
        reports it. They may be RocketMQ's."""
        ids = sorted(addresses)
        states = dict(zip(ids, await asyncio.gather(*(
            self._fetch_ha_status(addresses[each]) for each in ids
        )), strict=True))  # fmt: skip
        master = states.get(MASTER)
        end = -1 if master is None else master.master_commit_log_max_offset
        group = ReplicaGroup(
            broker=name, cluster=cluster, kind="pair" if len(ids) > 1 else "alone",
            master=str(MASTER) if MASTER in addresses else "",
            master_address=addresses.get(MASTER, ""),
        )  # fmt: skip
        for each in ids:
            group.members.append(_pair_replica(each, addresses[each], states[each], end))
        group.in_sync = [one.name for one in group.members if one.role in ("master", "in sync")]
        if MASTER not in addresses:
            group.notes.append("no master is registered")
        return group

    async def _fetch_ha_status(self, address: str) -> _HaStatus | None:
        try:
            return await self._cluster.ask_decoded(address, Request.GET_BROKER_HA_STATUS, _HaStatus)
        except EscrowMQError:
            return None


def _reported_masters(reports: dict[str, GroupReport]) -> set[str]:
    """Return the addresses that members report as their master's. Name servers may not list them
    yet."""
    return {one.master_address for one in reports.values() if one.master_address}


def _state_text(report: GroupReport) -> str:
    """Describe a member's state in a few words."""
    return report.why or report.refusal or ("is the master" if report.is_master else "copies")


def _pair_replica(
    broker_id: int, address: str, state: _HaStatus | None, master_end: int
) -> Replica:
    one = Replica(name=str(broker_id), address=address, role="not reached")
    if state is None:
        return one
    if broker_id == MASTER:
        one.role, one.end, one.behind = "master", state.master_commit_log_max_offset, 0
        return one
    of_slave = state.ha_client_runtime_info or _SlaveStatus()
    one.end, one.note = of_slave.max_offset, state.escrow_fault
    if master_end >= 0 and one.end >= 0:
        one.behind = max(master_end - one.end, 0)
    if not of_slave.is_activated:
        one.role, one.note = "out", one.note or "it is not connected to a master"
    else:
        one.role = "behind" if one.behind else "in sync"
    return one


def _replica_group(
    name: str, reports: dict[str, GroupReport], addresses: Iterable[str]
) -> ReplicaGroup:
    newest = max(reports.values(), key=lambda one: (one.epoch, one.is_master))
    serving = newest if newest.is_master else None
    group = ReplicaGroup(
        broker=name, cluster=newest.cluster, kind="group", epoch=newest.epoch,
        master=newest.member if serving else "",
        master_address=next(at for at, one in reports.items() if one is newest) if serving else "",
        confirmed=newest.confirmed if serving else -1, in_sync=newest.in_sync,
        min_copies=newest.min_copies, authority=newest.authority,
    )  # fmt: skip
    if serving is None:
        group.notes.append(f"no master serves; the last one was {newest.master or 'unknown'}")
    elif serving.refusal:
        group.notes.append(f"no messages are taken: {serving.refusal}")
    if newest.authority_fault:
        group.notes.append(f"the authority does not answer: {newest.authority_fault}")
    known = {one.member for one in reports.values()}
    for at, one in sorted(reports.items(), key=lambda item: item[1].member):
        group.members.append(_member_replica(at, one, newest, is_serving=one is serving))
    for copy in newest.copies if serving else ():
        if copy.member not in known:
            known.add(copy.member)
            role = "in sync" if copy.member in newest.in_sync else "behind"
            group.members.append(
                Replica(
                    name=copy.member, address="", role=role, end=copy.end, behind=copy.behind,
                    incarnation=copy.incarnation, note="the name server does not list it",
                )
            )  # fmt: skip
    group.members += [
        Replica(name="", address=at, role="not reached")
        for at in sorted(set(addresses) - reports.keys())
    ]
    group.members += [
        Replica(name=one, address="", role="not reached",
                note="in sync: it may be the master" if one in newest.in_sync and not serving
                else "")
        for one in newest.members if one not in known
    ]  # fmt: skip
    lacking = [one for one in newest.members if one not in newest.in_sync]
    if serving is not None and lacking:
        group.notes.append(f"not in sync: {', '.join(lacking)}")
    return group


def _member_replica(
    address: str, one: GroupReport, newest: GroupReport, *, is_serving: bool
) -> Replica:
    role = "behind"
    if is_serving:
        role = "master"
    elif one.why:
        role = "out"
    elif one.member in newest.in_sync:
        role = "in sync"
    behind = max(newest.end - one.end, 0) if newest.is_master else -1
    return Replica(
        name=one.member, address=address, role=role, end=one.end, behind=behind,
        incarnation=one.incarnation, note=one.why,
    )  # fmt: skip
