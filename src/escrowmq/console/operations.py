"""What the API does: one row a call, of which the routes, the OpenAPI document and the pages are
made. A call is a function of a desk and of what is wanted, a Struct; pages call the same
function."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from escrowmq.client.admin.previews.preview import Preview, Row
from escrowmq.console.answers import Answer
from escrowmq.console.desk import Desk
from escrowmq.console.problems import Problem, problem_of
from escrowmq.console.sessions import Who
from escrowmq.errors import EscrowMQError

PREFIX: Final = "/api/v1"
Method = Literal["GET", "POST", "DELETE"]
_IN_PATH: Final = re.compile(r"\{(\w+)\}")


class Nothing(msgspec.Struct, kw_only=True):
    """What a call wants that needs no parameters."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and with what."""

    desk: Desk
    who: Who


class Change(Answer, kw_only=True):
    """What a call that changes something did; with `dry_run`, what it would do."""

    is_dry_run: bool
    said: str
    """A sentence for people."""
    count: int | None = None
    """How many things; null when nobody counted."""
    rows: list[Row] = msgspec.field(default_factory=list)
    """The first of them."""
    job: int | None = None
    """The job that does it in the background."""

    @classmethod
    def to_come(cls, found: Preview) -> Change:
        """What a preview says, as the answer of a dry run."""
        return cls(is_dry_run=True, said=found.said, count=found.count, rows=found.rows)


class Deed(msgspec.Struct, kw_only=True):
    """What every changing call takes."""

    dry_run: bool = False
    """Tell what would be done, and do nothing."""
    reason: str = ""
    """For the audit log."""


Handler = Callable[[Asking, Any], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    name: str
    """As the command line and the Admin have it: a noun, a dot, a verb."""
    method: Method
    path: str
    summary: str
    wants: type[msgspec.Struct]
    gives: Any
    handler: Handler
    is_open_to_viewers: bool = False
    """A call by POST that changes nothing of the cluster."""
    takes_password: bool = False
    """Whether its confirmation asks for one: no page carries it, and no model is asked for it."""

    @property
    def changes(self) -> bool:
        """Whether somebody who may only look is refused."""
        return self.method != "GET" and not self.is_open_to_viewers

    @property
    def in_path(self) -> list[str]:
        """The parameters that stand in the path."""
        return _IN_PATH.findall(self.path)

    async def __call__(self, asking: Asking, given: Mapping[str, object]) -> Any:  # noqa: ANN401
        """The answer; Problem when there is none."""
        if self.changes and not asking.who.may_change:
            raise Problem(
                403, "read_only", f"{asking.who.name} may look, and change nothing",
                "log in as somebody who may",
            )  # fmt: skip
        wanted = self.read(given)
        try:
            found = await self.handler(asking, wanted)
        except EscrowMQError as error:
            raise problem_of(error) from error
        if self.changes and not getattr(wanted, "dry_run", False):
            asking.desk.memo.forget()
        return found

    def read(self, given: Mapping[str, object]) -> msgspec.Struct:
        """What is wanted, from what was given. Empty texts of forms count as not given."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(self.wants)}
        unknown = sorted(given.keys() - fields.keys())
        if unknown:
            raise Problem(
                400, "bad_request", f"{', '.join(unknown)}: no such parameter",
                f"there are {', '.join(fields)}",
            )  # fmt: skip
        try:
            return msgspec.convert(dict(given), self.wants, strict=False)
        except msgspec.ValidationError as error:
            raise Problem(400, "bad_request", str(error), f"see {PREFIX}/openapi.json") from error
