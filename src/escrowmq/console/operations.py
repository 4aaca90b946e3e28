"""The table of the API's calls, from which the routes, the OpenAPI document and the pages are made.
Each call is a function of the caller and of its parameters, a Struct; pages call the same
function."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from escrowmq.client.admin.previews.preview import Preview, PreviewRow
from escrowmq.console.account_clients import AccountClient
from escrowmq.console.answers import Answer
from escrowmq.console.problems import Problem, to_problem
from escrowmq.console.sessions import SessionUser
from escrowmq.errors import EscrowMQError

PREFIX: Final = "/api/v1"
Method = Literal["GET", "POST", "DELETE"]
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_MAY_HAVE_SLASHES: Final = re.compile(r"\{(id|transaction)\}")
"""Parameters in paths that may have slashes: places of messages, and ids that producers choose."""


class NoParameters(msgspec.Struct, kw_only=True):
    """The parameters of a call that has none."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The user who makes a call, and the client with which it reaches the cluster."""

    account_client: AccountClient
    who: SessionUser


class Change(Answer, kw_only=True):
    """The result of a call that changes something; with `dry_run`, what it would change."""

    is_dry_run: bool
    said: str
    """A sentence that describes the change."""
    count: int | None = None
    """Number of changed things; null if they were not counted."""
    rows: list[PreviewRow] = msgspec.field(default_factory=list)
    """The first of the changed things."""
    job: int | None = None
    """The job that makes the change in the background."""
    as_of_ms: int | None = None
    """For a preview of all that match: when it was made. Pass it on with the change, so that what
    began later is left out."""

    @classmethod
    def dry_run_answer(cls, found: Preview) -> Change:
        """Convert a preview to the answer of a dry run."""
        return cls(is_dry_run=True, said=found.said, count=found.count, rows=found.rows)


class ChangeParameters(msgspec.Struct, kw_only=True):
    """The parameters common to all calls that change something."""

    dry_run: bool = False
    """Describe what the change would do, and change nothing."""
    reason: str = ""
    """The reason for the change, for the audit log."""


Handler = Callable[[Caller, Any], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the API."""

    name: str
    """The name, as in the command line and the Admin: a noun, a dot, a verb."""
    method: Method
    path: str
    summary: str
    wants: type[msgspec.Struct]
    gives: Any
    handler: Handler
    is_open_to_viewers: bool = False
    """Whether viewers may call it, because it changes nothing in the cluster although it is a
    POST."""
    takes_password: bool = False
    """Whether its form asks for a password. Such a call is never listed among the model's tools,
    and no page contains the password."""

    @property
    def makes_changes(self) -> bool:
        """Whether the call changes something, so that a user with read access is refused."""
        return self.method != "GET" and not self.is_open_to_viewers

    @property
    def path_parameters(self) -> list[str]:
        """The names of the parameters that are part of the path."""
        return _IN_PATH.findall(self.path)

    @property
    def route(self) -> str:
        """The path as a pattern for the router."""
        return PREFIX + _MAY_HAVE_SLASHES.sub(r"{\1:path}", self.path)

    async def __call__(self, caller: Caller, given: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Make the call and return its answer. Raises Problem if it fails."""
        if self.makes_changes and not caller.who.may_change:
            raise Problem(
                403, "read_only", f"{caller.who.name} has read access only",
                "log in as a user that may change things",
            )  # fmt: skip
        wanted = self.parse_parameters(given)
        try:
            with caller.account_client.in_use():
                return await self.handler(caller, wanted)
        except EscrowMQError as error:
            raise to_problem(error) from error
        finally:  # what failed may have been done, or a part of it
            if self.makes_changes and not getattr(wanted, "dry_run", False):
                caller.account_client.memo.clear()

    def parse_parameters(self, given: Mapping[str, object]) -> msgspec.Struct:
        """Convert texts to the call's parameters. Empty texts of forms count as not given."""
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
