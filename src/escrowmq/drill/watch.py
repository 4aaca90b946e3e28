"""Watches the members of a group: the master of each epoch, and the members in sync."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from escrowmq.base.group_report import GroupReport
from escrowmq.client.admin.admin import Admin
from escrowmq.errors import EscrowMQError

_POLL_S: Final = 0.1


class GroupWatch:
    """The latest report of each member, inside an `async with` block. Each member is polled by a
    task of its own, so that an unresponsive one delays no other."""

    def __init__(self, admin: Admin, broker: str, members: Mapping[str, str]) -> None:
        """`members`: addresses by name."""
        self._admin = admin
        self._broker = broker
        self.addresses = dict(members)
        """Addresses of the members; a restarted member may have another one."""
        self.reports: dict[str, GroupReport | None] = dict.fromkeys(members)
        """The latest report of each member; None if it did not answer."""
        self.silences: dict[str, int] = dict.fromkeys(members, 0)
        """How many polls each member has left unanswered."""
        self.masters: dict[int, set[str]] = defaultdict(set)
        """The members that reported themselves as master, by epoch."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await asyncio.gather(*map(self._poll_member, self.addresses))
        self._tasks = [asyncio.create_task(self._poll_repeatedly(name)) for name in self.addresses]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _poll_repeatedly(self, name: str) -> None:
        while True:
            with contextlib.suppress(EscrowMQError):  # by then it counts as silent
                await self._poll_member(name)
            await asyncio.sleep(_POLL_S)

    async def _poll_member(self, name: str) -> None:
        address = self.addresses[name]
        report = (await self._admin.replicas.reports([address])).get(address)
        if report is None or report.member != name:
            report = None
            self.process_report(name, None)
            for address, other in (await self._admin.replicas.reports()).items():
                if (other.broker, other.member) == (self._broker, name):
                    self.addresses[name], report = address, other
        self.process_report(name, report)

    def process_report(self, name: str, report: GroupReport | None) -> None:
        """Process a member's report, or None if it did not answer."""
        self.reports[name] = report
        if report is None:
            self.silences[name] += 1
        elif report.is_master:
            self.masters[report.epoch].add(report.member)

    # -- questions ---------------------------------------------------------------------------

    @property
    def newest_epoch(self) -> int:
        """Return the newest epoch that any member knows."""
        return max((one.epoch for one in self.reports.values() if one is not None), default=0)

    @property
    def master(self) -> str:
        """Return the member that serves in the newest epoch; empty if none does."""
        report = self._master_report
        return "" if report is None else report.member

    @property
    def _master_report(self) -> GroupReport | None:
        for one in self.reports.values():
            if (
                one is not None
                and one.is_master
                and not one.refusal
                and one.epoch == self.newest_epoch
            ):
                return one
        return None

    @property
    def members_out_of_sync(self) -> list[str]:
        """Return the members that are not in sync or do not answer. Without a master, these are all
        members."""
        serving = self._master_report
        if serving is None:
            return sorted(self.addresses)
        return sorted(name for name in self.addresses if not self._is_in_sync(name, serving))

    def _is_in_sync(self, name: str, serving: GroupReport) -> bool:
        report = self.reports[name]
        return (
            report is not None
            and name in serving.in_sync
            and report.epoch == serving.epoch
            and (report is serving or not (report.why or report.is_master))
            and not report.authority_fault
        )

    @property
    def epochs_with_rivals(self) -> dict[int, list[str]]:
        """Return the epochs that had several masters."""
        return {epoch: sorted(names) for epoch, names in self.masters.items() if len(names) > 1}
