"""Serves operators' requests about a group that fails over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.codes import Response
from escrowmq.base.group_report import GroupReport
from escrowmq.broker.access.audit_log import sender_text
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.errors import UsageError

_ALONE: Final = Refusal(
    Response.SYSTEM_ERROR,
    "this broker is in no group that fails over: it was started without --authority",
)


class GroupRole(Protocol):
    """This member in its role: as the group's master, or as a copy. Methods raise UsageError if
    they refuse an order."""

    def report(self) -> GroupReport:
        """Return the state of the group as this member knows it."""
        ...

    def switch_master(self, member: str) -> str:
        """Make another member the master; without a name, the one with the newest log. Return its
        name. It becomes master a little later."""
        ...

    def become_master_by_force(self) -> None:
        """Become master by force; records that only other members have are lost."""
        ...

    def inject_fault(self, fields: Mapping[str, str], *, who: str, at_ms: int) -> dict[str, str]:
        """Inject a fault into this member, for a failover drill. Return what the drill must know
        about the member."""
        ...


class GroupMemberHandlers:
    """Serves ESCROW_GROUP_STATUS (7726), ESCROW_GROUP_SWITCH (7727), ESCROW_GROUP_REBUILD (7728)
    and ESCROW_GROUP_DRILL (7729)."""

    def __init__(self) -> None:
        self._end: GroupRole | None = None

    def set_role(self, end: GroupRole) -> None:
        """Set the object for this member's role."""
        self._end = end

    def report(self) -> GroupReport | None:
        """Return the state of the group as this member knows it; None if it is in no group."""
        return None if self._end is None else self._end.report()

    def group_status(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the state of the group as this member knows it."""
        if self._end is None:
            return _ALONE
        return Answer(body=msgspec.json.encode(self._end.report()))

    def switch_master(self, request: IncomingRequest[None]) -> Reply:
        """Begin a planned change of the master."""
        if self._end is None:
            return _ALONE
        try:
            return Answer(ext={"member": self._end.switch_master(request.ext.get("member", ""))})
        except UsageError as error:
            return Refusal(Response.SYSTEM_ERROR, str(error))

    def become_master_by_force(self, request: IncomingRequest[None]) -> Reply:
        """Make this member the master by force; records that only other members have are lost."""
        if self._end is None:
            return _ALONE
        if request.ext.get("acceptLoss") != "true":
            remark = (
                "what was acknowledged and is only on other members is lost by this; "
                "acceptLoss=true says that this is known"
            )
            return Refusal(Response.INVALID_PARAMETER, remark)
        try:
            self._end.become_master_by_force()
        except UsageError as error:
            return Refusal(Response.SYSTEM_ERROR, str(error))
        return DONE

    def inject_fault(self, request: IncomingRequest[None]) -> Reply:
        """Inject a fault into this member, for a failover drill."""
        if self._end is None:
            return _ALONE
        try:
            found = self._end.inject_fault(
                request.ext, who=sender_text(request), at_ms=request.now_ms
            )
        except UsageError as error:
            return Refusal(Response.SYSTEM_ERROR, str(error))
        return Answer(ext=found)
