"""Dead letters: list them, redeliver them to their group, export them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from escrowmq.base.message import Topic
from escrowmq.client.admin.dead_letters import DeadLetter
from escrowmq.client.admin.previews.preview import ROWS_MAX, PreviewRow
from escrowmq.console.answers import Answer
from escrowmq.console.api.messages import POSITION_PATTERN, MessageShown, read_consecutive, to_shown
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.console.paging import SIZE_MAX, Listed
from escrowmq.console.problems import Problem
from escrowmq.errors import RouteMissing, TopicNotFound, UsageError

EXPORTED_MAX: Final = 500
EXPORTED_SIZE_MAX: Final = 16 * 1024 * 1024
"""Limit of the bytes of all bodies in one export, and of one body."""

COUNTED_MAX: Final = 2_000
"""A preview reads at most this many dead letters to count them."""

LOOKED_THROUGH_MAX: Final = 20_000


class LettersWanted(msgspec.Struct, kw_only=True):
    """Selects the page of dead letters to list."""

    group: Annotated[str, Meta(min_length=1)]
    topic: Annotated[str, Meta(description="topic in which they failed")] = ""
    page: Annotated[int, Meta(ge=1)] = 1
    size: Annotated[int, Meta(ge=1, le=SIZE_MAX)] = 50


class Redeliver(ChangeParameters, kw_only=True):
    """Selects the dead letters to redeliver: the named ones, or all that match."""

    group: Annotated[str, Meta(min_length=1)]
    topic: Annotated[str, Meta(description="topic in which they failed")] = ""
    limit: Annotated[int, Meta(ge=1)] | None = None
    letters: Annotated[
        list[str], Meta(description="single dead letters, as BROKER:QUEUE@OFFSET; all if empty")
    ] = msgspec.field(default_factory=list)


class ExportWanted(msgspec.Struct, kw_only=True):
    """Names the group whose dead letters are exported."""

    group: Annotated[str, Meta(min_length=1)]


class Export(Answer, kw_only=True):
    """Dead letters with their bodies."""

    items: list[MessageShown]
    is_part: bool
    """Whether there are more dead letters than fit into one answer."""


async def list_dead_letters(caller: Caller, wanted: LettersWanted) -> Listed[DeadLetter]:
    """List dead letters, the oldest of each queue first, and whether each was redelivered
    before."""
    admin = await caller.account_client.open_admin()
    first = (wanted.page - 1) * wanted.size
    if first > LOOKED_THROUGH_MAX:
        raise UsageError(f"page={wanted.page}: the list ends before that page; filter by topic")
    found: list[DeadLetter] = []
    nth = 0
    async for letter in admin.groups.redeliver_dead(wanted.group, topic=wanted.topic, dry_run=True):
        if nth >= first + wanted.size:
            return Listed(items=found, total=None, page=wanted.page, pages=None, has_more=True)
        if nth >= first:
            found.append(letter)
        nth += 1
    pages = max(1, -(-nth // wanted.size))
    return Listed(items=found, total=nth, page=wanted.page, pages=pages)


async def redeliver_dead_letters(caller: Caller, wanted: Redeliver) -> Change:
    """Redeliver dead letters to their group only, in the background."""
    admin = await caller.account_client.open_admin()
    ask = partial(
        admin.groups.redeliver_dead, wanted.group, topic=wanted.topic, limit=wanted.limit,
        only=_parse_positions(wanted.letters) if wanted.letters else None,
    )  # fmt: skip
    rows: list[PreviewRow] = []
    count, is_whole = 0, True
    async for letter in ask(dry_run=True):
        if letter.status != "dead":
            continue
        count += 1
        if len(rows) < ROWS_MAX:
            rows.append(
                PreviewRow(what=_describe_letter(letter), before="dead", after="redelivered")
            )
        if count >= COUNTED_MAX:
            is_whole = False
            break
    if not count:
        raise Problem(409, "nothing_to_do", "none of these dead letters can be redelivered",
                      "each is redelivered once; if it fails again, it becomes another dead "
                          "letter")  # fmt: skip
    many = f"{count}" if is_whole else f"more than {count - 1}"
    if wanted.dry_run:
        said = f"{many} dead letters would be redelivered to {wanted.group}, and to no other group."
        return Change(is_dry_run=True, said=said, count=count if is_whole else None, rows=rows)

    async def steps() -> AsyncIterator[str]:
        async for letter in ask(dry_run=False):
            if letter.status == "redelivered":
                yield ""

    job = caller.account_client.jobs.start_job(
        f"Redeliver dead letters of {wanted.group}", steps, who=caller.who.name,
        total=count if is_whole else None,
    )  # fmt: skip
    return Change(
        is_dry_run=False, said=f"{many} letters: job {job.id} redelivers them.",
        count=count if is_whole else None, job=job.id,
    )  # fmt: skip


def _describe_letter(dead_letter: DeadLetter) -> str:
    keys = f" ({dead_letter.keys})" if dead_letter.keys else ""
    return f"{dead_letter.message_id}{keys}, failed in {dead_letter.topic or 'an unknown topic'}"


def _parse_positions(letters: list[str]) -> list[tuple[str, int, int]]:
    found = []
    for text in letters:
        match = POSITION_PATTERN.fullmatch(text)
        if match is None:
            raise UsageError(f"letters: {text!r}: BROKER:QUEUE@OFFSET is expected")
        found.append((match[1], int(match[2]), int(match[3])))
    return found


async def export_dead_letters(caller: Caller, wanted: ExportWanted) -> Export:
    """Export the newest dead letters with their whole bodies."""
    admin = await caller.account_client.open_admin()
    try:
        described = await admin.topics.describe(Topic.DLQ_PREFIX + wanted.group)
    except (TopicNotFound, RouteMissing):  # nothing ever died
        return Export(items=[], is_part=False)
    found: list[MessageShown] = []
    size = 0
    for status in described.queues:
        first = max(status.min_offset, status.max_offset - EXPORTED_MAX)
        is_part = first > status.min_offset
        for at in range(first, status.max_offset):
            if size >= EXPORTED_SIZE_MAX or len(found) >= EXPORTED_MAX:
                return Export(items=found, is_part=True)
            for message in await read_consecutive(admin, status.queue, at, 1):
                found.append(to_shown(message, with_body="whole"))
                size += len(message.body)
        if is_part:
            return Export(items=found, is_part=True)
    return Export(items=found, is_part=False)


_ALL: Final = "/groups/{group}/dead-letters"
OPERATIONS: Final = (
    Operation(name="dead-letters.list", method="GET", path=_ALL, wants=LettersWanted,
              gives=Listed[DeadLetter], summary="Dead letters of a group",
              handler=list_dead_letters),
    Operation(name="dead-letters.export", method="GET", path=f"{_ALL}/export", wants=ExportWanted,
              gives=Export, summary="Dead letters with their bodies", handler=export_dead_letters),
    Operation(name="dead-letters.redeliver", method="POST", path=f"{_ALL}/redeliver",
              wants=Redeliver, gives=Change, summary="Redeliver dead letters",
              handler=redeliver_dead_letters),
)  # fmt: skip
